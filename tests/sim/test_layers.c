/* The laws of the built-in layers, on one rank, in both forms and both compute types (ENGINE 10 d,
 * e, f, h, k; gradients by finite differences; RECOMPUTE, restore, DX and DW apart). What the
 * numbers should be is said by another run of a different shape or order, or by differences of the
 * loss. */
#include "tests/sim/layer_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SEQ 20
#define VOCAB 83 /* odd, so that rows of logits are padded */

#define DROPOUT "embd_dropout = 0.1\nattn_dropout = 0.2\nresid_dropout = 0.1\n"
static const char gpt2[] = "[model]\nform = gpt2\nn_layer = 2\nn_head = 3\nn_embd = 48\n";
static const char gpt2_dropout[] =
    "[model]\nform = gpt2\nn_layer = 2\nn_head = 3\nn_embd = 48\n" DROPOUT;
static const char gpt2_plain[] =
    "[model]\nform = gpt2\nn_layer = 1\nn_head = 2\nn_embd = 30\n"
    "head_dim = 9\nffn_dim = 37\nbias = false\ntie_embedding = false\n";
static const char llama[] =
    "[model]\nform = llama\nn_layer = 2\nn_head = 6\nn_kv_head = 2\nn_embd = 48\n";
static const char llama_dropout[] =
    "[model]\nform = llama\nn_layer = 2\nn_head = 6\nn_kv_head = 2\nn_embd = 48\n" DROPOUT;
static const char llama_odd[] = "[model]\nform = llama\nn_layer = 1\nn_head = 3\nn_kv_head = 1\n"
                                "n_embd = 35\nhead_dim = 14\nffn_dim = 51\nbias = true\n"
                                "tie_embedding = true\n";

struct fixture {
    const char *text;
    enum ds_dtype dtype;
};

static struct harness *open_model(const struct fixture *f, int64_t B, int64_t T)
{
    struct harness *h = harness_create(f->text, f->dtype, VOCAB, SEQ);

    harness_randomize(h, 5, 0.15f);
    harness_shape(h, B, T);
    return h;
}

/* ---- all gradients as one array ---- */

struct flat {
    float *g;
    int64_t n;
};

static void append(const char *name, int ndim, float *w, float *grad, int64_t n, void *arg)
{
    struct flat *f = arg;

    (void)name;
    (void)ndim;
    (void)w;
    f->g = xrealloc(f->g, (size_t)(f->n + n) * sizeof *f->g);
    memcpy(f->g + f->n, grad, (size_t)n * sizeof *f->g);
    f->n += n;
}

static struct flat all_grads(struct harness *h)
{
    struct flat f = {0};

    harness_each(h, append, &f);
    return f;
}

static double relative(const float *a, const float *b, int64_t n)
{
    double d = 0, s = 0;

    for (int64_t i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += (double)b[i] * b[i];
    }
    return sqrt(d / s);
}

static void all_finite(const struct flat *f)
{
    for (int64_t i = 0; i < f->n; i++)
        if (!isfinite(f->g[i]))
            fail_msg("gradient %lld of %lld is not finite", (long long)i, (long long)f->n);
}

static double tolerance(enum ds_dtype dtype)
{
    return dtype == DS_F32 ? 2e-5 : 3e-2;
}

/* Forward and backward on poison; loss sum returned. */
static double pass(struct harness *h, const struct ds_batch *b, int apart)
{
    double loss[3] = {0};

    harness_poison(h, 1);
    harness_forward(h, DS_TRAIN, b, 0.01f, loss);
    harness_backward(h, b, 0.01f, 0, apart);
    harness_check_guards(h);
    assert_true(isfinite(loss[0]));
    return loss[0];
}

/* ---- (d) poison, repeatability, wants ---- */

static void poison_changes_nothing(void **state)
{
    const struct fixture *f = *state;
    struct harness *h = open_model(f, 3, SEQ);
    struct batch_mem m;
    struct flat a, b;
    double first, second;

    batch_create(&m, 3, SEQ, VOCAB, 1);
    m.target[4] = m.target[SEQ] = -1;
    first = pass(h, &m.b, 0);
    a = all_grads(h);
    all_finite(&a);
    guard_fill(&h->work, 0);
    second = pass(h, &m.b, 0);
    b = all_grads(h);
    assert_true(first == second);
    assert_memory_equal(a.g, b.g, (size_t)a.n * sizeof *a.g);
    free(b.g);

    pass(h, &m.b, 1);
    b = all_grads(h);
    assert_memory_equal(a.g, b.g, (size_t)a.n * sizeof *a.g);
    free(b.g);

    harness_backward(h, &m.b, 0.01f, 1, 0); /* once more on top */
    b = all_grads(h);
    for (int64_t i = 0; i < a.n; i++)
        a.g[i] *= 2;
    assert_true(relative(b.g, a.g, a.n) < 1e-5);
    free(a.g);
    free(b.g);
    batch_destroy(&m);
    harness_destroy(h);
}

/* ---- recompute, restore, evaluation ---- */

static char *copy_saved(const struct harness *h, size_t *bytes)
{
    struct buf all = BUF_INIT;

    for (int l = 0; l < h->model->n; l++) {
        for (int i = 0; i < h->mem[l].nsaved; i++)
            buf_add(&all, h->saved[l][i].data, h->saved[l][i].bytes);
        if (!(h->model->ops[l]->caps & DS_CAP_LOSS))
            buf_add(&all, h->y_mem[l].data, h->y_mem[l].bytes);
    }
    *bytes = all.len;
    return buf_detach(&all);
}

static void recompute_is_the_same(void **state)
{
    const struct fixture *f = *state;
    struct harness *h = open_model(f, 2, SEQ);
    struct batch_mem m;
    double loss[3] = {0}, again[3] = {0};
    size_t n;
    char *before, *after;

    batch_create(&m, 2, SEQ, VOCAB, 2);
    harness_poison(h, 1);
    harness_forward(h, DS_TRAIN, &m.b, 0.01f, loss);
    before = copy_saved(h, &n);
    harness_poison(h, 1);
    harness_forward(h, DS_RECOMPUTE, &m.b, 0.01f, again);
    after = copy_saved(h, &n);
    assert_memory_equal(before, after, n);
    assert_true(again[0] == 0 && again[1] == 0); /* the loss is not added again */
    free(before);
    free(after);
    batch_destroy(&m);
    harness_destroy(h);
}

static void restore_rebuilds_what_was_dropped(void **state)
{
    const struct fixture *f = *state;
    struct harness *h = open_model(f, 2, SEQ);
    struct batch_mem m;
    double loss[3] = {0};
    size_t n;
    char *before, *after;
    int dropped = 0;

    batch_create(&m, 2, SEQ, VOCAB, 2);
    harness_forward(h, DS_TRAIN, &m.b, 0.01f, loss);
    before = copy_saved(h, &n);
    for (int l = 0; l < h->model->n; l++) {
        void *saved[DS_MAX_SAVED], *w[DS_MAX_PARAMS];
        struct ds_call c = {.mode = DS_TRAIN, .batch = &m.b, .k = h->k, .w = w, .saved = saved};
        struct err err = ERR_INIT;

        for (int i = 0; i < h->model->nparams[l]; i++)
            w[i] = h->param[l][i].cast.data;
        for (int i = 0; i < h->mem[l].nsaved; i++) {
            saved[i] = h->saved[l][i].data;
            if (h->mem[l].saved[i].keep == DS_SAVE_DROP_SELECTIVE) {
                guard_poison(&h->saved[l][i]);
                dropped++;
            }
        }
        c.x = l ? &h->y[l - 1] : NULL;
        c.work = h->work.data;
        if (h->model->ops[l]->restore)
            assert_int_equal(h->model->ops[l]->restore(h->state[l], &c, &err), 0);
    }
    after = copy_saved(h, &n);
    assert_true(dropped > 0);
    assert_memory_equal(before, after, n);
    free(before);
    free(after);
    batch_destroy(&m);
    harness_destroy(h);
}

static void evaluation_is_training_without_dropout(void **state)
{
    const struct fixture *f = *state;
    struct harness *h = open_model(f, 2, SEQ);
    struct batch_mem m;
    double train[3] = {0}, eval[3] = {0};

    batch_create(&m, 2, SEQ, VOCAB, 3);
    m.target[3] = -1;
    harness_forward(h, DS_TRAIN, &m.b, 0.01f, train);
    harness_poison(h, 1);
    harness_forward(h, DS_EVAL, &m.b, 0, eval);
    harness_check_guards(h);
    assert_true(eval[1] == 2 * SEQ - 1 && train[1] == eval[1]);
    if (strstr(f->text, "dropout"))
        assert_true(fabs(train[0] - eval[0]) > 1e-4 * eval[0]);
    else
        assert_true(fabs(train[0] - eval[0]) <= 1e-6 * eval[0]);
    batch_destroy(&m);
    harness_destroy(h);
}

/* ---- finite differences ---- */

struct probe {
    struct harness *h;
    const struct ds_batch *b;
    int tensors;
};

static double loss_of(struct harness *h, const struct ds_batch *b)
{
    double loss[3] = {0};

    harness_sync(h);
    harness_forward(h, DS_TRAIN, b, 1, loss);
    return loss[0];
}

/* Along the gradient of one tensor the loss must change as its length says: a central difference of
 * second order and one of half the step, extrapolated. */
static void differences_agree(const char *name, int ndim, float *w, float *grad, int64_t n,
                              void *arg)
{
    struct probe *p = arg;
    float *origin = xcalloc((size_t)n, sizeof *origin);
    double length = 0, slope[2];

    (void)ndim;
    memcpy(origin, w, (size_t)n * sizeof *w);
    for (int64_t i = 0; i < n; i++)
        length += (double)grad[i] * grad[i];
    length = sqrt(length);
    for (int half = 0; half < 2; half++) {
        double step = (half ? 0.005 : 0.01), side[2];

        for (int s = 0; s < 2; s++) {
            for (int64_t i = 0; i < n; i++)
                w[i] = origin[i] + (float)((s ? -step : step) * grad[i] / length);
            side[s] = loss_of(p->h, p->b);
        }
        slope[half] = (side[0] - side[1]) / (2 * step);
    }
    memcpy(w, origin, (size_t)n * sizeof *w);
    slope[1] += (slope[1] - slope[0]) / 3;
    p->tensors++;
    if (!strstr(name, "qkv_bias.k") && fabs(slope[1] - length) > 5e-3 * length + 2e-3)
        fail_msg("along %s the loss changes by %.6g, its gradient says %.6g", name, slope[1],
                 length);
    free(origin);
}

static void gradients_are_differences(void **state)
{
    const struct fixture *f = *state;
    struct harness *h = open_model(f, 2, SEQ);
    struct batch_mem m;
    struct probe p = {h, &m.b, 0};
    double loss[3] = {0};

    batch_create(&m, 2, SEQ, VOCAB, 4);
    for (int i = 7; i < SEQ; i++) { /* two documents in sample 0 */
        m.doc[i] = 7;
        m.pos[i] -= 7;
    }
    harness_forward(h, DS_TRAIN, &m.b, 1, loss);
    harness_backward(h, &m.b, 1, 0, 0);
    harness_each(h, differences_agree, &p);
    assert_true(p.tensors > 8);
    batch_destroy(&m);
    harness_destroy(h);
}

/* ---- (e) causality, (f) documents, (k) length ---- */

/* Rows of the last activation before the head. */
static const char *last_rows(const struct harness *h, int64_t row, size_t *bytes)
{
    const struct ds_tensor *y = &h->y[h->model->n - 2];

    *bytes = (size_t)y->dim[2] * ds_dtype_bytes(y->dtype);
    return (const char *)y->data + (size_t)row * *bytes;
}

static void later_tokens_change_nothing_before(void **state)
{
    const struct fixture *f = *state;
    struct harness *h = open_model(f, 2, SEQ);
    struct batch_mem m;
    double loss[3] = {0};

    batch_create(&m, 2, SEQ, VOCAB, 5);
    for (int64_t j = 1; j < SEQ; j += 6) {
        size_t row;
        char *before;

        harness_forward(h, DS_TRAIN, &m.b, 1, loss);
        last_rows(h, 0, &row);
        before = xmalloc(2 * SEQ * row);
        memcpy(before, last_rows(h, 0, &row), 2 * SEQ * row);
        m.token[j] = (m.token[j] + 1) % VOCAB; /* of sample 0 */
        harness_forward(h, DS_TRAIN, &m.b, 1, loss);
        assert_memory_equal(before, last_rows(h, 0, &row), (size_t)j * row);
        assert_memory_not_equal(before + (size_t)j * row, last_rows(h, j, &row), row);
        assert_memory_equal(before + SEQ * row, last_rows(h, SEQ, &row), SEQ * row);
        free(before);
    }
    batch_destroy(&m);
    harness_destroy(h);
}

static void fill_document(struct batch_mem *to, int64_t at, const struct batch_mem *doc)
{
    for (int64_t i = 0; i < doc->b.T; i++) {
        to->token[at + i] = doc->token[i];
        to->target[at + i] = doc->target[i];
        to->pos[at + i] = (int32_t)i;
        to->doc[at + i] = (int32_t)at;
    }
}

static void packed_documents_are_alone(void **state)
{
    const struct fixture *f = *state;
    struct harness *h = open_model(f, 1, 13);
    struct batch_mem one, two, both;
    struct flat sum, got;
    double loss;

    batch_create(&one, 1, 13, VOCAB, 6);
    batch_create(&two, 1, 7, VOCAB, 7);
    batch_create(&both, 1, 20, VOCAB, 8);
    fill_document(&both, 0, &one);
    fill_document(&both, 13, &two);
    loss = pass(h, &one.b, 0);
    sum = all_grads(h);
    harness_shape(h, 1, 7);
    loss += pass(h, &two.b, 0);
    got = all_grads(h);
    for (int64_t i = 0; i < sum.n; i++)
        sum.g[i] += got.g[i];
    free(got.g);
    harness_shape(h, 1, 20);
    assert_true(fabs(pass(h, &both.b, 0) - loss) <= 1e-2 * tolerance(f->dtype) * loss);
    got = all_grads(h);
    assert_true(relative(got.g, sum.g, sum.n) < tolerance(f->dtype));
    free(sum.g);
    free(got.g);
    batch_destroy(&one);
    batch_destroy(&two);
    batch_destroy(&both);
    harness_destroy(h);
}

static void length_is_padding(void **state)
{
    const struct fixture *f = *state;
    struct harness *h = open_model(f, 2, 11);
    struct batch_mem small, padded;
    struct flat a, b;
    double loss;

    batch_create(&small, 2, 11, VOCAB, 9);
    batch_create(&padded, 2, SEQ, VOCAB, 10);
    for (int64_t i = 0; i < 2 * SEQ; i++) {
        int64_t row = i / SEQ, t = i % SEQ;

        padded.target[i] = t < 11 ? small.target[row * 11 + t] : -1;
        if (t < 11)
            padded.token[i] = small.token[row * 11 + t];
    }
    loss = pass(h, &small.b, 0);
    a = all_grads(h);
    harness_shape(h, 2, SEQ);
    assert_true(fabs(pass(h, &padded.b, 0) - loss) <= 1e-2 * tolerance(f->dtype) * loss);
    b = all_grads(h);
    assert_true(relative(b.g, a.g, a.n) < tolerance(f->dtype));
    free(a.g);
    free(b.g);
    batch_destroy(&small);
    batch_destroy(&padded);
    harness_destroy(h);
}

/* ---- (h) decode ---- */

static void decode_split(struct harness *h, const struct batch_mem *m, const int *cut,
                         float *logits)
{
    int64_t at = 0;

    for (int i = 0; cut[i]; i++) {
        struct batch_mem part;
        float *out;

        batch_create(&part, 2, cut[i], VOCAB, 0);
        for (int64_t r = 0; r < 2; r++)
            for (int64_t t = 0; t < cut[i]; t++) {
                part.token[r * cut[i] + t] = m->token[r * SEQ + at + t];
                part.pos[r * cut[i] + t] = (int32_t)(at + t);
            }
        out = xcalloc((size_t)(2 * cut[i] * VOCAB), sizeof *out);
        harness_decode(h, &part.b, at, SEQ, out);
        for (int64_t r = 0; r < 2; r++)
            memcpy(logits + (r * SEQ + at) * VOCAB, out + r * cut[i] * VOCAB,
                   (size_t)(cut[i] * VOCAB) * sizeof *out);
        at += cut[i];
        free(out);
        batch_destroy(&part);
    }
    assert_int_equal(at, SEQ);
}

/* Loss of logits (2, SEQ, VOCAB), in double. */
static double loss_from(const float *logits, const int32_t *target)
{
    double sum = 0;

    for (int64_t i = 0; i < 2 * SEQ; i++) {
        double z = 0;

        for (int v = 0; v < VOCAB; v++)
            z += exp(logits[i * VOCAB + v]);
        sum += log(z) - logits[i * VOCAB + target[i]];
    }
    return sum;
}

static void decode_is_the_full_forward(void **state)
{
    const struct fixture *f = *state;
    static const int splits[][SEQ + 1] = {
        {SEQ}, {1, SEQ - 1}, {7, 1, 1, 11}, {13, 7}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                      1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
    struct harness *h = open_model(f, 2, SEQ);
    size_t n = 2 * SEQ * VOCAB;
    float *whole = xcalloc(n, sizeof *whole), *got = xcalloc(n, sizeof *got);
    struct batch_mem m;
    double loss[3] = {0};

    batch_create(&m, 2, SEQ, VOCAB, 11);
    harness_forward(h, DS_EVAL, &m.b, 0, loss);
    for (int i = 0; i < 5; i++) {
        decode_split(h, &m, splits[i], i ? got : whole);
        if (i)
            assert_true(relative(got, whole, (int64_t)n) < tolerance(f->dtype));
    }
    assert_true(fabs(loss_from(whole, m.target) - loss[0]) <= tolerance(f->dtype) * loss[0]);
    free(whole);
    free(got);
    batch_destroy(&m);
    harness_destroy(h);
}

/* ---- frozen ---- */

static void a_frozen_parameter_is_left_alone(void **state)
{
    const struct fixture *f = *state;
    struct harness *h = open_model(f, 2, SEQ);
    struct batch_mem m;
    struct flat a, b;
    void *grad;

    batch_create(&m, 2, SEQ, VOCAB, 12);
    pass(h, &m.b, 0);
    a = all_grads(h);
    for (int i = 0; i < h->model->nparams[1]; i++) {
        grad = h->param[1][i].grad.data;
        h->param[1][i].grad.data = NULL;
        harness_backward(h, &m.b, 0.01f, 0, 0);
        h->param[1][i].grad.data = grad;
        b = all_grads(h);
        assert_memory_equal(a.g, b.g, (size_t)a.n * sizeof *a.g);
        free(b.g);
    }
    free(a.g);
    batch_destroy(&m);
    harness_destroy(h);
}

#define CASE(fn, text, dtype, label)                               \
    {                                                              \
#fn " " #text " " label, fn, NULL, NULL, &(struct fixture) \
        {                                                          \
            text, dtype                                            \
        }                                                          \
    }
#define BOTH(fn, text) CASE(fn, text, DS_F32, "fp32"), CASE(fn, text, DS_BF16, "bf16")
#define EVERY(fn) BOTH(fn, gpt2), BOTH(fn, gpt2_plain), BOTH(fn, llama), BOTH(fn, llama_odd)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EVERY(poison_changes_nothing),
        BOTH(poison_changes_nothing, gpt2_dropout),
        BOTH(poison_changes_nothing, llama_dropout),
        EVERY(recompute_is_the_same),
        BOTH(recompute_is_the_same, gpt2_dropout),
        BOTH(recompute_is_the_same, llama_dropout),
        EVERY(restore_rebuilds_what_was_dropped),
        EVERY(evaluation_is_training_without_dropout),
        BOTH(evaluation_is_training_without_dropout, gpt2_dropout),
        BOTH(evaluation_is_training_without_dropout, llama_dropout),
        CASE(gradients_are_differences, gpt2, DS_F32, "fp32"),
        CASE(gradients_are_differences, gpt2_dropout, DS_F32, "fp32"),
        CASE(gradients_are_differences, gpt2_plain, DS_F32, "fp32"),
        CASE(gradients_are_differences, llama, DS_F32, "fp32"),
        CASE(gradients_are_differences, llama_dropout, DS_F32, "fp32"),
        CASE(gradients_are_differences, llama_odd, DS_F32, "fp32"),
        EVERY(later_tokens_change_nothing_before),
        BOTH(later_tokens_change_nothing_before, gpt2_dropout),
        EVERY(packed_documents_are_alone),
        EVERY(length_is_padding),
        EVERY(decode_is_the_full_forward),
        EVERY(a_frozen_parameter_is_left_alone),
    };

    kernels_cpu_thread_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
