/* Checkpoints: saved on several ranks and read on others, whole after a failure at any write, fsync
 * or rename, and no damaged byte goes unseen. Ranks are threads. */
#include "engine/base/buf.h"
#include "engine/base/clock.h"
#include "engine/ckpt/ckpt.h"
#include "engine/comm/comm.h"
#include "tests/unit/ckpt_model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WORLD_MAX 8

struct rank {
    struct boot *boot;
    const char *dir, *from; /* from: the checkpoint whose data is saved; NULL: value_of */
    int64_t step, keep;
    int rc;
    struct err err;
};

/* This rank's share of the data. */
static int fill(const struct rank *k, struct ckpt_entry *own, int n, struct err *err)
{
    struct ckpt *c;
    int rc;

    for (int t = 0; t < n && !k->from; t++)
        for (uint64_t i = 0; i < own[t].count; i++)
            own[t].data[i] = value_of(t, own[t].first + i, k->step);
    if (!k->from)
        return 0;
    if (ckpt_open(&c, k->from, err) < 0)
        return -1;
    rc = ckpt_read(c, own, n, err);
    ckpt_close(c);
    return rc;
}

static void *rank_main(void *arg)
{
    struct rank *k = arg;
    struct ckpt_writer *w;
    struct ckpt_entry own[TENSORS], all[TENSORS];
    struct ckpt_meta meta = meta_of(k->step);
    float room[256];
    int64_t step = -1;
    int n = share(k->boot->rank, k->boot->world, own, room);

    for (int t = 0; t < TENSORS; t++)
        all[t] = entry_of(t);
    k->rc = -1;
    if (fill(k, own, n, &k->err) < 0 ||
        ckpt_writer_create(&w, k->dir, k->boot, k->keep, &k->err) < 0)
        return NULL;
    if (ckpt_save(w, &meta, own, n, all, TENSORS, &k->err) == 0) {
        memset(room, 0, sizeof room); /* the save has its copy */
        k->rc = ckpt_poll(w, 1, &step, &k->err);
    }
    ckpt_writer_destroy(w);
    return NULL;
}

/* Saves a step on n ranks. 1 or -1, and rank 0's error. */
static int save_from(const char *from, const char *where, int n, int64_t step, int64_t keep,
                     struct err *err)
{
    struct boot_world *world = boot_world_create(n, 1);
    struct rank rank[WORLD_MAX];
    pthread_t thread[WORLD_MAX];

    memset(rank, 0, sizeof rank);
    for (int r = 0; r < n; r++) {
        rank[r].boot = boot_world_rank(world, r);
        rank[r].dir = where;
        rank[r].from = from;
        rank[r].step = step;
        rank[r].keep = keep;
        assert_int_equal(pthread_create(&thread[r], NULL, rank_main, &rank[r]), 0);
    }
    for (int r = 0; r < n; r++)
        pthread_join(thread[r], NULL);
    for (int r = 1; r < n; r++)
        assert_int_equal(rank[r].rc, rank[0].rc); /* all ranks agree */
    boot_world_destroy(world);
    *err = rank[0].err;
    return rank[0].rc;
}

static int save(const char *where, int n, int64_t step, int64_t keep, struct err *err)
{
    return save_from(NULL, where, n, step, keep, err);
}

static int has(const char *text, const char *part)
{
    if (!strstr(text, part))
        print_message("\"%s\" is not in: %s\n", part, text);
    return strstr(text, part) != NULL;
}

/* Opens path; every element of the checkpoint is that of its step. Returns the step. */
static int64_t check(const char *path, int n)
{
    struct err err = ERR_INIT;
    struct ckpt *c;
    int64_t step;

    if (ckpt_open(&c, path, &err) < 0)
        fail_msg("%s", err.text);
    step = ckpt_meta(c)->step;
    for (int r = 0; r < n; r++) {
        struct ckpt_entry own[TENSORS];
        float room[256] = {0};

        share(r, n, own, room);
        if (ckpt_read(c, own, TENSORS, &err) < 0)
            fail_msg("%s", err.text);
        for (int t = 0; t < TENSORS; t++)
            for (uint64_t i = 0; i < own[t].count; i++)
                assert_true(own[t].data[i] == value_of(t, own[t].first + i, step));
    }
    ckpt_close(c);
    return step;
}

static void remove_all(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char *inner = xasprintf("%s/%s", path, e->d_name);

        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(inner) < 0)
            remove_all(inner);
        free(inner);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static void *abort_soon(void *world)
{
    usleep(200000);
    boot_world_abort(world);
    return NULL;
}

/* Saves while the disk hangs and the job is ended: every wait ends by the abort word, and the save is left behind.
 * The exit status of faulty_save. */
static int hang_main(const char *where)
{
    struct boot_world *world = boot_world_create(1, 1);
    struct ckpt_entry own[TENSORS], all[TENSORS];
    struct ckpt_meta meta = meta_of(1);
    struct err err = ERR_INIT;
    struct ckpt_writer *w;
    float room[256] = {0};
    int64_t step = 0;
    pthread_t t;
    int n = share(0, 1, own, room), rc = 0;

    for (int i = 0; i < TENSORS; i++)
        all[i] = entry_of(i);
    if (ckpt_writer_create(&w, where, boot_world_rank(world, 0), 0, &err) < 0 ||
        ckpt_save(w, &meta, own, n, all, TENSORS, &err) < 0 || pthread_create(&t, NULL, abort_soon, world))
        return 20;
    if (ckpt_poll(w, 1, &step, &err) != -1 || err.code != ERR_RANK_ABORT || step != 1)
        rc = 21;
    err = (struct err)ERR_INIT;
    if (ckpt_save(w, &meta, own, n, all, TENSORS, &err) != -1 || err.code != ERR_RANK_ABORT)
        rc = 22;
    ckpt_writer_destroy(w);
    pthread_join(t, NULL);
    return rc;
}

static int exists(const char *dir, const char *name)
{
    char *path = xasprintf("%s/%s", dir, name);
    int there = access(path, F_OK) == 0;

    free(path);
    return there;
}

static char run[256], dir[300];

static int setup(void **state)
{
    (void)state;
    snprintf(run, sizeof run, "ckpt-test-XXXXXX");
    if (!mkdtemp(run))
        return -1;
    snprintf(dir, sizeof dir, "%s/ckpt", run);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_all(run);
    return 0;
}

/* ---- tests ---- */

static void three_ranks_to_any(void **state)
{
    struct err err;
    struct ckpt *c;
    const struct ckpt_entry *list;

    (void)state;
    assert_int_equal(save(dir, 3, 20, 0, &err), 1);
    for (int n = 1; n <= 8; n++)
        assert_int_equal(check(run, n), 20);
    assert_int_equal(ckpt_open(&c, dir, &err), 0);
    assert_int_equal(ckpt_meta(c)->update, 19);
    assert_int_equal(ckpt_meta(c)->samples, 160);
    assert_int_equal(ckpt_meta(c)->applied, 152);
    assert_true(ckpt_meta(c)->seed == 0xfedcba9876543210u);
    assert_true(ckpt_meta(c)->loss == 0.1 && isnan(ckpt_meta(c)->valid_loss));
    assert_string_equal(ckpt_meta(c)->config, "[run]\nseed = \"7\"\n");
    assert_string_equal(ckpt_meta(c)->mesh, "data=3");
    assert_int_equal(ckpt_tensors(c, &list), TENSORS);
    assert_string_equal(list[0].name, "embed.w");
    assert_true(list[0].ndim == 2 && list[0].shape[0] == 7 && list[0].shape[1] == 5);
    ckpt_close(c);
    assert_false(exists(dir, ".step-20.tmp"));
    assert_false(exists(dir, ".seen"));
}

static int same_file(const char *a, const char *b)
{
    static char text[2][1 << 16];
    size_t n[2];

    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(i ? b : a, "r");

        assert_non_null(f);
        n[i] = fread(text[i], 1, sizeof text[i], f);
        fclose(f);
    }
    return n[0] > 0 && n[0] == n[1] && memcmp(text[0], text[1], n[0]) == 0;
}

/* From 3 ranks to 2 and back to 3: the files are byte-equal. */
static void there_and_back(void **state)
{
    static const char *const files[] = {"manifest.json", "rank-0.safetensors", "rank-1.safetensors",
                                        "rank-2.safetensors"};
    struct err err;
    char two[300], three[300], a[400], b[400];

    (void)state;
    snprintf(two, sizeof two, "%s/two", run);
    snprintf(three, sizeof three, "%s/three", run);
    assert_int_equal(save(dir, 3, 5, 0, &err), 1);
    assert_int_equal(save_from(dir, two, 2, 5, 0, &err), 1);
    assert_int_equal(save_from(two, three, 3, 5, 0, &err), 1);
    for (int i = 0; i < 4; i++) {
        snprintf(a, sizeof a, "%s/step-5/%s", dir, files[i]);
        snprintf(b, sizeof b, "%s/step-5/%s", three, files[i]);
        assert_true(same_file(a, b));
    }
}

static void keeps_the_newest(void **state)
{
    struct err err;

    (void)state;
    for (int64_t step = 1; step <= 4; step++)
        assert_int_equal(save(dir, 2, step, 2, &err), 1);
    assert_false(exists(dir, "step-1"));
    assert_false(exists(dir, "step-2"));
    assert_true(exists(dir, "step-3"));
    assert_int_equal(check(dir, 1), 4);
    /* A run that went back to an earlier step: its save is the newest, and the same step is written
     * anew. */
    assert_int_equal(save(dir, 1, 2, 2, &err), 1);
    assert_int_equal(check(dir, 2), 2);
    assert_int_equal(save(dir, 3, 2, 2, &err), 1);
    assert_int_equal(check(dir, 2), 2);
    assert_true(exists(dir, "step-4"));
}

static void latest_is_broken(void **state)
{
    struct err err;
    char path[400];

    (void)state;
    assert_int_equal(save(dir, 2, 1, 0, &err), 1);
    assert_int_equal(save(dir, 2, 2, 0, &err), 1);
    snprintf(path, sizeof path, "%s/step-2/rank-1.safetensors", dir);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(check(run, 1), 1);
    snprintf(path, sizeof path, "%s/latest", dir);
    unlink(path);
    assert_int_equal(check(run, 1), 1);
}

/* Saves step 2 over step 1 with three ranks; the exit status of faulty_save. */
static int save_main(const char *where)
{
    struct err err = ERR_INIT;
    int rc = save(where, 3, 2, 0, &err);

    if (rc < 0 && !strstr(err.text, "No space left on device"))
        return 10;
    if (rc < 0 && strstr(err.text, "was not written") &&
        !strstr(err.text, "the older one of step 1 is whole") &&
        !strstr(err.text, "the older one of step 2 is whole"))
        return 11;
    return rc < 0 ? 1 : 0;
}

static int hangs; /* faulty_save runs hang_main */

/* That in a program of its own, for the countdowns are read once in a process. */
static int faulty_save(const char *fault)
{
    pid_t pid = fork();
    int status = 0;

    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("DS_FAULT", fault, 1);
        execl("/proc/self/exe", "test_ckpt", dir, hangs ? "hangs" : (char *)NULL, (char *)NULL);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Every countdown from 1 until the save gets through. Returns how many failed. */
static int all_countdowns(const char *name, const char *action, int wanted_status)
{
    struct err err;
    char fault[64], latest[400];
    int n = 1;

    for (;; n++) {
        int status;

        remove_all(dir);
        assert_int_equal(save(dir, 2, 1, 0, &err), 1);
        snprintf(fault, sizeof fault, "%s:%d:%s", name, n, action);
        status = faulty_save(fault);
        if (status == 0)
            break;
        assert_int_equal(status, wanted_status);
        assert_in_range(check(run, 2), 1, 2);
        snprintf(latest, sizeof latest, "%s/step-1", dir);
        assert_int_equal(check(latest, 1), 1);
        assert_int_equal(save(dir, 1, 3, 1, &err), 1); /* and the next save works and clears up */
        assert_false(exists(dir, ".step-2.tmp"));
        assert_int_equal(check(run, 1), 3);
    }
    assert_int_equal(check(run, 2), 2);
    return n - 1;
}

static void full_disk_anywhere(void **state)
{
    (void)state;
    assert_int_equal(all_countdowns("write", "ENOSPC", 1),
                     6); /* .seen, 3 files, manifest, latest */
    assert_int_equal(all_countdowns("fsync", "ENOSPC", 1), 9);  /* these and 3 folders */
    assert_int_equal(all_countdowns("rename", "ENOSPC", 1), 2); /* step folder, latest */
}

static void killed_anywhere(void **state)
{
    (void)state;
    assert_int_equal(all_countdowns("write", "KILL", 128 + 9), 6);
    assert_int_equal(all_countdowns("fsync", "KILL", 128 + 9), 9);
    assert_int_equal(all_countdowns("rename", "KILL", 128 + 9), 2);
}

/* Ten minutes, of which no wait takes more than seconds: in the file, and in the folder. */
static void a_disk_that_hangs_holds_nobody(void **state)
{
    (void)state;
    hangs = 1;
    assert_int_equal(faulty_save("fsync:2:600000"), 0);
    assert_int_equal(faulty_save("fsync:3:600000"), 0);
    hangs = 0;
}

/* Step 2 written anew where two folders cannot change places at once: whatever stops it, a whole
 * step 2 is there again when the next save begins, and after an error at once. */
static void the_same_step_stays_whole(void **state)
{
    static const char *const action[] = {"ENOSPC", "KILL"};
    struct err err;
    char fault[64], two[400];

    (void)state;
    snprintf(two, sizeof two, "%s/step-2", dir);
    for (int a = 0; a < 2; a++)
        for (int n = 1;; n++) {
            int status;

            remove_all(dir);
            assert_int_equal(save(dir, 2, 1, 0, &err), 1);
            assert_int_equal(save(dir, 2, 2, 0, &err), 1);
            snprintf(fault, sizeof fault, "exchange:1,rename:%d:%s", n, action[a]);
            status = faulty_save(fault);
            if (status == 0) {
                assert_int_equal(n, 5); /* the try to exchange, two names, latest */
                break;
            }
            assert_int_equal(status, a ? 128 + 9 : 1);
            if (!a)
                assert_int_equal(check(two, 1), 2);
            assert_int_equal(save(dir, 1, 3, 0, &err), 1);
            assert_int_equal(check(two, 1), 2);
            assert_false(exists(dir, "step-2.old"));
        }
}

/* Opens and verifies by ckpt_main with stderr in a file. */
static int verify(const char *path)
{
    char *argv[] = {(char *)"ckpt", (char *)"verify", (char *)path, NULL};
    int keep_out = dup(1), keep_err = dup(2), fd = open("/dev/null", O_WRONLY), rc;

    dup2(fd, 1);
    dup2(fd, 2);
    rc = ckpt_main(3, argv);
    fflush(stdout);
    dup2(keep_out, 1);
    dup2(keep_err, 2);
    close(fd);
    close(keep_out);
    close(keep_err);
    return rc;
}

static void no_damaged_byte_goes_unseen(void **state)
{
    static const char *const files[] = {"manifest.json", "rank-0.safetensors",
                                        "rank-1.safetensors"};
    struct err err;
    char folder[400], path[500];

    (void)state;
    assert_int_equal(save(dir, 2, 1, 0, &err), 1);
    snprintf(folder, sizeof folder, "%s/step-1", dir);
    assert_int_equal(verify(folder), 0);
    for (int f = 0; f < 3; f++) {
        struct stat st;
        int fd;

        snprintf(path, sizeof path, "%s/%s", folder, files[f]);
        fd = open(path, O_RDWR);
        assert_true(fd >= 0 && fstat(fd, &st) == 0);
        for (off_t i = 0; i < st.st_size; i++) {
            unsigned char c, flipped;

            assert_int_equal(pread(fd, &c, 1, i), 1);
            flipped = (unsigned char)(c ^ 1u << (i % 8));
            assert_int_equal(pwrite(fd, &flipped, 1, i), 1);
            if (verify(folder) == 0)
                fail_msg("%s: byte %ld flipped was not seen", files[f], (long)i);
            assert_int_equal(pwrite(fd, &c, 1, i), 1);
        }
        for (off_t n = 0; n < st.st_size; n += 61) {
            char *whole = xmalloc((size_t)st.st_size);

            assert_int_equal(pread(fd, whole, (size_t)st.st_size, 0), st.st_size);
            assert_int_equal(ftruncate(fd, n), 0);
            assert_int_not_equal(verify(folder), 0);
            assert_int_equal(pwrite(fd, whole, (size_t)st.st_size, 0), st.st_size);
            free(whole);
        }
        close(fd);
        assert_int_equal(verify(folder), 0);
    }
}

/* Reads the checkpoint as n ranks do, each its share. How many of them were refused. */
static int refused(int n)
{
    int count = 0;

    for (int r = 0; r < n; r++) {
        struct err err = ERR_INIT;
        struct ckpt *c;
        struct ckpt_entry own[TENSORS];
        float room[256];

        if (ckpt_open(&c, dir, &err) < 0)
            fail_msg("%s", err.text);
        share(r, n, own, room);
        if (ckpt_read(c, own, TENSORS, &err) < 0) {
            assert_true(has(err.text, "is damaged (its hash differs)"));
            count++;
        }
        ckpt_close(c);
    }
    return count;
}

/* Nor when it is read by other ranks than wrote it, each a part of a fragment. */
static void no_damaged_byte_is_resumed_from(void **state)
{
    struct err err;
    struct stat st;
    char path[500];
    int fd;

    (void)state;
    assert_int_equal(save(dir, 1, 1, 0, &err), 1);
    snprintf(path, sizeof path, "%s/step-1/rank-0.safetensors", dir);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(refused(3), 0);
    assert_int_equal(verify(path), 0); /* the file alone */
    for (off_t i = st.st_size - (35 + 6 + 24 + 1) * 2 * 4; i < st.st_size; i++) {
        unsigned char c, flipped;

        assert_int_equal(pread(fd, &c, 1, i), 1);
        flipped = (unsigned char)(c ^ 1u << (i % 8));
        assert_int_equal(pwrite(fd, &flipped, 1, i), 1);
        if (refused(1) != 1 || refused(3) < 1 || verify(path) == 0)
            fail_msg("byte %ld flipped was read", (long)i);
        assert_int_equal(pwrite(fd, &c, 1, i), 1);
    }
    close(fd);
}

static void errors_say_what(void **state)
{
    struct err err;
    struct ckpt *c;
    struct ckpt_entry e;
    float room[64];
    char path[500];

    (void)state;
    assert_int_equal(ckpt_open(&c, "no/such/folder", &err), -1);
    assert_true(has(err.text, "no/such/folder: No such file or directory"));
    assert_int_equal(ckpt_open(&c, run, &err), -1);
    assert_true(has(err.text, "holds no checkpoint"));
    assert_int_equal(save(dir, 2, 1, 0, &err), 1);
    snprintf(path, sizeof path, "%s/step-1/rank-0.safetensors", dir);
    assert_int_equal(ckpt_open(&c, path, &err), -1);
    assert_true(has(err.text, "is not a folder"));

    assert_int_equal(ckpt_open(&c, dir, &err), 0);
    e = entry_of(0);
    e.data = room;
    e.name = "nobody";
    assert_int_equal(ckpt_read(c, &e, 1, &err), -1);
    assert_true(has(err.text, "has no tensor nobody|w"));
    e = entry_of(0);
    e.data = room;
    e.shape[0] = 5;
    e.shape[1] = 7;
    assert_int_equal(ckpt_read(c, &e, 1, &err), -1);
    assert_true(has(err.text, "embed.w|w is 7x5 in the checkpoint and 5x7 here"));
    ckpt_close(c);

    unlink(path);
    assert_int_equal(ckpt_open(&c, dir, &err), -1);
    assert_true(has(err.text, "rank-0.safetensors cannot be opened"));
    assert_int_equal(save("/dev/null/x", 2, 1, 0, &err), -1);
    assert_true(has(err.text, "/dev/null"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(three_ranks_to_any, setup, teardown),
        cmocka_unit_test_setup_teardown(there_and_back, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_the_newest, setup, teardown),
        cmocka_unit_test_setup_teardown(latest_is_broken, setup, teardown),
        cmocka_unit_test_setup_teardown(full_disk_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_hangs_holds_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(the_same_step_stays_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(no_damaged_byte_goes_unseen, setup, teardown),
        cmocka_unit_test_setup_teardown(no_damaged_byte_is_resumed_from, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_say_what, setup, teardown),
    };

    if (argc > 1)
        return argc == 2 ? save_main(argv[1]) : hang_main(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
