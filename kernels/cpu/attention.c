/* Attention forward and backward in blocks of 64 queries by 64 keys; the matrix of scores is never
 * whole.
 *
 * Forward: one task per sample and head, running maximum and sum per query. Backward: one task per
 * sample and key/value head, so that dk and dv are summed over its query heads by one thread in a
 * fixed order: results do not depend on the thread count. Blocks that no query sees are skipped.
 * With bf16 products the probabilities are rounded to bf16 before they meet the values. */
#include "kernels/cpu/attention_pack.h"
#include "kernels/cpu/tile.h"

#define HIDDEN \
    (-1e30f) /* score of a key that is not seen: finite, so that differences stay numbers */

/* --- a thread's part of the scratch --- */

struct arena {
    char *at;
};

static void *take(struct arena *m, int64_t elements)
{
    void *p = m->at;

    m->at += (elements * 4 + 63) / 64 * 64;
    return p;
}

struct forward {
    uint32_t *k, *v, *q, *p; /* (De, Tp), (Tp, Dp), (BLOCK, De), (BLOCK, BLOCK) */
    float *s, *o, *max, *sum, *fix;
};

static void forward_layout(struct forward *f, struct arena *m, const struct shape *s)
{
    f->k = take(m, s->De * s->Tp);
    f->v = take(m, s->Tp * s->Dp);
    f->q = take(m, s->Tp * s->De);
    f->p = take(m, BLOCK * BLOCK);
    f->s = take(m, BLOCK * BLOCK);
    f->o = take(m, BLOCK * s->Dp);
    f->max = take(m, BLOCK);
    f->sum = take(m, BLOCK);
    f->fix = take(m, BLOCK);
}

struct backward {
    uint32_t *kt, *vt, *k; /* (De, Tp), (De, Tp), (Tp, Dp): products over D, over D, over keys */
    uint32_t *q, *dout;    /* (Tp, De) */
    uint32_t *qq, *dd;     /* (Tp, Dp): products over queries */
    uint32_t *pack;
    float *s, *p, *delta, *dq, *dk, *dv;
};

static void backward_layout(struct backward *b, struct arena *m, const struct shape *s)
{
    b->kt = take(m, s->De * s->Tp);
    b->vt = take(m, s->De * s->Tp);
    b->k = take(m, s->Tp * s->Dp);
    b->q = take(m, s->Tp * s->De);
    b->dout = take(m, s->Tp * s->De);
    b->qq = take(m, s->Tp * s->Dp);
    b->dd = take(m, s->Tp * s->Dp);
    b->pack = take(m, BLOCK * BLOCK);
    b->s = take(m, BLOCK * BLOCK);
    b->p = take(m, BLOCK * BLOCK);
    b->delta = take(m, s->Tp);
    b->dq = take(m, s->Tp * s->Dp);
    b->dk = take(m, s->Tp * s->Dp);
    b->dv = take(m, s->Tp * s->Dp);
}

static size_t thread_bytes(const struct shape *s)
{
    struct arena m = {NULL};
    struct backward b;

    backward_layout(&b, &m, s); /* the larger of the two */
    return (size_t)(m.at - (char *)NULL);
}

size_t K(attention_work)(const struct ds_attention *a, enum ds_dtype dt)
{
    struct shape s = shape_of(a, dt);

    return thread_bytes(&s) * (size_t)omp_get_max_threads() + 64;
}

static struct arena thread_arena(void *work, const struct shape *s)
{
    uintptr_t base = ((uintptr_t)work + 63) / 64 * 64;

    return (struct arena){(char *)base + thread_bytes(s) * (size_t)omp_get_thread_num()};
}

/* --- forward --- */

/* Scores of a block to probabilities against the running maximum: s becomes exp(scale s - max)
 * times the dropout factor; sum and o take the change of the maximum. */
static void softmax_block(struct forward *f, const struct ds_attention *a, const int32_t *doc,
                          const struct mask_key *key, int64_t i0, int64_t j0, int64_t Dp)
{
    int full = all_visible(doc, i0, j0, a->T);

    for (int64_t r = 0; r < BLOCK; r++) {
        int64_t i = i0 + r, first = first_key(doc, i, a->T);
        float *s = f->s + r * BLOCK, max, factor[BLOCK] = {0};
        vf top = vf_set(HIDDEN), sum = {0};

        for (int64_t c = 0; c < BLOCK; c += LANES) {
            vf x = vf_load(s + c) * a->scale;

            if (!full)
                x = vf_select(visible(first, i, j0 + c), x, vf_set(HIDDEN));
            vf_store(s + c, x);
            top = vf_max(top, x);
        }
        max = vf_hmax(top);
        max = max > f->max[r] ? max : f->max[r];
        if (key)
            mask_row(factor, key, i, j0, a->T);
        for (int64_t c = 0; c < BLOCK; c += LANES) {
            vf p = vf_exp(vf_load(s + c) - max);

            if (!full)
                p = (vf)((vi)p & visible(first, i, j0 + c));
            sum += p;
            vf_store(s + c, key ? p * vf_load(factor + c) : p);
        }
        f->fix[r] = f->max[r] - max;
        f->max[r] = max;
        f->sum[r] = f->sum[r] * vf_exp(vf_set(f->fix[r]))[0] + vf_sum(sum);
        if (f->fix[r] != 0.0f) {
            vf by = vf_exp(vf_set(f->fix[r]));

            for (int64_t d = 0; d < Dp; d += LANES)
                vf_store(f->o + r * Dp + d, vf_load(f->o + r * Dp + d) * by);
        }
    }
}

static void forward_finish(void *out, float *lse, const struct forward *f, int64_t i0, int64_t row,
                           const struct shape *s)
{
    for (int64_t r = 0; r < BLOCK && i0 + r < s->T; r++) {
        float inverse = f->sum[r] > 0.0f || f->sum[r] != f->sum[r] ? 1.0f / f->sum[r] : 0.0f;
        void *y = at_w(out, (i0 + r) * row, s->dt);

        for (int64_t d = 0; d < s->D; d += LANES)
            stn(y, d, s->D, vf_load(f->o + r * s->Dp + d) * inverse, s->dt);
        lse[i0 + r] = f->max[r] + logf(f->sum[r]);
    }
}

/* out, lse: of this sample and head; q, k, v: the head's column of the sample's first row */
static void forward_head(void *out, float *lse, const void *q, const void *k, const void *v,
                         const struct ds_attention *a, const int32_t *doc,
                         const struct mask_key *key, struct forward *f, const struct shape *s)
{
    int64_t row;

    pack_transposed(f->k, k, s->row, s);
    pack_tokens(f->v, v, s->row, s);
    pack_rows(f->q, q, s->row, s);
    for (int64_t i0 = 0; i0 < s->T; i0 += BLOCK) {
        memset(f->o, 0, (size_t)(BLOCK * s->Dp) * sizeof *f->o);
        for (int64_t r = 0; r < BLOCK; r++) {
            f->max[r] = HIDDEN;
            f->sum[r] = 0.0f;
        }
        for (int64_t j0 = first_block(doc, i0, s->T); j0 <= i0; j0 += BLOCK) {
            tile_product(f->s, BLOCK, f->q + i0 * s->De, s->De, 1, f->k + j0, s->Tp, BLOCK, BLOCK,
                         s->De, 0, s->pairs);
            softmax_block(f, a, doc, key, i0, j0, s->Dp);
            const uint32_t *p = block_rows(f->p, f->s, s->pairs, &row);

            tile_product(f->o, s->Dp, p, row, 1, f->v + (s->pairs ? j0 / 2 : j0) * s->Dp, s->Dp,
                         BLOCK, s->Dp, row, 1, s->pairs);
        }
        forward_finish(out, lse, f, i0, a->H * s->D, s);
    }
}

void K(attention_fwd)(void *out, float *lse, const void *qkv, const struct ds_attention *a,
                      enum ds_dtype dt, void *work, struct ds_stream *stream)
{
    struct shape s = shape_of(a, dt);
    int64_t H = a->H, G = a->G, D = a->D, T = a->T;

#pragma omp parallel
    {
        struct arena m = thread_arena(work, &s);
        struct forward f;

        forward_layout(&f, &m, &s);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < a->B * H; task++) {
            int64_t b = task / H, h = task % H, g = h / (H / G);
            const void *x = at(qkv, b * T * s.row, s.dt);
            struct mask_key key = {0};
            int drop = a->dropout.p > 0.0f;

            if (drop)
                key = mask_key(&a->dropout, b, a->dropout.site + (uint32_t)h);
            forward_head(at_w(out, (b * T * H + h) * D, s.dt), lse + task * T, at(x, h * D, s.dt),
                         at(x, (H + g) * D, s.dt), at(x, (H + G + g) * D, s.dt), a,
                         a->doc ? a->doc + b * T : NULL, drop ? &key : NULL, &f, &s);
        }
    }
}

/* --- backward --- */

/* s holds scores, p the products dout v: p becomes the probabilities with dropout, s the gradient
 * of the unscaled scores, scale * P * (dP * factor - delta). */
static void gradient_block(struct backward *w, const float *lse, const struct ds_attention *a,
                           const int32_t *doc, const struct mask_key *key, int64_t i0, int64_t j0)
{
    int full = all_visible(doc, i0, j0, a->T);

    for (int64_t r = 0; r < BLOCK; r++) {
        int64_t i = i0 + r, first = first_key(doc, i, a->T);
        float *s = w->s + r * BLOCK, *p = w->p + r * BLOCK, factor[BLOCK] = {0};
        float l = i < a->T ? lse[i] : 0.0f, delta = w->delta[i];

        if (key)
            mask_row(factor, key, i, j0, a->T);
        for (int64_t c = 0; c < BLOCK; c += LANES) {
            vf prob = vf_exp(vf_load(s + c) * a->scale - l), dp = vf_load(p + c);
            vf by = key ? vf_load(factor + c) : vf_set(1.0f);

            if (!full)
                prob = (vf)((vi)prob & visible(first, i, j0 + c));
            vf_store(p + c, prob * by);
            vf_store(s + c, prob * (dp * by - delta) * a->scale);
        }
    }
}

/* All block pairs of one query head: adds to dq, dk, dv. */
static void backward_head(struct backward *w, const float *lse, const struct ds_attention *a,
                          const int32_t *doc, const struct mask_key *key, const struct shape *s)
{
    int64_t Dp = s->Dp, half = s->pairs ? 2 : 1, row;

    for (int64_t i0 = 0; i0 < s->T; i0 += BLOCK)
        for (int64_t j0 = first_block(doc, i0, s->T); j0 <= i0; j0 += BLOCK) {
            const uint32_t *x;

            tile_product(w->s, BLOCK, w->q + i0 * s->De, s->De, 1, w->kt + j0, s->Tp, BLOCK, BLOCK,
                         s->De, 0, s->pairs);
            tile_product(w->p, BLOCK, w->dout + i0 * s->De, s->De, 1, w->vt + j0, s->Tp, BLOCK,
                         BLOCK, s->De, 0, s->pairs);
            gradient_block(w, lse, a, doc, key, i0, j0);
            x = block_columns(w->pack, w->p, s->pairs);
            tile_product(w->dv + j0 * Dp, Dp, x, 1, BLOCK, w->dd + i0 / half * Dp, Dp, BLOCK, Dp,
                         BLOCK / half, 1, s->pairs);
            x = block_columns(w->pack, w->s, s->pairs);
            tile_product(w->dk + j0 * Dp, Dp, x, 1, BLOCK, w->qq + i0 / half * Dp, Dp, BLOCK, Dp,
                         BLOCK / half, 1, s->pairs);
            x = block_rows(w->pack, w->s, s->pairs, &row);
            tile_product(w->dq + i0 * Dp, Dp, x, row, 1, w->k + j0 / half * Dp, Dp, BLOCK, Dp, row,
                         1, s->pairs);
        }
}

/* delta (T) = sum over D of dout * out */
static void row_dots(float *delta, const void *dout, const void *out, int64_t row,
                     const struct shape *s)
{
    for (int64_t t = 0; t < s->T; t++) {
        const void *x = at(dout, t * row, s->dt), *y = at(out, t * row, s->dt);
        vf sum = {0};

        for (int64_t d = 0; d < s->D; d += LANES)
            sum += ldn(x, d, s->D, s->dt) * ldn(y, d, s->D, s->dt);
        delta[t] = vf_sum(sum);
    }
    memset(delta + s->T, 0, (size_t)(s->Tp - s->T) * sizeof *delta);
}

/* A head's column of dqkv (T, D) from the padded sums (Tp, Dp) */
static void store_rows(void *to, const float *from, const struct shape *s)
{
    for (int64_t t = 0; t < s->T; t++)
        for (int64_t d = 0; d < s->D; d += LANES)
            stn(at_w(to, t * s->row, s->dt), d, s->D, vf_load(from + t * s->Dp + d), s->dt);
}

struct backward_call {
    void *dqkv;
    const void *dout, *qkv, *out;
    const float *lse;
    const struct ds_attention *a;
};

/* One sample and key/value head with its query heads. */
static void backward_group(const struct backward_call *c, int64_t b, int64_t g, struct backward *w,
                           const struct shape *s)
{
    const struct ds_attention *a = c->a;
    int64_t H = a->H, G = a->G, D = a->D, T = a->T, drop = a->dropout.p > 0.0f;
    const int32_t *doc = a->doc ? a->doc + b * T : NULL;
    const void *x = at(c->qkv, b * T * s->row, s->dt);
    void *dx = at_w(c->dqkv, b * T * s->row, s->dt);
    size_t bytes = (size_t)(s->Tp * s->Dp) * sizeof(float);

    pack_transposed(w->kt, at(x, (H + g) * D, s->dt), s->row, s);
    pack_transposed(w->vt, at(x, (H + G + g) * D, s->dt), s->row, s);
    pack_tokens(w->k, at(x, (H + g) * D, s->dt), s->row, s);
    memset(w->dk, 0, bytes);
    memset(w->dv, 0, bytes);
    for (int64_t h = g * (H / G); h < (g + 1) * (H / G); h++) {
        const void *dout = at(c->dout, (b * T * H + h) * D, s->dt);
        struct mask_key key = {0};

        if (drop)
            key = mask_key(&a->dropout, b, a->dropout.site + (uint32_t)h);
        pack_rows(w->q, at(x, h * D, s->dt), s->row, s);
        pack_tokens(w->qq, at(x, h * D, s->dt), s->row, s);
        pack_rows(w->dout, dout, H * D, s);
        pack_tokens(w->dd, dout, H * D, s);
        row_dots(w->delta, dout, at(c->out, (b * T * H + h) * D, s->dt), H * D, s);
        memset(w->dq, 0, bytes);
        backward_head(w, c->lse + (b * H + h) * T, a, doc, drop ? &key : NULL, s);
        store_rows(at_w(dx, h * D, s->dt), w->dq, s);
    }
    store_rows(at_w(dx, (H + g) * D, s->dt), w->dk, s);
    store_rows(at_w(dx, (H + G + g) * D, s->dt), w->dv, s);
}

void K(attention_bwd)(void *dqkv, const void *dout, const void *qkv, const void *out,
                      const float *lse, const struct ds_attention *a, enum ds_dtype dt, void *work,
                      struct ds_stream *stream)
{
    struct shape s = shape_of(a, dt);
    struct backward_call c = {dqkv, dout, qkv, out, lse, a};

#pragma omp parallel
    {
        struct arena m = thread_arena(work, &s);
        struct backward w;

        backward_layout(&w, &m, &s);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < a->B * a->G; task++)
            backward_group(&c, task / a->G, task % a->G, &w, &s);
    }
}
