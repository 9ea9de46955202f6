/* A tiny GPT-2 and a tiny Llama against PyTorch: loss, logits, every gradient and ten AdamW steps.
 *
 * tests/golden/make_golden.py made the values, in float64, with PyTorch's own operators. Distances
 * are relative to the norm of a whole tensor, after ten steps to how far it moved: 1e-5 and 1e-3 in
 * fp32. In bf16 the models' rounding is amplified by what they are, so the bound is 1.5 times the
 * distance of PyTorch's own bf16 run, which the file holds (2.6e-2 and 0.12 for Llama). */
#include "tests/golden/golden.h"
#include "tests/sim/layer_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { B = 3, T = 16, V = 65, STEPS = 10 };

static const char gpt2[] = "[model]\nform = gpt2\nn_layer = 2\nn_head = 4\nn_embd = 32\n";
static const char llama[] =
    "[model]\nform = llama\nn_layer = 2\nn_head = 4\nn_kv_head = 2\nn_embd = 32\n";

struct check {
    const struct golden *golden;
    double tolerance, total; /* of the distance; norm of all gradients together */
    int tensors;
};

/* GPT-2's key bias moves every score of a row alike, so its gradient is zero but for rounding, and
 * Adam makes motion of that noise: its gradient is held to the others' scale, its weights are left
 * out. */
static int has_no_gradient(const char *name)
{
    return strstr(name, "qkv_bias.k") != NULL;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

static double norm(const float *a, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * a[i];
    return sqrt(sum);
}

static const float *golden_tensor(const struct golden *g, const char *kind, const char *name,
                                  int64_t n)
{
    char *key = xasprintf("%s.%s", kind, name);
    const float *p = golden_get(g, key, "F32", n);

    free(key);
    return p;
}

static void load(const char *name, int ndim, float *w, float *grad, int64_t n, void *arg)
{
    (void)ndim;
    (void)grad;
    memcpy(w, golden_tensor(arg, "init", name, n), (size_t)n * sizeof *w);
}

static void check_grad(const char *name, int ndim, float *w, float *grad, int64_t n, void *arg)
{
    struct check *c = arg;
    const float *want = golden_tensor(c->golden, "grad", name, n);
    double d = distance(grad, want, n), scale = has_no_gradient(name) ? c->total : norm(want, n);

    (void)ndim;
    (void)w;
    c->tensors++;
    if (!(d <= c->tolerance * scale))
        fail_msg("gradient of %s is %.3g away, of %.3g", name, d, scale);
}

static void check_final(const char *name, int ndim, float *w, float *grad, int64_t n, void *arg)
{
    struct check *c = arg;
    const float *want = golden_tensor(c->golden, "final", name, n);
    const float *init = golden_tensor(c->golden, "init", name, n);
    double d = distance(w, want, n), moved = distance(want, init, n);

    (void)ndim;
    (void)grad;
    c->tensors++;
    if (!has_no_gradient(name) && !(d <= c->tolerance * moved))
        fail_msg("after ten steps %s is %.3g away, having moved by %.3g", name, d, moved);
}

static struct ds_batch batch_of(const struct golden *g, int step)
{
    const int32_t *part[4];
    static const char *const name[4] = {"batch.token", "batch.target", "batch.pos", "batch.doc"};

    for (int i = 0; i < 4; i++)
        part[i] = (const int32_t *)golden_get(g, name[i], "I32", STEPS * B * T) + step * B * T;
    return (struct ds_batch){B, T, part[0], part[1], part[2], part[3], NULL};
}

static int valid_targets(const struct ds_batch *b)
{
    int n = 0;

    for (int i = 0; i < B * T; i++)
        n += b->target[i] >= 0;
    return n;
}

/* Mean loss of the batch; gradients of the mean. */
static double run(struct harness *h, const struct ds_batch *b)
{
    double loss[3] = {0};
    int valid = valid_targets(b);

    harness_poison(h, 1);
    harness_forward(h, DS_TRAIN, b, 1.0f / (float)valid, loss);
    harness_backward(h, b, 1.0f / (float)valid, 0, 0);
    harness_check_guards(h);
    assert_int_equal((int)loss[1], valid);
    return loss[0] / loss[1];
}

/* fp32: tolerance; bf16: 1.5 times the peer's distance of this kind. */
static double bound(const struct golden *g, enum ds_dtype dtype, const char *kind, double tolerance)
{
    double peer;

    if (dtype == DS_F32)
        return tolerance;
    memcpy(&peer, golden_get(g, kind, "F64", 1), sizeof peer);
    return 1.5 * peer;
}

static double golden_f64(const struct golden *g, const char *name, int step)
{
    double all[STEPS];

    memcpy(all, golden_get(g, name, "F64", STEPS), sizeof all);
    return all[step];
}

static void near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%s is %.9g and should be %.9g", what, got, want);
}

static struct harness *open_model(struct golden *g, const char *file, const char *text,
                                  enum ds_dtype dtype)
{
    struct harness *h = harness_create(text, dtype, V, T);

    golden_open(g, file);
    harness_each(h, load, g);
    harness_sync(h);
    harness_shape(h, B, T);
    return h;
}

static void gradients(const char *file, const char *text, enum ds_dtype dtype)
{
    struct golden g;
    struct harness *h = open_model(&g, file, text, dtype);
    struct check c = {&g, bound(&g, dtype, "bf16.grad", 1e-5), golden_f64(&g, "norms", 0), 0};
    struct ds_batch b = batch_of(&g, 0);

    near(run(h, &b), golden_f64(&g, "losses", 0), dtype == DS_F32 ? 1e-5 : 1e-2, "the loss");
    harness_each(h, check_grad, &c);
    assert_int_equal(c.tensors, strstr(file, "gpt2") ? 36 : 21);
    harness_destroy(h);
    golden_close(&g);
}

/* The logits of sample 0, which is one document, through DECODE. */
static void logits(const char *file, const char *text, enum ds_dtype dtype, double tolerance)
{
    struct golden g;
    struct harness *h = open_model(&g, file, text, dtype);
    const float *want = golden_get(&g, "logits", "F32", B * T * V);
    float *got = xcalloc(T * V, sizeof *got);
    struct ds_batch b = batch_of(&g, 0);
    double d;

    b.B = 1;
    harness_decode(h, &b, 0, T, got);
    d = distance(got, want, T * V);
    if (!(d <= tolerance * norm(want, T * V)))
        fail_msg("logits are %.3g away, of %.3g", d, norm(want, T * V));
    free(got);
    harness_destroy(h);
    golden_close(&g);
}

/* ---- ten steps ---- */

struct moments {
    float *m, *v;
};

struct update {
    const struct kernels *k;
    struct ds_scalars s;
    struct moments *moments;
    int tensors;
    double sum;
    int32_t bad;
};

static void add_squares(const char *name, int ndim, float *w, float *grad, int64_t n, void *arg)
{
    struct update *u = arg;
    double sum = 0;

    (void)name;
    (void)ndim;
    (void)w;
    u->k->sumsq(&sum, &u->bad, grad, n, NULL);
    u->sum += sum;
}

static void step_tensor(const char *name, int ndim, float *w, float *grad, int64_t n, void *arg)
{
    struct update *u = arg;
    struct moments *m = &u->moments[u->tensors++];

    (void)name;
    if (!m->m) {
        m->m = xcalloc((size_t)n, sizeof *m->m);
        m->v = xcalloc((size_t)n, sizeof *m->v);
    }
    u->k->adamw(&(struct ds_update){.w2 = w, .m2 = m->m, .v2 = m->v, .w = w, .m = m->m, .v = m->v, .g = grad,
                                    .n = n, .lr_mul = 1, .beta2 = 0.95f, .eps = 1e-8f,
                                    .decay = ndim == 2 ? 0.1f : 0, .variant = 1},
                &u->s, NULL);
}

static void ten_steps(const char *file, const char *text, enum ds_dtype dtype)
{
    double loss_tolerance = dtype == DS_F32 ? 1e-5 : 1e-2;
    struct golden g;
    struct harness *h = open_model(&g, file, text, dtype);
    struct update u = {.k = h->k, .moments = xcalloc(64, sizeof *u.moments)};
    struct check c = {&g, bound(&g, dtype, "bf16.final", 1e-3), 0, 0};

    u.s.lr = 3e-3f;
    u.s.beta1 = 0.9f;
    for (int step = 0; step < STEPS; step++) {
        struct ds_batch b = batch_of(&g, step);

        near(run(h, &b), golden_f64(&g, "losses", step), loss_tolerance, "a step's loss");
        u.sum = 0;
        harness_each(h, add_squares, &u);
        near(sqrt(u.sum), golden_f64(&g, "norms", step), 5 * loss_tolerance, "a step's norm");
        u.s.update = step + 1;
        u.s.grad_scale = (float)fmin(1, 1 / (sqrt(u.sum) + 1e-6));
        u.tensors = 0;
        harness_each(h, step_tensor, &u);
        harness_sync(h);
    }
    assert_int_equal(u.bad, 0);
    harness_each(h, check_final, &c);
    for (int i = 0; i < 64; i++) {
        free(u.moments[i].m);
        free(u.moments[i].v);
    }
    free(u.moments);
    harness_destroy(h);
    golden_close(&g);
}

static void gpt2_fp32(void **state)
{
    gradients("gpt2.safetensors", gpt2, DS_F32);
    logits("gpt2.safetensors", gpt2, DS_F32, 1e-5);
    ten_steps("gpt2.safetensors", gpt2, DS_F32);
}

static void gpt2_bf16(void **state)
{
    gradients("gpt2.safetensors", gpt2, DS_BF16);
    logits("gpt2.safetensors", gpt2, DS_BF16, 2e-2);
    ten_steps("gpt2.safetensors", gpt2, DS_BF16);
}

static void llama_fp32(void **state)
{
    gradients("llama.safetensors", llama, DS_F32);
    logits("llama.safetensors", llama, DS_F32, 1e-5);
    ten_steps("llama.safetensors", llama, DS_F32);
}

static void llama_bf16(void **state)
{
    gradients("llama.safetensors", llama, DS_BF16);
    logits("llama.safetensors", llama, DS_BF16, 2e-2);
    ten_steps("llama.safetensors", llama, DS_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_fp32),
        cmocka_unit_test(gpt2_bf16),
        cmocka_unit_test(llama_fp32),
        cmocka_unit_test(llama_bf16),
    };

    kernels_cpu_thread_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
