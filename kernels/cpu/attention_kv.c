/* Attention over a cache of keys and values (decode): few queries, many keys, so it is one pass
 * over the cache per head with dot products and a running softmax. */
#include "kernels/cpu/attention_pack.h"

#define KEYS 64 /* keys whose scores are held at once */

static void append(void *cache, const void *x, int64_t D, enum ds_dtype t, enum ds_dtype dt)
{
    for (int64_t d = 0; d < D; d += LANES)
        stn(cache, d, D, ldn(x, d, D, dt), t);
}

/* o (D) = softmax(scale q k^T) v over n keys */
static void attend(float *o, const void *q, const char *k, const char *v, int64_t n, int64_t D,
                   float scale, enum ds_dtype t, enum ds_dtype dt)
{
    int64_t bytes = width(D, t);
    float max = -1e30f, sum = 0.0f;

    memset(o, 0, (size_t)D * sizeof *o);
    for (int64_t j0 = 0; j0 < n; j0 += KEYS) {
        int64_t keys = n - j0 < KEYS ? n - j0 : KEYS;
        float p[KEYS], top = max, fix;

        for (int64_t j = 0; j < keys; j++) {
            vf s = {0};

            for (int64_t d = 0; d < D; d += LANES)
                s += ldn(q, d, D, dt) * ldn(k + (j0 + j) * bytes, d, D, t);
            p[j] = vf_sum(s) * scale;
            top = p[j] > top ? p[j] : top;
        }
        fix = vf_exp(vf_set(max - top))[0];
        max = top;
        sum *= fix;
        for (int64_t d = 0; d < D; d++)
            o[d] *= fix;
        for (int64_t j = 0; j < keys; j++) {
            float e = vf_exp(vf_set(p[j] - max))[0];

            sum += e;
            for (int64_t d = 0; d < D; d += LANES)
                stn(o, d, D, ldn(o, d, D, DS_F32) + ldn(v + (j0 + j) * bytes, d, D, t) * e, DS_F32);
        }
    }
    for (int64_t d = 0; d < D; d++)
        o[d] /= sum;
}

void K(attention_kv)(void *out, const void *qkv, const struct ds_attention *a, struct ds_kv *kv,
                     enum ds_dtype dt, void *work, struct ds_stream *stream)
{
    int64_t B = a->B, H = a->H, G = a->G, D = a->D, T = a->T, row = (H + 2 * G) * D;
    int64_t size = (int64_t)ds_dtype_bytes(kv->dtype), pad = (D + 15) / 16 * 16;

    for (int64_t x = 0; x < B * G * T; x++) {
        int64_t b = x / (G * T), g = x / T % G, t = x % T;
        int64_t slot = ((b * G + g) * kv->max + kv->past + t) * D * size;
        const void *from = at(qkv, (b * T + t) * row, dt);

        append((char *)kv->k + slot, at(from, (H + g) * D, dt), D, kv->dtype, dt);
        append((char *)kv->v + slot, at(from, (H + G + g) * D, dt), D, kv->dtype, dt);
    }
#pragma omp parallel for schedule(dynamic, 1) if (B * H * T * (kv->past + T) * D > TEAM_MIN)
    for (int64_t x = 0; x < B * T * H; x++) {
        int64_t b = x / (T * H), t = x / H % T, h = x % H, g = h / (H / G);
        int64_t head = (b * G + g) * kv->max * D * size;
        float *o = (float *)work + omp_get_thread_num() * pad;

        attend(o, at(qkv, (b * T + t) * row + h * D, dt), (char *)kv->k + head,
               (char *)kv->v + head, kv->past + t + 1, D, a->scale, kv->dtype, dt);
        for (int64_t d = 0; d < D; d += LANES)
            stn(at_w(out, x * D, dt), d, D, ldn(o, d, D, DS_F32), dt);
    }
}
