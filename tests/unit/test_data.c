/* Token files and samples. The windows, targets, positions and documents below are worked out by hand
 * on texts of a few bytes. */
#include "engine/data/data.h"

#include "engine/base/buf.h"
#include "engine/data/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static int make_dir(void **state)
{
    strcpy(dir, "/tmp/ds-data-XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return chdir("/") || system(command);
}

static void put(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(name, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

/* A token file of n ids with any header. */
static void put_bin(const char *name, uint32_t magic, uint32_t version, uint32_t count, int width,
                    const uint32_t *id, int n)
{
    uint8_t b[2048] = {0};
    uint32_t head[3] = {magic, version, count};

    memcpy(b, head, sizeof head);
    for (int i = 0; i < n; i++)
        memcpy(b + 1024 + i * width, &id[i], (size_t)width);
    put(name, b, 1024 + (size_t)(n * width));
}

static struct job job_of(const char *train, int64_t seq_len)
{
    return (struct job){.train = (char *)train, .seq_len = seq_len, .doc_token = -1, .seed = 7};
}

static struct data *open_job(const struct job *job)
{
    struct data *d = NULL;
    struct err err = ERR_INIT;

    if (data_open(&d, job, 0, &err))
        fail_msg("%s", err.text);
    return d;
}

/* "token/target/pos/doc": one letter or number each. */
static void check_sample(const struct data *d, enum data_split split, uint64_t p, int T,
                         const char *token, const int *target, const int *pos, const int *doc)
{
    int32_t a[16], b[16], c[16], e[16];
    struct err err = ERR_INIT;

    assert_int_equal(data_sample(d, split, p, a, b, c, e, &err), 0);
    for (int i = 0; i < T; i++) {
        assert_int_equal(a[i], token[i]);
        assert_int_equal(b[i], target[i]);
        assert_int_equal(c[i], pos[i]);
        assert_int_equal(e[i], doc[i]);
    }
}

/* 11 tokens, T = 4: floor(10/4) = 2 windows, "abcd" -> "bcde" and "efgh" -> "fghi"; j and k are left. */
static void test_windows(void **state)
{
    static const int pos[] = {0, 1, 2, 3}, doc[] = {0, 0, 0, 0};
    struct job job = job_of("t.txt", 4);
    struct data *d;

    put_text("t.txt", "abcdefghijk");
    job.valid = (char *)"t.txt";
    d = open_job(&job);
    assert_int_equal(data_tokens(d, DATA_VALID), 11);
    assert_int_equal(data_samples(d, DATA_VALID), 2);
    assert_int_equal(data_vocab(d), 256);
    check_sample(d, DATA_VALID, 0, 4, "abcd", (int[]){'b', 'c', 'd', 'e'}, pos, doc);
    check_sample(d, DATA_VALID, 1, 4, "efgh", (int[]){'f', 'g', 'h', 'i'}, pos, doc);
    data_close(d);
    put_text("t.txt", "abcdefghi"); /* 9 tokens are just enough for two */
    d = open_job(&job);
    assert_int_equal(data_samples(d, DATA_VALID), 2);
    data_close(d);
}

/* Two texts "abc" and "de", and a third "fgh": the window "abcdefg" (T = 7) with the mask: d begins a
 * document at 3, f one at 5. */
static void test_documents(void **state)
{
    struct job job = job_of("[123].txt", 7);
    struct data *d;

    put_text("1.txt", "abc");
    put_text("2.txt", "de");
    put_text("3.txt", "fgh");
    job.valid = job.train;
    d = open_job(&job);
    check_sample(d, DATA_VALID, 0, 7, "abcdefg", (int[]){'b', 'c', 'd', 'e', 'f', 'g', 'h'},
                 (int[]){0, 1, 2, 3, 4, 5, 6}, (int[]){0, 0, 0, 0, 0, 0, 0});
    data_close(d);
    job.doc_mask = 1;
    d = open_job(&job);
    check_sample(d, DATA_VALID, 0, 7, "abcdefg", (int[]){'b', 'c', -1, 'e', -1, 'g', 'h'},
                 (int[]){0, 1, 2, 0, 1, 0, 1}, (int[]){0, 0, 0, 3, 3, 5, 5});
    data_close(d);
}

/* The id 0 begins a document: 0 a b 0 c d e, T = 3. The second window starts at the second 0 (its first
 * token has no target before it), the first one ends in front of it. */
static void test_doc_token(void **state)
{
    static const uint32_t id[] = {0, 'a', 'b', 0, 'c', 'd', 'e'};
    struct job job = job_of("d.bin", 3);
    struct data *d;

    put_bin("d.bin", 20240520, 1, 7, 2, id, 7);
    job.valid = job.train;
    job.doc_mask = 1;
    job.doc_token = 0;
    d = open_job(&job);
    assert_int_equal(data_vocab(d), 'e' + 1);
    check_sample(d, DATA_VALID, 0, 3, "\0ab", (int[]){'a', 'b', -1}, (int[]){0, 1, 2},
                 (int[]){0, 0, 0});
    check_sample(d, DATA_VALID, 1, 3, "\0cd", (int[]){'c', 'd', 'e'}, (int[]){0, 1, 2},
                 (int[]){0, 0, 0});
    data_close(d);
}

/* A shard's beginning begins no document: shards are cut anywhere. */
static void test_shards_join(void **state)
{
    static const uint32_t one[] = {70000, 2}, two[] = {3, 4, 5};
    struct job job = job_of("s_*.bin", 4);
    struct data *d;

    put_bin("s_0.bin", 20240801, 7, 2, 4, one, 2);
    put_bin("s_1.bin", 20240801, 7, 3, 4, two, 3);
    job.doc_mask = 1;
    job.doc_token = 9;
    d = open_job(&job);
    assert_int_equal(data_vocab(d), 70001);
    assert_int_equal(data_samples(d, DATA_TRAIN), 1);
    int32_t token[4], target[4], pos[4], doc[4];
    struct err err = ERR_INIT;

    assert_int_equal(data_sample(d, DATA_TRAIN, 0, token, target, pos, doc, &err), 0);
    assert_int_equal(token[0], 70000);
    assert_int_equal(token[3], 4);
    assert_int_equal(target[1], 3);
    assert_int_equal(target[3], 5);
    assert_int_equal(doc[3], 0);
    data_close(d);
}

/* 100 bytes, a quarter held back: 75 to train on, 25 to validate, and no window sees both. */
static void test_split(void **state)
{
    struct job job = job_of("q.txt", 6);
    int32_t token[6], target[6], pos[6], doc[6];
    struct err err = ERR_INIT;
    struct data *d;
    char text[101];

    for (int i = 0; i < 100; i++)
        text[i] = (char)(i < 75 ? 't' : 'v');
    text[100] = 0;
    put_text("q.txt", text);
    job.valid_split = 0.25;
    d = open_job(&job);
    assert_int_equal(data_tokens(d, DATA_TRAIN), 75);
    assert_int_equal(data_tokens(d, DATA_VALID), 25);
    assert_int_equal(data_samples(d, DATA_TRAIN), 12);
    assert_int_equal(data_samples(d, DATA_VALID), 4);
    for (uint64_t p = 0; p < 12; p++) {
        assert_int_equal(data_sample(d, DATA_TRAIN, p, token, target, pos, doc, &err), 0);
        for (int i = 0; i < 6; i++)
            assert_true(token[i] == 't' && target[i] == 't');
    }
    for (uint64_t p = 0; p < 4; p++) {
        assert_int_equal(data_sample(d, DATA_VALID, p, token, target, pos, doc, &err), 0);
        for (int i = 0; i < 6; i++)
            assert_true(token[i] == 'v' && target[i] == 'v');
    }
    assert_int_equal(data_sample(d, DATA_VALID, 4, token, target, pos, doc, &err), -1);
    data_close(d);
}

/* Laws: a pass has every window once; passes and seeds differ; a second opening gives the same. */
static void test_order(void **state)
{
    struct job job = job_of("o.txt", 1);
    int32_t token, target, pos, doc, again;
    struct err err = ERR_INIT;
    struct data *d, *e, *f;
    char text[202];
    int moved = 0, reseeded = 0;

    for (int i = 0; i < 201; i++)
        text[i] = (char)(i + 1);
    put("o.txt", text, 201);
    d = open_job(&job);
    e = open_job(&job);
    job.seed = 8;
    f = open_job(&job);
    assert_int_equal(data_samples(d, DATA_TRAIN), 200);
    for (uint64_t pass = 0; pass < 3; pass++) {
        unsigned char seen[256] = {0};

        for (uint64_t i = 0; i < 200; i++) {
            uint64_t p = pass * 200 + i;

            assert_int_equal(data_sample(d, DATA_TRAIN, p, &token, &target, &pos, &doc, &err), 0);
            assert_int_equal(target, token + 1);
            assert_int_equal(seen[token]++, 0);
            data_sample(e, DATA_TRAIN, p, &again, &target, &pos, &doc, &err);
            assert_int_equal(again, token);
            data_sample(f, DATA_TRAIN, p, &again, &target, &pos, &doc, &err);
            reseeded += again != token;
            data_sample(d, DATA_TRAIN, i, &again, &target, &pos, &doc, &err);
            moved += pass && again != token;
        }
    }
    assert_true(moved > 300);    /* of 400; equal by chance about 2 times */
    assert_true(reseeded > 500); /* of 600 */
    data_close(d);
    data_close(e);
    data_close(f);
}

static void test_hash(void **state)
{
    struct job job = job_of("h.txt", 2);
    struct data *d;
    uint64_t h;

    put_text("h.txt", "abcdef");
    d = open_job(&job);
    h = data_hash(d);
    data_close(d);
    job.train = xasprintf("%s/h.txt", dir); /* the folder may differ between nodes */
    d = open_job(&job);
    assert_true(data_hash(d) == h);
    data_close(d);
    put_text("h.txt", "abcdefg");
    d = open_job(&job);
    assert_true(data_hash(d) != h);
    data_close(d);
    put_text("h.txt", "abcdeg"); /* as long as the first */
    d = open_job(&job);
    assert_true(data_hash(d) != h);
    data_close(d);
    free(job.train);
}

/* The pages behind a mapped file's new end are gone: SIGBUS for who reads them. */
static void test_cut_short(void **state)
{
    struct job job = job_of("cut.txt", 1);
    int32_t token, target, pos, doc;
    struct err err = ERR_INIT;
    char *text = xmalloc(100000);
    struct data *d;
    int good = 0, bad = 0;

    memset(text, 'a', 100000);
    put("cut.txt", text, 100000);
    d = open_job(&job);
    assert_int_equal(truncate("cut.txt", 50000), 0);
    for (uint64_t i = 0; i < 99999; i += 7) {
        if (data_sample(d, DATA_TRAIN, i, &token, &target, &pos, &doc, &err) == 0) {
            good++;
            continue;
        }
        bad++;
        assert_int_equal(err_class(&err), ERR_CLASS_INPUT);
        assert_non_null(strstr(err.text, "cut.txt was cut short"));
    }
    assert_true(good > 0 && bad > 0);
    data_close(d);
    free(text);
}

static void refuse(const struct job *job, int64_t vocab, const char *name, const char *why,
                   const char *remedy)
{
    struct data *d = NULL;
    struct err err = ERR_INIT;

    assert_int_equal(data_open(&d, job, vocab, &err), -1);
    assert_int_equal(err_class(&err), ERR_CLASS_INPUT);
    if (!strstr(err.text, name) || !strstr(err.text, why) || !strstr(err.text, remedy) ||
        strchr(err.text, '\n'))
        fail_msg("%s", err.text);
    assert_null(d);
}

static void refuse_file(const char *name, const char *why, const char *remedy)
{
    struct job job = job_of(name, 1);

    refuse(&job, 0, name, why, remedy);
}

static void test_bad_files(void **state)
{
    static const uint32_t id[] = {1, 2, 3};

    refuse_file("no.txt", "No such file", "check the name");
    refuse_file("no*.txt", "no file matches", "check the pattern");
    mkdir("folder", 0755);
    refuse_file("folder", "a folder", "DIR/*.txt");
    put("empty.txt", "", 0);
    refuse_file("empty.txt", "is empty", "leave it out");
    put("nul.txt", "ab\0cd", 5);
    refuse_file("nul.txt", "byte 2 is zero", "kind = text");
    put("a.txt.gz", "\x1f\x8b\x08garbage", 10);
    refuse_file("a.txt.gz", "gzip data", "unpack it");
    put_text("plain.bin", "just text");
    refuse_file("plain.bin", "does not begin", "kind = text");
    put_text("x.bin", "abc");
    refuse_file("x.bin", "cut short", "copy it again");
    put_bin("head.bin", 20240520, 1, 3, 2, id, 3);
    assert_int_equal(truncate("head.bin", 1000), 0);
    refuse_file("head.bin", "cut short inside its header (1000 of 1024", "copy it again");
    put_bin("short.bin", 20240520, 1, 4, 2, id, 3);
    refuse_file("short.bin", "is cut short: its header counts 4 tokens and its size makes 3",
                "copy it again");
    put_bin("long.bin", 20240520, 1, 2, 2, id, 3);
    refuse_file("long.bin", "wrong size: its header counts 2 tokens and its size makes 3", "anew");
    put_bin("odd.bin", 20240801, 7, 3, 4, id, 3);
    assert_int_equal(truncate("odd.bin", 1024 + 11), 0);
    refuse_file("odd.bin", "makes 2 of 4 bytes and a part", "copy it again");
    put_bin("old.bin", 20240520, 2, 3, 2, id, 3);
    refuse_file("old.bin", "version 2", "version 1 is known");
    put_bin("llama.bin", 20240801, 1, 3, 4, id, 3);
    refuse_file("llama.bin", "version 1", "version 7 is known");
    put_bin("model.bin", 20240326, 3, 3, 4, id, 3);
    refuse_file("model.bin", "llm.c model", "token file");
    put_bin("big.bin", __builtin_bswap32(20240520), 1, 3, 2, id, 3);
    refuse_file("big.bin", "big-endian", "ds-launch data");
    put_bin("none.bin", 20240520, 1, 0, 2, id, 0);
    refuse_file("none.bin", "no tokens", "leave it out");
    put_bin("neg.bin", 20240801, 7, 1, 4, (uint32_t[]){0x80000000u}, 1);
    {
        struct job job = job_of("neg.bin, neg.bin", 1);

        refuse(&job, 0, "neg.bin", "no model has", "anew");
    }
    if (geteuid() != 0) {
        put_text("shut.txt", "abc");
        chmod("shut.txt", 0);
        refuse_file("shut.txt", "Permission denied", "permissions");
    }
}

static void test_bad_jobs(void **state)
{
    static const uint32_t id[] = {1, 50256, 3};
    struct job job = job_of("", 4);

    refuse(&job, 0, "train", "names no file", "write train = FILE");
    job.train = NULL;
    refuse(&job, 0, "train", "names no file", "write train = FILE");
    put_text("four.txt", "abcd");
    job.train = (char *)"four.txt";
    refuse(&job, 0, "train", "has 4 tokens and one sample of seq_len = 4 needs 5", "shorter seq_len");
    job.seq_len = 0;
    refuse(&job, 0, "seq_len", "is 0", "at least 1");
    job.seq_len = 2;
    refuse(&job, 255, "vocabulary", "255", "vocab_size = 256");
    job.valid_split = 0.25;
    refuse(&job, 0, "valid_split leaves 1 tokens", "seq_len = 2 needs 3", "valid_split = 0");
    job.valid_split = 1;
    refuse(&job, 0, "valid_split", "is 1", "from 0");
    job.valid_split = 0;
    put_bin("v.bin", 20240520, 1, 3, 2, id, 3);
    job.train = (char *)"v.bin";
    refuse(&job, 50256, "v.bin", "token 1 has id 50256", "vocab_size");
    job.train = (char *)"v.bin, four.txt";
    refuse(&job, 0, "four.txt", "holds text", "one kind");
    job.train = (char *)"four.txt";
    job.valid = (char *)"v.bin";
    refuse(&job, 0, "v.bin", "16-bit tokens", "one kind");
}

/* kind = text takes any bytes as they are; vocab equal to what is needed is enough. */
static void test_kind_text(void **state)
{
    static const uint32_t id[] = {1, 2, 3};
    struct job job = job_of("k.bin", 4);
    struct data *d;
    struct err err = ERR_INIT;

    put_bin("k.bin", 20240520, 1, 3, 2, id, 3);
    job.data_kind = DATA_TEXT;
    assert_int_equal(data_open(&d, &job, 256, &err), 0);
    assert_int_equal(data_tokens(d, DATA_TRAIN), 1024 + 6);
    data_close(d);
    data_close(NULL);
}

/* Past 2^31 tokens the header's 32 bits are the low ones of the count. */
static void test_large_counts(void **state)
{
    uint8_t head[BIN_HEADER_BYTES];
    struct bin_header h;
    struct err err = ERR_INIT;
    const uint64_t n = 5000000000u; /* 0x1_2A05F200 */

    bin_header_write(head, 2, (int64_t)n);
    assert_memory_equal(head + 8, "\x00\xf2\x05\x2a", 4);
    assert_int_equal(bin_header_read(&h, "F", head, sizeof head, 1024 + 2 * n, &err), 0);
    assert_true(h.tokens == (int64_t)n && h.width == 2);
    assert_int_equal(bin_header_read(&h, "F", head, sizeof head, 1024 + 2 * (n - 1), &err), -1);
    bin_header_write(head, 4, 3000000000);
    assert_memory_equal(head, "\xa1\xd9\x34\x01\x07\x00\x00\x00\x00\x5e\xd0\xb2", 12);
    assert_int_equal(bin_header_read(&h, "F", head, sizeof head, 1024 + 12000000000u, &err), 0);
    assert_int_equal(bin_header_read(&h, "F", head, sizeof head, 1024 + 4000u, &err), -1);
    assert_non_null(strstr(err.text, "is cut short: its header counts 3000000000 tokens"));
}

/* A mask that nothing decides would mask nothing; an id that no token has would begin nothing. */
static void test_documents_without_a_mark(void **state)
{
    static const uint32_t id[] = {0, 1, 2, 3, 4, 5};
    struct job text = job_of("one.txt", 2), ids = job_of("one.bin", 2);

    put_text("one.txt", "abcdefgh");
    put_bin("one.bin", 20240520, 1, 6, 2, id, 6);
    text.doc_token = 256;
    refuse(&text, 0, "doc_token", "is 256, and the ids of tokens end at 255", "");
    text.doc_mask = ids.doc_mask = 1;
    text.doc_token = -1;
    refuse(&text, 0, "doc_mask", "the training data is one text", "as doc_token");
    refuse(&ids, 0, "doc_mask", "token files have no marks", "as doc_token");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),      cmocka_unit_test(test_documents),
        cmocka_unit_test(test_documents_without_a_mark),
        cmocka_unit_test(test_doc_token),    cmocka_unit_test(test_shards_join),
        cmocka_unit_test(test_split),        cmocka_unit_test(test_order),
        cmocka_unit_test(test_hash),         cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_bad_jobs),     cmocka_unit_test(test_kind_text),
        cmocka_unit_test(test_large_counts), cmocka_unit_test(test_cut_short),
    };

    return cmocka_run_group_tests_name("data", tests, make_dir, remove_dir);
}
