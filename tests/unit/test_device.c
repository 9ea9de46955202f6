/* Streams, events and memory of the cpu devices. */
#include "engine/device/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct device_ops *const both[] = {&device_cpu, &device_cpu_async};

struct log {
    int n;
    int value[1000];
};
struct entry {
    struct log *log;
    int value;
};

static void log_add(void *arg)
{
    struct entry *e = arg;

    e->log->value[e->log->n++] = e->value;
}

static void sleep_then_set(void *arg)
{
    struct timespec t = {0, 3000000};

    nanosleep(&t, NULL);
    *(int *)arg = 42;
}

struct copy {
    const int *from;
    int *to;
};

static void copy_int(void *arg)
{
    struct copy *c = arg;

    *c->to = *c->from;
}

static struct device *open_device(int i)
{
    struct device *dev;
    struct err err = ERR_INIT;

    assert_int_equal(both[i]->create(&dev, 0, &err), 0);
    return dev;
}

static void stream_keeps_order(void **state)
{
    for (int d = 0; d < 2; d++)
        for (int kind = STREAM_COMPUTE; kind <= STREAM_COPY; kind++) {
            struct device *dev = open_device(d);
            struct ds_stream *s = dev->ops->stream(dev, kind);
            struct log *log = calloc(1, sizeof *log);
            struct entry e[100];

            for (int i = 0; i < 100; i++) {
                e[i] = (struct entry){log, i * 7};
                dev->ops->run(s, log_add, &e[i]);
            }
            assert_int_equal(dev->ops->event_done(dev->ops->record(s), 1), 1);
            assert_int_equal(log->n, 100);
            for (int i = 0; i < 100; i++)
                assert_int_equal(log->value[i], i * 7);
            free(log);
            dev->ops->destroy(dev);
        }
}

/* a copy on another stream sees what was made before the event, on every pair of streams */
static void wait_orders_streams(void **state)
{
    for (int d = 0; d < 2; d++)
        for (int from = STREAM_COMPUTE; from <= STREAM_COPY; from++)
            for (int to = STREAM_COMPUTE; to <= STREAM_COPY; to++) {
                struct device *dev = open_device(d);
                int made = 0, got = 0;
                struct copy copy = {&made, &got};
                struct ds_event *e;

                dev->ops->run(dev->ops->stream(dev, from), sleep_then_set, &made);
                e = dev->ops->record(dev->ops->stream(dev, from));
                dev->ops->wait(dev->ops->stream(dev, to), e);
                assert_int_equal(dev->ops->event_done(e, 1),
                                 1); /* the wait may outlive the event */
                dev->ops->run(dev->ops->stream(dev, to), copy_int, &copy);
                dev->ops->event_done(dev->ops->record(dev->ops->stream(dev, to)), 1);
                assert_int_equal(got, 42);
                dev->ops->destroy(dev);
            }
}

static void block_until(void *arg)
{
    pthread_mutex_lock(arg);
    pthread_mutex_unlock(arg);
}

static void event_is_not_reached_early(void **state)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

    for (int d = 0; d < 2; d++) {
        struct device *dev = open_device(d);
        struct ds_stream *s = dev->ops->stream(dev, STREAM_COMM);
        struct ds_event *before = dev->ops->record(s), *after;

        pthread_mutex_lock(&gate);
        dev->ops->run(s, block_until, &gate);
        after = dev->ops->record(s);
        assert_int_equal(dev->ops->event_done(before, 1), 1);
        assert_int_equal(dev->ops->event_done(after, 0), 0);
        pthread_mutex_unlock(&gate);
        assert_int_equal(dev->ops->event_done(after, 1), 1);
        dev->ops->destroy(dev);
    }
}

static void destroy_finishes_work(void **state)
{
    for (int d = 0; d < 2; d++) {
        struct device *dev = open_device(d);
        int made = 0;

        dev->ops->run(dev->ops->stream(dev, STREAM_COPY), sleep_then_set, &made);
        dev->ops->destroy(dev);
        assert_int_equal(made, 42);
    }
    device_cpu.destroy(NULL);
}

/* on the async device work is late as a rule: a caller that does not wait sees the old value */
static void async_compute_is_not_the_caller(void **state)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    struct device *dev = open_device(1);
    struct ds_stream *s = dev->ops->stream(dev, STREAM_COMPUTE);
    struct ds_event *e;

    pthread_mutex_lock(&gate);
    dev->ops->run(s, block_until, &gate);
    e = dev->ops->record(s);
    assert_int_equal(dev->ops->event_done(e, 0), 0);
    pthread_mutex_unlock(&gate);
    assert_int_equal(dev->ops->event_done(e, 1), 1);
    dev->ops->destroy(dev);
}

static void memory_is_aligned_and_counted(void **state)
{
    struct device *dev = open_device(0);
    static const size_t sizes[] = {0, 1, 63, 64, 4096, (1 << 20) - 1, 1 << 20, (5 << 20) + 3};
    enum { N = sizeof sizes / sizeof *sizes };
    void *p[N];
    struct mem_info info;
    struct err err = ERR_INIT;
    uint64_t sum = 0;

    for (int i = 0; i < N; i++) {
        p[i] = dev->ops->alloc(dev, sizes[i], i % 2 ? MEM_GRAD : MEM_ACT, &err);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % (sizes[i] >= 1 << 20 ? 4096 : 64), 0);
        memset(p[i], 0xa5, sizes[i]);
        sum += sizes[i];
    }
    dev->ops->info(dev, &info);
    assert_int_equal(info.now[MEM_GRAD] + info.now[MEM_ACT], sum);
    assert_int_equal(info.now[MEM_GRAD], 1 + 64 + ((1 << 20) - 1) + ((5 << 20) + 3));
    assert_true(info.total > 0 && info.available > 0 && info.available <= info.total);
    device_count(dev, MEM_COMM, 1000);
    device_count(dev, MEM_COMM, -400);
    for (int i = 0; i < N; i++)
        dev->ops->free(dev, p[i]);
    dev->ops->free(dev, NULL);
    dev->ops->info(dev, &info);
    assert_int_equal(info.now[MEM_GRAD] + info.now[MEM_ACT], 0);
    assert_int_equal(info.peak[MEM_GRAD] + info.peak[MEM_ACT], sum);
    assert_int_equal(info.now[MEM_COMM], 600);
    assert_int_equal(info.peak[MEM_COMM], 1000);
    dev->ops->destroy(dev);
}

static void too_much_memory_is_an_error(void **state)
{
    struct device *dev = open_device(0);
    struct err err = ERR_INIT;

    assert_null(dev->ops->alloc(dev, SIZE_MAX / 2, MEM_PARAM, &err));
    assert_int_equal(err_class(&err), ERR_CLASS_RANK);
    assert_non_null(strstr(err.text, "param"));
    dev->ops->destroy(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_keeps_order),
        cmocka_unit_test(wait_orders_streams),
        cmocka_unit_test(event_is_not_reached_early),
        cmocka_unit_test(destroy_finishes_work),
        cmocka_unit_test(async_compute_is_not_the_caller),
        cmocka_unit_test(memory_is_aligned_and_counted),
        cmocka_unit_test(too_much_memory_is_an_error),
    };

    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
