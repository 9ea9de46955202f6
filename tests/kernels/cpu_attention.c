/* Attention: against the reference, causality to the bit, and the cache against the whole. */
#include "tests/kernels/cpu.h"

/* Probabilities and gradients of scores may be rounded to bf16, never to f16, before they are multiplied
 * on. */
#define TOL_ATTENTION(dt) ((dt) == DS_F32 ? 2e-5 : ((dt) == DS_BF16 ? 4 : 2) * UNIT(dt))

/* Documents of random length: doc[i] = where i's begins */
static void random_docs(struct pool *p, int32_t *doc, int64_t B, int64_t T)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            doc[b * T + t] = t == 0 ? 0 : pool_uniform(p) < 0.05 ? (int32_t)t : doc[b * T + t - 1];
}

static void attention(const struct ds_attention *shape, enum ds_dtype dt, int docs)
{
    struct pool p = {.random = 12};
    struct ds_attention a = *shape;
    int64_t B = a.B, T = a.T, H = a.H, row = (a.H + 2 * a.G) * a.D;
    struct array *qkv = random_array(&p, B * T * row, dt, 1.0),
                 *lse = output_array(&p, B * H * T, DS_F32);
    struct array *out = output_array(&p, B * T * H * a.D, dt);
    struct array *dout = random_array(&p, B * T * H * a.D, dt, 1.0);
    struct array *dqkv = output_array(&p, B * T * row, dt);
    void *work = scratch(&p, kernels_cpu.attention_work(&a, dt));
    int32_t *doc = random_ints(&p, B * T, 1);

    random_docs(&p, doc, B, T);
    a.doc = docs ? doc : NULL;
    ref_attention_fwd(out->want, lse->want, qkv->want, &a);
    kernels_cpu.attention_fwd(out->stored, lse->stored, qkv->stored, &a, dt, work, NULL);
    array_check(out, TOL_ATTENTION(dt), "attention_fwd");
    array_check(lse, 1e-5, "attention_fwd log-sum-exp");
    ref_attention_bwd(dqkv->want, dout->want, qkv->want, &a);
    kernels_cpu.attention_bwd(dqkv->stored, dout->stored, qkv->stored, out->stored, lse->stored, &a,
                              dt, work, NULL);
    /* backward sees `out` as stored: in 16 bits its rounding shows in a sum over D */
    array_check(dqkv, dt == DS_F32 ? 2 * TOL_ATTENTION(dt) : 12 * UNIT(dt), "attention_bwd");
    pool_end(&p);
}

void test_attention(void **state)
{
    static const int64_t shapes[][5] = {/* B, T, H, G, D */
                                        {1, 1, 1, 1, 1},    {2, 1, 4, 2, 8},   {2, 5, 4, 4, 3},
                                        {1, 63, 2, 1, 16},  {1, 64, 2, 2, 64}, {2, 65, 6, 2, 33},
                                        {1, 130, 2, 2, 80}, {1, 200, 4, 1, 20}};
    static const uint64_t sample[2] = {9, 1ull << 50};

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int bits = 0; bits < 4 * TYPES; bits++) {
            const int64_t *n = shapes[s];
            struct ds_attention a = {.B = n[0],
                                     .T = n[1],
                                     .H = n[2],
                                     .G = n[3],
                                     .D = n[4],
                                     .scale = 1.0f / sqrtf((float)n[4])};

            if (bits & 1)
                a.dropout = (struct ds_dropout){0.2f, 77, 88, sample};
            attention(&a, type((size_t)bits / 4), bits & 2);
        }
}

/* A later token changes nothing before it, to the bit. */
void test_attention_causal(void **state)
{
    for (size_t k = 0; k < TYPES; k++) {
        enum ds_dtype dt = type(k);
        struct ds_attention a = {.B = 1, .T = 100, .H = 2, .G = 1, .D = 16, .scale = 0.25f};
        int64_t row = 4 * 16, from = 70;
        struct pool p = {.random = 13};
        struct array *qkv = random_array(&p, 100 * row, dt, 1.0);
        struct array *y = output_array(&p, 100 * 32, dt), *z = output_array(&p, 100 * 32, dt);
        struct array *lse = output_array(&p, 200, DS_F32);
        void *work = scratch(&p, kernels_cpu.attention_work(&a, dt));
        size_t size = ds_dtype_bytes(dt);

        kernels_cpu.attention_fwd(y->stored, lse->stored, qkv->stored, &a, dt, work, NULL);
        for (int64_t i = from * row; i < (from + 1) * row; i++)
            memcpy((char *)qkv->stored + (size_t)i * size,
                   (char *)qkv->stored + (size_t)(i % row) * size, size);
        kernels_cpu.attention_fwd(z->stored, lse->stored, qkv->stored, &a, dt, work, NULL);
        assert_memory_equal(y->stored, z->stored, (size_t)(from * 32) * size);
        assert_memory_not_equal((char *)y->stored + (size_t)(from * 32) * size,
                                (char *)z->stored + (size_t)(from * 32) * size, 32 * size);
        pool_end(&p);
    }
}

/* Any split of a sequence into calls on the cache gives what one forward gives. */
static void cache(enum ds_dtype dt, enum ds_dtype stored, double tolerance)
{
    static const int64_t cuts[] = {0, 7, 8, 9, 75, 101};
    enum { B = 2, T = 101, H = 4, G = 2, D = 20, ROW = (H + 2 * G) * D, MAX = 110 };
    struct ds_attention a = {.B = B, .T = T, .H = H, .G = G, .D = D, .scale = 0.2f};
    struct pool p = {.random = 14};
    size_t size = ds_dtype_bytes(dt);
    struct array *qkv = random_array(&p, B * T * ROW, dt, 1.0),
                 *lse = output_array(&p, B * H * T, DS_F32);
    struct array *whole = output_array(&p, B * T * H * D, dt);
    struct array *k = output_array(&p, B * G * MAX * D, stored),
                 *v = output_array(&p, B * G * MAX * D, stored);

    ref_attention_fwd(whole->want, lse->want, qkv->want, &a);
    for (size_t c = 0; c + 1 < sizeof cuts / sizeof *cuts; c++) {
        int64_t past = cuts[c], n = cuts[c + 1] - past;
        struct ds_attention part = {.B = B, .T = n, .H = H, .G = G, .D = D, .scale = 0.2f};
        struct ds_kv kv = {k->stored, v->stored, MAX, past, stored};
        char *in = scratch(&p, (size_t)(B * n * ROW) * size);
        char *out = scratch(&p, (size_t)(B * n * H * D) * size);

        for (int64_t b = 0; b < B; b++)
            memcpy(in + (size_t)(b * n * ROW) * size,
                   (char *)qkv->stored + (size_t)((b * T + past) * ROW) * size,
                   (size_t)(n * ROW) * size);
        kernels_cpu.attention_kv(out, in, &part, &kv, dt,
                                 scratch(&p, kernels_cpu.attention_work(&part, dt)), NULL);
        for (int64_t b = 0; b < B; b++)
            memcpy((char *)whole->stored + (size_t)((b * T + past) * H * D) * size,
                   out + (size_t)(b * n * H * D) * size, (size_t)(n * H * D) * size);
    }
    array_check(whole, tolerance, "attention_kv");
    pool_end(&p);
}

void test_attention_kv(void **state)
{
    cache(DS_F32, DS_F32, 1e-5);
    cache(DS_BF16, DS_BF16, 0x1p-7);
    cache(DS_F32, DS_BF16, 0x1p-6);
    cache(DS_F32, DS_F16, 0x1p-9);
    cache(DS_F16, DS_F16, 0x1p-10);
    cache(DS_F16, DS_F32, 0x1p-10);
    cache(DS_F16, DS_BF16, 0x1p-6);
}
