/* Runs the layers of one rank: see exec.h.
 *
 * Invariants: the input of layer i is the output of layer i - 1 and stays until its backward is done, or is
 * made again before it (zero/order.h); gradients of activations alternate between two buffers; a tied parameter's
 * gradient is overwritten by the first layer that contributes in backward order and added to by the others.
 */
#include "engine/train/exec_impl.h"

#include "engine/base/buf.h"
#include "engine/train/train.h"

#include <stdlib.h>
#include <string.h>

/* ---- parameters ---- */

static void bind_use(struct exec *e, int use)
{
    int l = e->order->use[use].layer, n = e->model->nparams[l];

    e->w[use] = xcalloc((size_t)n + 1, sizeof **e->w);
    e->g[use] = xcalloc((size_t)n + 1, sizeof **e->g);
    for (int i = 0; i < n; i++) {
        uint64_t at = e->table->at[l][i];

        e->g[use][i].dtype = DS_F32;
        if (e->mem.zero) /* zero_enter says where they are */
            continue;
        e->w[use][i] = (char *)e->mem.weight + at * ds_dtype_bytes(e->mem.dtype);
        e->g[use][i] = (struct ds_grad){e->mem.grad ? e->mem.grad + at : NULL, DS_F32, 0};
    }
}

static void find_first(struct exec *e)
{
    const struct model *m = e->model;

    for (int l = 0; l < m->n; l++) {
        e->first[l] = xcalloc((size_t)m->nparams[l] + 1, 1);
        memset(e->first[l], 1, (size_t)m->nparams[l]);
    }
    /* backward runs from the last layer: an earlier layer sharing a place adds to it */
    for (int l = 0; l < m->n; l++)
        for (int i = 0; i < m->nparams[l]; i++)
            for (int later = l + 1; later < m->n; later++)
                for (int j = 0; j < m->nparams[later]; j++)
                    if (e->table->at[later][j] == e->table->at[l][i])
                        e->first[l][i] = 0;
}

/* ---- create, destroy ---- */

int exec_create(struct exec **out, const struct model *m, const struct order *order,
                const struct param_table *t, const struct exec_memory *mem, const struct kernels *k, struct device *dev,
                struct err *err)
{
    struct exec *e;

    for (int l = 0; l < m->n; l++)
        for (int i = 0; i < m->nparams[l]; i++)
            if (m->param[l][i].flags & DS_KEEP_F32 && mem->dtype != DS_F32)
                return err_set(err, ERR_INPUT_LIMIT,
                               "parameter %s.%s asks for fp32 beside 16-bit weights, which this build "
                               "cannot gather; drop the flag or train in fp32",
                               m->site[l].name, m->param[l][i].name);
    e = xcalloc(1, sizeof *e);
    e->model = m;
    e->order = order;
    e->table = t;
    e->mem = *mem;
    e->k = k;
    e->dev = dev;
    e->threads = train_team_size();
    e->plans = k->plans_create();
    e->w = xcalloc((size_t)order->n, sizeof *e->w);
    e->g = xcalloc((size_t)order->n, sizeof *e->g);
    e->first = xcalloc((size_t)m->n, sizeof *e->first);
    e->kv = xcalloc((size_t)m->n, sizeof *e->kv);
    e->task = xcalloc((size_t)order->n, sizeof *e->task);
    for (int use = 0; use < order->n; use++)
        bind_use(e, use);
    find_first(e);
    *out = e;
    return 0;
}

void exec_destroy(struct exec *e)
{
    if (!e)
        return;
    exec_decode_reset(e);
    for (int i = 0; i < e->nshapes; i++)
        exec_shape_clear(e, &e->shape[i]);
    for (int use = 0; use < e->order->n; use++) {
        free(e->w[use]);
        free(e->g[use]);
    }
    for (int l = 0; l < e->model->n; l++)
        free(e->first[l]);
    free(e->w);
    free(e->g);
    free(e->first);
    free(e->kv);
    free(e->task);
    free(e->shape);
    e->k->plans_destroy(e->plans);
    free(e);
}

/* ---- work on the compute stream ---- */

/* The call of a use: what forward, restore and backward have in common. */
static struct ds_call call_of(const struct pass *p, int use)
{
    struct exec *e = p->e;
    struct shape *s = p->s;
    struct ds_call c = p->call;
    int l = e->order->use[use].layer;

    c.x = l ? &s->y[l - 1] : NULL;
    c.w = e->w[use];
    c.saved = s->saved[l];
    c.work = s->work;
    return c;
}

static void failed(struct pass *p, const char *what, int layer)
{
    if (p->rc)
        err_prefix(&p->err, "%s of layer %s", what, p->e->model->site[layer].name);
}

static void forward(struct pass *p, int use, enum ds_mode mode)
{
    struct exec *e = p->e;
    struct ds_call c = call_of(p, use);
    int l = e->order->use[use].layer;

    c.mode = mode;
    c.y = exec_has_output(e, p->s, l) ? &p->s->y[l] : NULL;
    c.kv = mode == DS_DECODE ? &e->kv[l] : NULL;
    p->rc = e->model->ops[l]->forward(p->s->state[l], &c, &p->err);
    failed(p, "forward", l);
}

static void restore(struct pass *p, int use)
{
    struct ds_call c = call_of(p, use);
    int l = p->e->order->use[use].layer;

    c.mode = DS_RECOMPUTE;
    p->rc = p->e->model->ops[l]->restore(p->s->state[l], &c, &p->err);
    failed(p, "restore", l);
}

/* The gradient of layer l's output. */
static struct ds_tensor gradient(const struct shape *s, int l)
{
    struct ds_tensor t = s->y[l];

    t.data = s->dx[(l + 1) & 1];
    return t;
}

static void backward(struct pass *p, int use)
{
    struct exec *e = p->e;
    struct shape *s = p->s;
    struct ds_call c = call_of(p, use);
    struct ds_tensor dy, dx;
    int l = e->order->use[use].layer;

    if (l)
        dx = gradient(s, l - 1);
    if (l < e->model->n - 1)
        dy = gradient(s, l);
    c.dy = l < e->model->n - 1 ? &dy : NULL;
    c.dx = l ? &dx : NULL;
    c.want = DS_WANT_DW | (l ? DS_WANT_DX : 0);
    c.g = e->g[use];
    for (int i = 0; i < e->model->nparams[l]; i++)
        c.g[i].beta = p->first && e->first[l][i] ? 0 : 1;
    p->rc = e->model->ops[l]->backward(s->state[l], &c, &p->err);
    failed(p, "backward", l);
}

static void use_task(void *arg)
{
    const struct task *t = arg;
    struct pass *p = t->pass;
    unsigned what = p->e->order->use[t->use].what;

    train_team_set(p->e->threads);
    if (what & USE_FORWARD && !p->rc)
        forward(p, t->use, p->call.mode);
    if (what & USE_AGAIN && !p->rc) {
        if (p->e->order->selective)
            restore(p, t->use);
        else
            forward(p, t->use, DS_RECOMPUTE);
    }
    if (what & USE_BACKWARD && !p->rc)
        backward(p, t->use);
}

/* Uses [from, to) of the order: all are given to the stream, then it is waited for. */
static int run(struct exec *e, struct pass *p, int from, int to, struct err *err)
{
    const struct device_ops *dev = e->dev->ops;
    struct ds_stream *s = dev->stream(e->dev, STREAM_COMPUTE);
    struct zero *z = e->mem.zero;
    int rc = 0;

    p->e = e;
    p->call.k = e->k;
    p->call.plans = e->plans;
    p->call.stream = s;
    for (int use = from; use < to && !rc; use++) {
        e->task[use] = (struct task){p, use};
        if (z)
            rc = zero_enter(z, use, e->w[use], e->g[use], err);
        if (!rc)
            dev->run(s, use_task, &e->task[use]);
        if (!rc && z)
            rc = zero_leave(z, use, err);
    }
    dev->event_done(dev->record(s), 1);
    if (p->rc && !rc)
        *err = p->err;
    return rc ? rc : p->rc;
}

int exec_forward(struct exec *e, enum ds_mode mode, const struct ds_batch *b,
                 const struct ds_scalars *sc, float loss_seed, double loss[3], struct err *err)
{
    struct pass p = {.err = ERR_INIT};

    p.s = exec_shape(e, b->B, b->T, 0, err);
    if (!p.s)
        return -1;
    p.call = (struct ds_call){
        .mode = mode, .batch = b, .loss = loss, .loss_seed = loss_seed, .s = sc};
    if (e->mem.zero)
        zero_begin(e->mem.zero, mode == DS_TRAIN);
    return run(e, &p, 0, e->model->n, err);
}

int exec_backward(struct exec *e, const struct ds_batch *b, const struct ds_scalars *sc,
                  float loss_seed, int first, struct err *err)
{
    struct pass p = {.first = first || e->mem.zero, .err = ERR_INIT};
    double unused[3] = {0};

    p.s = exec_shape(e, b->B, b->T, 0, err);
    if (!p.s)
        return -1;
    p.call = (struct ds_call){
        .mode = DS_TRAIN, .batch = b, .loss = unused, .loss_seed = loss_seed, .s = sc};
    if (e->mem.zero)
        zero_begin_backward(e->mem.zero, !first);
    return run(e, &p, e->model->n, e->order->n, err);
}

/* ---- decode ---- */

static int make_caches(struct exec *e, int64_t B, int64_t max, struct err *err)
{
    for (int l = 0; l < e->model->n; l++) {
        struct ds_memory mem = {0};
        size_t bytes;

        if (e->model->ops[l]->memory(&e->model->site[l], e->k, e->plans, B, 1, &mem, err) < 0)
            return -1;
        bytes = (size_t)(B * mem.kv_heads * mem.kv_dim * max) * ds_dtype_bytes(e->mem.dtype);
        e->kv[l] = (struct ds_kv){.max = max, .dtype = e->mem.dtype};
        if (!bytes)
            continue;
        e->kv[l].k = e->dev->ops->alloc(e->dev, bytes, MEM_ACT, err);
        e->kv[l].v = e->kv[l].k ? e->dev->ops->alloc(e->dev, bytes, MEM_ACT, err) : NULL;
        if (!e->kv[l].v)
            return err_prefix(err, "key and value cache of %lld tokens", (long long)max);
    }
    e->kv_max = max;
    e->kv_past = 0;
    return 0;
}

int exec_decode(struct exec *e, const struct ds_batch *b, const struct ds_scalars *sc, int64_t max,
                struct ds_tensor *logits, struct err *err)
{
    struct pass p = {.err = ERR_INIT};
    double unused[3] = {0};

    if (!e->kv_max && make_caches(e, b->B, max, err) < 0)
        return -1;
    if (e->kv_past + b->T > e->kv_max)
        return err_set(err, ERR_INPUT, "the cache holds %lld tokens, %lld more do not fit",
                       (long long)e->kv_max, (long long)(e->kv_past + b->T - e->kv_max));
    for (int l = 0; l < e->model->n; l++)
        e->kv[l].past = e->kv_past;
    p.s = exec_shape(e, b->B, b->T, 1, err);
    if (!p.s)
        return -1;
    p.call = (struct ds_call){.mode = DS_DECODE, .batch = b, .loss = unused, .s = sc};
    if (run(e, &p, 0, e->model->n, err))
        return -1;
    e->kv_past += b->T;
    *logits = p.s->y[e->model->n - 1];
    return 0;
}

void exec_decode_reset(struct exec *e)
{
    for (int l = 0; l < e->model->n; l++) {
        e->dev->ops->free(e->dev, e->kv[l].k);
        e->dev->ops->free(e->dev, e->kv[l].v);
        e->kv[l] = (struct ds_kv){0};
    }
    e->kv_max = e->kv_past = 0;
}

int64_t exec_flops(const struct exec *e, int64_t B, int64_t T)
{
    int64_t n = 0;

    for (int use = 0; use < e->order->n; use++) {
        const struct layer_use *u = &e->order->use[use];
        int64_t one = e->model->ops[u->layer]->flops(&e->model->site[u->layer], B, T);
        int again = u->what & USE_AGAIN && !e->order->selective;

        n += ((u->what & USE_FORWARD ? 1 : 0) + again + (u->what & USE_BACKWARD ? 2 : 0)) * one;
    }
    return n;
}
