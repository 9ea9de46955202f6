/* The cpu devices. In cpu the compute stream is the caller and every other stream a worker thread;
 * in cpu-async every stream is a thread that dawdles at random (seeded by DS_ASYNC_SEED), so that a
 * missing wait shows.
 *
 * Work of a stream is numbered from 1 and done in order; an event is a number, reached when the
 * stream's done is at least that. A wait is a work item holding the other stream and number by
 * value, so the event may be freed meanwhile. Items and events are kept for reuse: a step that
 * repeats allocates nothing. The compute stream of cpu never has items: done stays 0 and its events
 * are 0.
 */
#include "engine/device/cpu_memory.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STREAMS (STREAM_COPY + 1)
#define YIELDS 50 /* before a waiting thread sleeps: a short wait costs no wake-up */

struct item {
    struct item *next;
    void (*fn)(void *);
    void *arg;
    struct ds_stream *other; /* a wait: until other->done >= number */
    uint64_t number;
};

struct ds_event {
    struct ds_event *next;
    struct ds_stream *stream;
    uint64_t number;
};

struct ds_stream {
    struct cpu *cpu;
    int threaded;
    pthread_t thread;
    pthread_mutex_t lock; /* of head, tail, free, closing, given; done changes under it too */
    pthread_cond_t work, progress;
    struct item *head, *tail, *free;
    uint64_t given, done; /* done: atomic, release */
    int closing;
    uint64_t random; /* of the delays; 0: no delays */
};

struct cpu {
    struct device base;
    struct ds_stream stream[STREAMS];
    int started;          /* threads that run */
    pthread_mutex_t lock; /* of events */
    struct ds_event *events;
};

static void *must(void *p)
{
    if (!p)
        abort(); /* a few bytes: nothing can go on without */
    return p;
}

static int reached(const struct ds_stream *s, uint64_t number)
{
    return __atomic_load_n(&s->done, __ATOMIC_ACQUIRE) >= number;
}

static void stream_await(struct ds_stream *s, uint64_t number)
{
    for (int i = 0; i < YIELDS; i++) {
        if (reached(s, number))
            return;
        sched_yield();
    }
    pthread_mutex_lock(&s->lock);
    while (!reached(s, number))
        pthread_cond_wait(&s->progress, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void stream_push(struct ds_stream *s, struct item what)
{
    struct item *item;

    pthread_mutex_lock(&s->lock);
    item = s->free;
    if (item)
        s->free = item->next;
    else
        item = must(malloc(sizeof *item));
    *item = what;
    item->next = NULL;
    if (s->tail)
        s->tail->next = item;
    else
        s->head = item;
    s->tail = item;
    s->given++;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

/* Xorshift; half of the items start at once, the others up to 400 us late. */
static void dawdle(struct ds_stream *s)
{
    struct timespec t = {0};

    if (!s->random)
        return;
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    if (s->random & 1) {
        t.tv_nsec = (long)(s->random >> 20) % 400000;
        nanosleep(&t, NULL);
    }
}

static void *stream_main(void *arg)
{
    struct ds_stream *s = arg;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct item *item = s->head;

        if (!item && s->closing)
            break;
        if (!item) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        s->head = item->next;
        if (!s->head)
            s->tail = NULL;
        pthread_mutex_unlock(&s->lock);
        dawdle(s);
        if (item->other)
            stream_await(item->other, item->number);
        else
            item->fn(item->arg);
        pthread_mutex_lock(&s->lock);
        item->next = s->free;
        s->free = item;
        __atomic_store_n(&s->done, s->done + 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&s->progress);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static struct ds_stream *cpu_stream(struct device *dev, enum stream_kind kind)
{
    return &((struct cpu *)dev)->stream[kind];
}

static void cpu_run(struct ds_stream *s, void (*fn)(void *), void *arg)
{
    if (s->threaded)
        stream_push(s, (struct item){.fn = fn, .arg = arg});
    else
        fn(arg);
}

static struct ds_event *cpu_record(struct ds_stream *s)
{
    struct cpu *cpu = s->cpu;
    struct ds_event *e;

    pthread_mutex_lock(&cpu->lock);
    e = cpu->events;
    if (e)
        cpu->events = e->next;
    pthread_mutex_unlock(&cpu->lock);
    if (!e)
        e = must(malloc(sizeof *e));
    pthread_mutex_lock(&s->lock);
    *e = (struct ds_event){.stream = s, .number = s->given};
    pthread_mutex_unlock(&s->lock);
    return e;
}

static void cpu_wait(struct ds_stream *s, const struct ds_event *e)
{
    if (!s->threaded)
        stream_await(e->stream, e->number);
    else if (!reached(e->stream, e->number))
        stream_push(s, (struct item){.other = e->stream, .number = e->number});
}

static int cpu_event_done(struct ds_event *e, int block)
{
    struct cpu *cpu = e->stream->cpu;

    if (block)
        stream_await(e->stream, e->number);
    else if (!reached(e->stream, e->number))
        return 0;
    pthread_mutex_lock(&cpu->lock);
    e->next = cpu->events;
    cpu->events = e;
    pthread_mutex_unlock(&cpu->lock);
    return 1;
}

static void stream_clear(struct ds_stream *s)
{
    while (s->free) {
        struct item *item = s->free;

        s->free = item->next;
        free(item);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->progress);
}

/* Work already given is done first. */
static void cpu_destroy(struct device *dev)
{
    struct cpu *cpu = (struct cpu *)dev;

    if (!cpu)
        return;
    for (int i = 0; i < STREAMS; i++) {
        pthread_mutex_lock(&cpu->stream[i].lock);
        cpu->stream[i].closing = 1;
        pthread_cond_signal(&cpu->stream[i].work);
        pthread_mutex_unlock(&cpu->stream[i].lock);
    }
    for (int i = 0; i < STREAMS; i++)
        if (cpu->stream[i].threaded && i < cpu->started)
            pthread_join(cpu->stream[i].thread, NULL);
    for (int i = 0; i < STREAMS; i++)
        stream_clear(&cpu->stream[i]);
    while (cpu->events) {
        struct ds_event *e = cpu->events;

        cpu->events = e->next;
        free(e);
    }
    pthread_mutex_destroy(&cpu->lock);
    free(cpu);
}

/* Signals belong to the main thread: workers block them all. */
static int start_threads(struct cpu *cpu, struct err *err)
{
    sigset_t all, old;
    int rc = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (cpu->started = 0; cpu->started < STREAMS && !rc; cpu->started++) {
        struct ds_stream *s = &cpu->stream[cpu->started];

        if (s->threaded)
            rc = pthread_create(&s->thread, NULL, stream_main, s);
        if (rc)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return err_set(err, ERR_RANK,
                       "cannot start a stream's thread: %s; raise the limit of processes "
                       "(ulimit -u)",
                       strerror(rc));
    return 0;
}

static int create(struct device **out, const struct device_ops *ops, uint64_t seed, struct err *err)
{
    struct cpu *cpu = must(calloc(1, sizeof *cpu));

    cpu->base.ops = ops;
    pthread_mutex_init(&cpu->lock, NULL);
    for (int i = 0; i < STREAMS; i++) {
        struct ds_stream *s = &cpu->stream[i];

        s->cpu = cpu;
        s->threaded = seed || i != STREAM_COMPUTE;
        s->random = seed ? (seed + (uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1 : 0;
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->work, NULL);
        pthread_cond_init(&s->progress, NULL);
    }
    if (start_threads(cpu, err)) {
        cpu_destroy(&cpu->base);
        return -1;
    }
    *out = &cpu->base;
    return 0;
}

static int cpu_create(struct device **dev, int index, struct err *err)
{
    return create(dev, &device_cpu, 0, err);
}

static int async_create(struct device **dev, int index, struct err *err)
{
    const char *text = getenv("DS_ASYNC_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 1;

    return create(dev, &device_cpu_async, (seed << 16) + (uint64_t)index + 1, err);
}

static int cpu_probe(char why[256])
{
    strcpy(why, "always there");
    return 0;
}

static int async_probe(char why[256])
{
    strcpy(why, "for tests: every stream is a thread that dawdles");
    return 0;
}

const struct device_ops device_cpu = {
    .name = "cpu",
    .probe = cpu_probe,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .stream = cpu_stream,
    .run = cpu_run,
    .record = cpu_record,
    .wait = cpu_wait,
    .event_done = cpu_event_done,
    .info = cpu_info,
};

const struct device_ops device_cpu_async = {
    .name = "cpu-async",
    .probe = async_probe,
    .create = async_create,
    .destroy = cpu_destroy,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .stream = cpu_stream,
    .run = cpu_run,
    .record = cpu_record,
    .wait = cpu_wait,
    .event_done = cpu_event_done,
    .info = cpu_info,
};
