/* Judges a model trained on text: an order-4 byte model with Witten-Bell smoothing, fitted to the same split
 * of the same job, gives the loss to beat; a sample is looked at for words that the text has and for runs
 * copied from it.
 *
 *   judge JOB.ini                       prints the byte model's loss (nats a byte) on the validation split
 *   judge JOB.ini --sample FILE         and the share of its words of four letters and more that occur in
 *                                       the text, and the longest run of bytes that the text has too
 *
 * Witten and Bell 1991, method C: P_k(b|c) = (n(cb) + t(c) P_{k-1}(b)) / (n(c) + t(c)), t(c) the number of
 * different bytes seen after c; P_{-1} = 1/256. Contexts begin with their sample, as the trained model's do.
 */
#include "engine/base/buf.h"
#include "engine/base/job.h"
#include "engine/data/data.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDER 4

struct cell {
    uint64_t key; /* length of the gram + 1 in the top byte, then its bytes; 0: empty */
    uint32_t count, distinct;
};

struct table {
    struct cell *cell;
    uint64_t size, used;
};

static uint64_t gram_key(const int32_t *end, int n)
{
    uint64_t key = (uint64_t)(n + 1) << 56;

    for (int i = 0; i < n; i++)
        key |= (uint64_t)(end[-i] & 255) << (8 * i);
    return key;
}

static struct cell *find(struct table *t, uint64_t key)
{
    uint64_t i = (key * 0x9e3779b97f4a7c15u) >> 20 & (t->size - 1);

    while (t->cell[i].key && t->cell[i].key != key)
        i = (i + 1) & (t->size - 1);
    return &t->cell[i];
}

static void grow(struct table *t)
{
    struct table bigger = {xcalloc(t->size ? t->size * 2 : 1 << 16, sizeof *t->cell),
                           t->size ? t->size * 2 : 1 << 16, t->used};

    for (uint64_t i = 0; i < t->size; i++)
        if (t->cell[i].key)
            *find(&bigger, t->cell[i].key) = t->cell[i];
    free(t->cell);
    *t = bigger;
}

static struct cell *add(struct table *t, uint64_t key)
{
    struct cell *c;

    if (t->used * 2 >= t->size)
        grow(t);
    c = find(t, key);
    if (!c->key) {
        c->key = key;
        t->used++;
    }
    return c;
}

/* One window: text[0..T] with text[i+1] predicted from at most ORDER bytes before it. */
static void fit(struct table *t, const int32_t *text, int64_t T)
{
    for (int64_t i = 1; i <= T; i++)
        for (int k = 0; k <= ORDER && k <= i; k++) {
            struct cell *gram = add(t, gram_key(text + i, k + 1));
            int is_new = gram->count++ == 0;
            struct cell *context = add(t, gram_key(text + i - 1, k) | 1ull << 63);

            context->count++;
            context->distinct += (uint32_t)is_new;
        }
}

static double probability(struct table *t, const int32_t *text, int64_t i)
{
    double p = 1.0 / 256;

    for (int k = 0; k <= ORDER && k <= i; k++) {
        const struct cell *c = find(t, gram_key(text + i - 1, k) | 1ull << 63);
        const struct cell *g = find(t, gram_key(text + i, k + 1));

        if (!c->key)
            break;
        p = ((g->key ? g->count : 0) + c->distinct * p) / ((double)c->count + c->distinct);
    }
    return p;
}

static void window(const struct data *d, enum data_split split, uint64_t p, int64_t T, int32_t *text)
{
    int32_t *pos = xcalloc((size_t)T, 4), *doc = xcalloc((size_t)T, 4), *target = xcalloc((size_t)T, 4);
    struct err err = ERR_INIT;

    if (data_sample(d, split, p, text, target, pos, doc, &err) < 0) {
        fprintf(stderr, "judge: %s\n", err.text);
        exit(1);
    }
    text[T] = target[T - 1] < 0 ? 0 : target[T - 1];
    free(pos);
    free(doc);
    free(target);
}

static double byte_model(const struct data *d, int64_t T, int64_t eval_samples, struct buf *all)
{
    int32_t *text = xcalloc((size_t)T + 1, sizeof *text);
    struct table t = {0};
    int64_t n = data_samples(d, DATA_VALID), count = 0;
    double sum = 0;

    grow(&t);
    for (int64_t p = 0; p < data_samples(d, DATA_TRAIN); p++) {
        window(d, DATA_TRAIN, (uint64_t)p, T, text);
        fit(&t, text, T);
        for (int64_t i = 0; i <= T; i++)
            buf_addc(all, (char)text[i]);
        buf_addc(all, 0); /* no run goes on from one window to the next */
    }
    if (eval_samples > 0 && eval_samples < n)
        n = eval_samples;
    for (int64_t p = 0; p < n; p++) {
        window(d, DATA_VALID, (uint64_t)p, T, text);
        for (int64_t i = 1; i <= T; i++, count++)
            sum -= log(probability(&t, text, i));
    }
    free(text);
    free(t.cell);
    return sum / (double)count;
}

/* ---- the sample ---- */

static int word_in(const struct buf *text, const char *word, size_t n)
{
    const char *p = text->data, *end = text->data + text->len;

    while ((p = memmem(p, (size_t)(end - p), word, n))) {
        int starts = p == text->data || !isalpha((unsigned char)p[-1]);

        if (starts && (p + n == end || !isalpha((unsigned char)p[n])))
            return 1;
        p++;
    }
    return 0;
}

static void judge_words(const struct buf *text, const char *sample, size_t n)
{
    int words = 0, known = 0;

    for (size_t i = 0; i < n;) {
        size_t j = i;

        while (j < n && isalpha((unsigned char)sample[j]))
            j++;
        if (j - i >= 4 && j < n) { /* the last word may be cut */
            words++;
            known += word_in(text, sample + i, j - i);
        }
        i = j > i ? j : i + 1;
    }
    printf("words of four letters and more: %d, in the text: %.1f %%\n", words,
           words ? 100.0 * known / words : 0.0);
}

static void judge_copies(const struct buf *text, const char *sample, size_t n)
{
    size_t longest = 0;

    for (size_t i = 0; i + longest < n; i++)
        while (i + longest < n && memmem(text->data, text->len, sample + i, longest + 1))
            longest++;
    printf("longest run that the text has too: %zu bytes\n", longest);
}

static int read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    char block[4096];
    size_t n;

    if (!f)
        return -1;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        buf_add(out, block, n);
    fclose(f);
    return 0;
}

int main(int argc, char **argv)
{
    struct settings_rows rows = {0};
    struct settings s;
    struct settings *tables[1] = {&s};
    struct job job;
    struct data *d;
    struct err err = ERR_INIT;
    struct buf text = BUF_INIT, sample = BUF_INIT;

    if (argc != 2 && (argc != 4 || strcmp(argv[2], "--sample"))) {
        fprintf(stderr, "usage: judge JOB.ini [--sample FILE]\n");
        return 2;
    }
    settings_init(&s, job_table, job_table_n, &job);
    if (job_read(&rows, argv[1], &err) < 0 ||
        settings_apply(tables, 1, &rows, "model.", NULL, &err) < 0 || data_open(&d, &job, 0, &err) < 0) {
        fprintf(stderr, "judge: %s\n", err.text);
        return 1;
    }
    printf("order-4 byte model (Witten-Bell): %.4f nats a byte on the validation split\n",
           byte_model(d, job.seq_len, job.eval_samples, &text));
    if (argc == 4) {
        if (read_file(argv[3], &sample) < 0) {
            fprintf(stderr, "judge: %s: %m\n", argv[3]);
            return 1;
        }
        judge_words(&text, buf_str(&sample), sample.len);
        judge_copies(&text, buf_str(&sample), sample.len);
    }
    data_close(d);
    settings_clear(&s);
    settings_rows_clear(&rows);
    buf_clear(&text);
    buf_clear(&sample);
    return 0;
}
