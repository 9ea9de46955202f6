/* The harness behind layer_harness.h: a plain executor of a model's layers on one rank. */
#include "tests/sim/layer_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- creation ---- */

static int64_t param_numel(const struct ds_param *p)
{
    int64_t rows = 0;

    for (int i = 0; i < p->nparts; i++)
        rows += p->part[i].rows;
    return rows * p->cols;
}

static void find_owner(const struct harness *h, const char *tie, struct harness_param *out)
{
    for (int l = 0; l < h->model->n; l++)
        for (int i = 0; i < h->model->nparams[l]; i++) {
            char *full = xasprintf("%s.%s", h->model->site[l].name, h->model->param[l][i].name);

            if (strcmp(full, tie) == 0) {
                out->owner_layer = l;
                out->owner_param = i;
            }
            free(full);
        }
}

static void make_params(struct harness *h)
{
    const struct model *m = h->model;

    h->param = xcalloc((size_t)m->n, sizeof *h->param);
    for (int l = 0; l < m->n; l++) {
        h->param[l] = xcalloc((size_t)m->nparams[l] + 1, sizeof **h->param);
        for (int i = 0; i < m->nparams[l]; i++) {
            struct harness_param *p = &h->param[l][i];

            p->numel = param_numel(&m->param[l][i]);
            p->owner_layer = l;
            p->owner_param = i;
            if (m->param[l][i].tie) {
                find_owner(h, m->param[l][i].tie, p);
                continue;
            }
            p->w = xcalloc((size_t)p->numel, sizeof *p->w);
            guard_alloc(&p->cast, (size_t)p->numel * ds_dtype_bytes(h->dtype));
            guard_alloc(&p->grad, (size_t)p->numel * sizeof(float));
        }
    }
}

struct harness *harness_create(const char *text, enum ds_dtype dtype, int64_t vocab,
                               int64_t seq_len)
{
    struct harness *h = xcalloc(1, sizeof *h);
    struct settings *tables[1] = {&h->settings};
    struct err err = ERR_INIT;

    settings_init(&h->settings, job_table, job_table_n, &h->job);
    if (settings_read(&h->rows, "test.ini", text, strlen(text), &err) < 0 ||
        settings_apply(tables, 1, &h->rows, "model.", NULL, &err) < 0)
        fail_msg("%s", err.text);
    h->job.seq_len = seq_len;
    h->dtype = dtype;
    if (model_create(&h->model, &h->job, &h->rows, dtype, vocab, &err) < 0)
        fail_msg("%s", err.text);
    h->k = &kernels_cpu;
    h->plans = h->k->plans_create();
    make_params(h);
    return h;
}

static void shape_clear(struct harness *h)
{
    for (int l = 0; l < h->model->n && h->state; l++) {
        h->model->ops[l]->destroy(h->state[l]);
        guard_free(&h->y_mem[l]);
        guard_free(&h->dx_mem[l]);
        for (int i = 0; i < h->mem[l].nsaved; i++)
            guard_free(&h->saved[l][i]);
        free(h->saved[l]);
    }
    guard_free(&h->work);
    free(h->state);
    free(h->mem);
    free(h->y);
    free(h->y_mem);
    free(h->dx_mem);
    free(h->saved);
    h->state = NULL;
}

static void cache_clear(struct harness *h)
{
    for (int l = 0; l < h->model->n && h->key; l++) {
        guard_free(&h->key[l]);
        guard_free(&h->value[l]);
    }
    free(h->key);
    free(h->value);
    h->key = h->value = NULL;
    h->cache = 0;
}

void harness_destroy(struct harness *h)
{
    shape_clear(h);
    cache_clear(h);
    for (int l = 0; l < h->model->n; l++) {
        for (int i = 0; i < h->model->nparams[l]; i++) {
            guard_free(&h->param[l][i].cast);
            guard_free(&h->param[l][i].grad);
            free(h->param[l][i].w);
        }
        free(h->param[l]);
    }
    free(h->param);
    h->k->plans_destroy(h->plans);
    model_destroy(h->model);
    settings_clear(&h->settings);
    settings_rows_clear(&h->rows);
    free(h);
}

/* ---- weights ---- */

/* Sum of four uniforms: near enough to normal, and of no library. */
static float noise(uint64_t *s)
{
    float sum = 0;

    for (int i = 0; i < 4; i++) {
        *s = *s * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(*s >> 40) * 0x1p-24f - 0.5f;
    }
    return sum * 1.7f;
}

void harness_randomize(struct harness *h, uint64_t seed, float scale)
{
    uint64_t s = seed * 2 + 1;

    for (int l = 0; l < h->model->n; l++)
        for (int i = 0; i < h->model->nparams[l]; i++) {
            struct harness_param *p = &h->param[l][i];
            float mean = h->model->param[l][i].init.kind == DS_INIT_ONE ? 1 : 0;

            for (int64_t j = 0; p->w && j < p->numel; j++)
                p->w[j] = mean + scale * noise(&s);
        }
    harness_sync(h);
}

void harness_sync(struct harness *h)
{
    for (int l = 0; l < h->model->n; l++)
        for (int i = 0; i < h->model->nparams[l]; i++) {
            struct harness_param *p = &h->param[l][i];

            if (p->w)
                h->k->cast(p->cast.data, h->dtype, p->w, DS_F32, p->numel, NULL);
        }
}

void harness_each(struct harness *h,
                  void (*fn)(const char *name, int ndim, float *w, float *grad, int64_t numel,
                             void *arg),
                  void *arg)
{
    for (int l = 0; l < h->model->n; l++)
        for (int i = 0; i < h->model->nparams[l]; i++) {
            const struct ds_param *d = &h->model->param[l][i];
            struct harness_param *p = &h->param[l][i];
            int64_t at = 0;

            for (int j = 0; p->w && j < d->nparts; j++) {
                const char *part = d->part[j].name;
                int64_t n = d->part[j].rows * d->cols;
                char *name =
                    xasprintf("%s.%s%s%s", h->model->site[l].name, d->name, *part ? "." : "", part);

                fn(name, d->cols > 1 ? 2 : 1, p->w + at, (float *)p->grad.data + at, n, arg);
                at += n;
                free(name);
            }
        }
}

struct search {
    const char *name;
    float *w, *grad;
    int64_t numel;
};

static void compare_name(const char *name, int ndim, float *w, float *grad, int64_t numel,
                         void *arg)
{
    struct search *s = arg;

    (void)ndim;
    if (strcmp(name, s->name) == 0)
        *s = (struct search){s->name, w, grad, numel};
}

int harness_find(struct harness *h, const char *name, float **w, float **grad, int64_t *numel)
{
    struct search s = {.name = name};

    harness_each(h, compare_name, &s);
    *w = s.w;
    *grad = s.grad;
    *numel = s.numel;
    return s.w ? 0 : -1;
}

/* ---- shapes ---- */

static size_t work_bytes(const struct harness *h)
{
    size_t n = 0;

    for (int l = 0; l < h->model->n; l++)
        for (int mode = 0; mode < 4; mode++)
            if (h->mem[l].work[mode] > n)
                n = h->mem[l].work[mode];
    return n;
}

void harness_shape(struct harness *h, int64_t B, int64_t T)
{
    const struct model *m = h->model;
    size_t n = (size_t)m->n;
    struct ds_tensor x = {0};
    struct err err = ERR_INIT;

    shape_clear(h);
    h->B = B;
    h->T = T;
    h->state = xcalloc(n, sizeof *h->state);
    h->mem = xcalloc(n, sizeof *h->mem);
    h->y = xcalloc(n, sizeof *h->y);
    h->y_mem = xcalloc(n, sizeof *h->y_mem);
    h->dx_mem = xcalloc(n, sizeof *h->dx_mem);
    h->saved = xcalloc(n, sizeof *h->saved);
    for (int l = 0; l < m->n; l++) {
        if (m->ops[l]->shapes(&m->site[l], B, T, &x, &h->y[l], &err) < 0 ||
            m->ops[l]->memory(&m->site[l], h->k, h->plans, B, T, &h->mem[l], &err) < 0 ||
            m->ops[l]->create(&h->state[l], &m->site[l], h->k, h->plans, B, T, &err) < 0)
            fail_msg("%s", err.text);
        guard_alloc(&h->y_mem[l], tensor_bytes(&h->y[l]));
        guard_alloc(&h->dx_mem[l], tensor_bytes(&h->y[l]));
        h->y[l].data = h->y_mem[l].data;
        h->saved[l] = xcalloc(DS_MAX_SAVED, sizeof **h->saved);
        for (int i = 0; i < h->mem[l].nsaved; i++)
            guard_alloc(&h->saved[l][i], tensor_bytes(&h->mem[l].saved[i].t));
        x = h->y[l];
    }
    guard_alloc(&h->work, work_bytes(h));
}

void harness_poison(struct harness *h, int grads)
{
    for (int l = 0; l < h->model->n; l++) {
        guard_poison(&h->y_mem[l]);
        guard_poison(&h->dx_mem[l]);
        for (int i = 0; i < h->mem[l].nsaved; i++)
            guard_poison(&h->saved[l][i]);
        for (int i = 0; grads && i < h->model->nparams[l]; i++)
            if (h->param[l][i].w)
                guard_poison(&h->param[l][i].grad);
    }
    guard_poison(&h->work);
}

void harness_check_guards(const struct harness *h)
{
    for (int l = 0; l < h->model->n; l++) {
        const char *name = h->model->site[l].name;

        if (!guard_intact(&h->y_mem[l]) || !guard_intact(&h->dx_mem[l]))
            fail_msg("something wrote behind the output of %s or its gradient", name);
        for (int i = 0; i < h->mem[l].nsaved; i++)
            if (!guard_intact(&h->saved[l][i]))
                fail_msg("something wrote behind saved tensor %d of %s", i, name);
        for (int i = 0; i < h->model->nparams[l]; i++)
            if (h->param[l][i].w && !guard_intact(&h->param[l][i].grad))
                fail_msg("something wrote behind gradient %d of %s", i, name);
    }
    if (!guard_intact(&h->work))
        fail_msg("something wrote behind the scratch");
}

/* ---- running ---- */

struct pointers {
    void *w[DS_MAX_PARAMS], *saved[DS_MAX_SAVED];
    struct ds_grad g[DS_MAX_PARAMS];
};

/* The call of one layer, all but mode and wants. Scratch of the layer's own size ends at the guard
 * page. */
static struct ds_call layer_call(struct harness *h, int l, enum ds_mode mode,
                                 const struct ds_batch *b, struct pointers *p)
{
    size_t work = h->mem[l].work[mode];
    struct ds_call c = {.mode = mode, .batch = b, .k = h->k, .plans = h->plans};
    int saves = mode == DS_TRAIN || mode == DS_RECOMPUTE;

    for (int i = 0; i < h->model->nparams[l]; i++) {
        struct harness_param *own = &h->param[l][i];
        struct harness_param *at = &h->param[own->owner_layer][own->owner_param];

        p->w[i] = at->cast.data;
        p->g[i] = (struct ds_grad){at->grad.data, DS_F32, 0};
    }
    for (int i = 0; i < h->mem[l].nsaved; i++)
        p->saved[i] = saves ? h->saved[l][i].data : NULL;
    c.w = p->w;
    c.saved = saves ? p->saved : NULL;
    c.x = l ? &h->y[l - 1] : NULL;
    c.work = (char *)h->work.data + ((h->work.bytes - work) & ~(size_t)63);
    return c;
}

static int makes_y(const struct harness *h, int l, enum ds_mode mode)
{
    return mode == DS_DECODE || !(h->model->ops[l]->caps & DS_CAP_LOSS);
}

void harness_forward(struct harness *h, enum ds_mode mode, const struct ds_batch *b, float seed,
                     double loss[3])
{
    struct err err = ERR_INIT;

    for (int l = 0; l < h->model->n; l++) {
        struct pointers p;
        struct ds_call c = layer_call(h, l, mode, b, &p);

        c.y = makes_y(h, l, mode) ? &h->y[l] : NULL;
        c.loss = loss;
        c.loss_seed = seed;
        if (h->model->ops[l]->forward(h->state[l], &c, &err) < 0)
            fail_msg("%s: %s", h->model->site[l].name, err.text);
    }
}

/* A tied parameter's first contribution is that of the later layer. */
static float beta_of(const struct harness *h, int l, int i, float beta)
{
    for (int later = l + 1; later < h->model->n; later++)
        for (int j = 0; j < h->model->nparams[later]; j++)
            if (h->param[later][j].owner_layer == l && h->param[later][j].owner_param == i)
                return 1;
    return beta;
}

void harness_backward(struct harness *h, const struct ds_batch *b, float seed, float beta,
                      int apart)
{
    struct err err = ERR_INIT;

    for (int l = h->model->n - 1; l >= 0; l--) {
        struct pointers p;
        struct ds_call c = layer_call(h, l, DS_TRAIN, b, &p);
        unsigned all = DS_WANT_DW | (l ? DS_WANT_DX : 0);
        struct ds_tensor dx = l ? h->y[l - 1] : (struct ds_tensor){0}, dy = h->y[l];

        dx.data = l ? h->dx_mem[l - 1].data : NULL;
        dy.data = h->dx_mem[l].data;
        c.dx = l ? &dx : NULL;
        c.dy = l < h->model->n - 1 ? &dy : NULL;
        c.loss_seed = seed;
        c.g = p.g;
        for (int i = 0; i < h->model->nparams[l]; i++)
            c.g[i].beta = beta_of(h, l, i, beta);
        for (unsigned want = DS_WANT_DX; want <= DS_WANT_DW; want *= 2) {
            struct ds_call one = c;

            one.want = apart ? all & want : all;
            if (apart) {
                one.dx = want == DS_WANT_DX ? c.dx : NULL;
                one.g = want == DS_WANT_DW ? c.g : NULL;
                guard_poison(&h->work);
            }
            if (one.want && h->model->ops[l]->backward(h->state[l], &one, &err) < 0)
                fail_msg("%s: %s", h->model->site[l].name, err.text);
            if (!apart)
                break;
        }
    }
}

static void make_caches(struct harness *h, int64_t max)
{
    cache_clear(h);
    h->key = xcalloc((size_t)h->model->n, sizeof *h->key);
    h->value = xcalloc((size_t)h->model->n, sizeof *h->value);
    for (int l = 0; l < h->model->n; l++) {
        size_t n = (size_t)(h->B * h->mem[l].kv_heads * h->mem[l].kv_dim * max);

        guard_alloc(&h->key[l], n * ds_dtype_bytes(h->dtype));
        guard_alloc(&h->value[l], n * ds_dtype_bytes(h->dtype));
    }
    h->cache = max;
}

void harness_decode(struct harness *h, const struct ds_batch *b, int64_t past, int64_t max,
                    float *logits)
{
    struct err err = ERR_INIT;

    harness_shape(h, b->B, b->T);
    if (past == 0)
        make_caches(h, max);
    for (int l = 0; l < h->model->n; l++) {
        struct pointers p;
        struct ds_call c = layer_call(h, l, DS_DECODE, b, &p);
        struct ds_kv kv = {h->key[l].data, h->value[l].data, h->cache, past, h->dtype};

        c.y = &h->y[l];
        c.kv = &kv;
        if (h->model->ops[l]->forward(h->state[l], &c, &err) < 0)
            fail_msg("%s: %s", h->model->site[l].name, err.text);
        if (!guard_intact(&h->key[l]) || !guard_intact(&h->value[l]))
            fail_msg("%s wrote behind its cache", h->model->site[l].name);
    }
    harness_check_guards(h);
    memcpy(logits, h->y[h->model->n - 1].data, tensor_bytes(&h->y[h->model->n - 1]));
}

/* ---- batches ---- */

void batch_create(struct batch_mem *m, int64_t B, int64_t T, int64_t vocab, uint64_t seed)
{
    size_t n = (size_t)(B * T);
    uint64_t s = seed * 2 + 1;

    m->token = xcalloc(n, sizeof *m->token);
    m->target = xcalloc(n, sizeof *m->target);
    m->pos = xcalloc(n, sizeof *m->pos);
    m->doc = xcalloc(n, sizeof *m->doc);
    m->sample = xcalloc((size_t)B, sizeof *m->sample);
    for (size_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        m->token[i] = (int32_t)((s >> 33) % (uint64_t)vocab);
        s = s * 6364136223846793005u + 1442695040888963407u;
        m->target[i] = (int32_t)((s >> 33) % (uint64_t)vocab);
        m->pos[i] = (int32_t)(i % (size_t)T);
    }
    for (int64_t i = 0; i < B; i++)
        m->sample[i] = 1000 + (uint64_t)i;
    m->b = (struct ds_batch){B, T, m->token, m->target, m->pos, m->doc, m->sample};
}

void batch_destroy(struct batch_mem *m)
{
    free(m->token);
    free(m->target);
    free(m->pos);
    free(m->doc);
    free(m->sample);
}
