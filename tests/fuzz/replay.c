/* The main program of every fuzz entry under make check: runs LLVMFuzzerTestOneInput over the files
 * of its corpus folder (tests/fuzz/corpus/NAME for fuzz_NAME, or the files given), then over
 * mutants of them from a fixed seed. A crash, a sanitizer's report or a hang is the failure. For
 * real fuzzing link the entry with clang -fsanitize=fuzzer instead. */
#include "tests/fuzz/fuzz.h"
#include "engine/base/buf.h"
#include "engine/base/rng.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUTANTS 2000 /* of each file */

static struct buf read_file(const char *path)
{
    struct buf b = BUF_INIT;
    char chunk[4096];
    size_t n;
    FILE *f = fopen(path, "rb");

    buf_reserve(&b, 0);
    while (f && (n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_add(&b, chunk, n);
    if (f)
        fclose(f);
    return b;
}

/* One to four changes: a byte set, a bit flipped, a piece dropped, a piece doubled. */
static void mutate(struct buf *b, uint32_t seed)
{
    for (uint32_t k = 0; k < 1 + seed % 4 && b->len; k++) {
        uint32_t key[2] = {seed, 7}, ctr[4] = {k, 0, 0, 0}, r[4];
        size_t at, n;

        philox4x32(ctr, key, r);
        at = r[0] % b->len;
        n = 1 + r[1] % (b->len - at < 16 ? b->len - at : 16);
        if (r[2] % 4 == 0) {
            b->data[at] = (char)r[3];
        } else if (r[2] % 4 == 1) {
            b->data[at] ^= (char)(1 << r[3] % 8);
        } else if (r[2] % 4 == 2) {
            memmove(b->data + at, b->data + at + n, b->len - at - n);
            b->len -= n;
        } else {
            char piece[16];

            memcpy(piece, b->data + at, n);
            buf_add(b, piece, n);
        }
    }
}

/* The entry gets its own exact allocation, so that reading one byte too far is seen. */
static void run(const void *data, size_t n)
{
    uint8_t *copy = xmalloc(n);

    memcpy(copy, data, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static void run_file(const char *path)
{
    struct buf seed = read_file(path), b = BUF_INIT;

    run(seed.data, seed.len);
    for (uint32_t i = 0; i < MUTANTS; i++) {
        buf_reset(&b);
        buf_add(&b, seed.data, seed.len);
        mutate(&b, i);
        run(b.data ? b.data : "", b.len);
    }
    buf_clear(&seed);
    buf_clear(&b);
}

static int run_corpus(const char *name)
{
    const char *top = getenv("top_srcdir");
    char *folder = xasprintf("%s/tests/fuzz/corpus/%s", top ? top : ".", name);
    DIR *d = opendir(folder);
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d))) {
        char *path = xasprintf("%s/%s", folder, e->d_name);

        if (e->d_name[0] != '.') {
            run_file(path);
            n++;
        }
        free(path);
    }
    if (d)
        closedir(d);
    free(folder);
    return n;
}

int main(int argc, char **argv)
{
    const char *base = strrchr(argv[0], '/'), *name = strstr(base ? base : argv[0], "fuzz_");
    int n = argc - 1;

    printf("1..1\n");
    fflush(stdout);
    alarm(300);
    for (int i = 1; i < argc; i++)
        run_file(argv[i]);
    if (argc == 1 && name)
        n = run_corpus(name + strlen("fuzz_"));
    printf("%sok 1 - %d files and %d mutants of each\n", n ? "" : "not ", n, MUTANTS);
    return n ? 0 : 1;
}
