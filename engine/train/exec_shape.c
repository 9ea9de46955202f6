/* Memory of the activations of one micro-batch size: what lies where in the arena. See exec.h. */
#include "engine/train/exec_impl.h"

#include "engine/base/buf.h"

#include <stdlib.h>
#include <string.h>

static size_t aligned(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

int exec_has_output(const struct exec *e, const struct shape *s, int l)
{
    return s->decode || !(e->model->ops[l]->caps & DS_CAP_LOSS);
}

/* Output shapes and memory of every layer. */
static int size_layers(struct exec *e, struct shape *s, struct err *err)
{
    const struct model *m = e->model;
    struct ds_tensor none = {0}, *x = &none;

    for (int l = 0; l < m->n; l++) {
        if (m->ops[l]->shapes(&m->site[l], s->B, s->T, x, &s->y[l], err) < 0 ||
            m->ops[l]->memory(&m->site[l], e->k, e->plans, s->B, s->T, &s->mem[l], err) < 0)
            return err_prefix(err, "layer %s", m->site[l].name);
        x = &s->y[l];
    }
    return 0;
}

/* Is a saved tensor of a layer, or its output, one that shares memory with those of other segments? */
static int drops(const struct exec *e, const struct shape *s, int l, int saved)
{
    int keep = s->mem[l].saved[saved].keep;

    if (e->order->segment[l] < 0)
        return 0;
    return e->order->selective ? keep == DS_SAVE_DROP_SELECTIVE : keep != DS_SAVE_KEEP;
}

static int drops_output(const struct exec *e, const struct shape *s, int l)
{
    return !s->decode && e->order->segment[l] >= 0 && !e->order->selective && !order_ends(e->order, l);
}

/* What is dropped of a layer, or what is not. */
static void place(struct exec *e, struct shape *s, int l, int dropped, struct arena *a)
{
    if (drops_output(e, s, l) == dropped)
        s->y[l].data = exec_has_output(e, s, l) ? arena_take(a, tensor_bytes(&s->y[l])) : NULL;
    for (int i = 0; i < s->mem[l].nsaved && !s->decode; i++)
        if (drops(e, s, l, i) == dropped)
            s->saved[l][i] = arena_take(a, tensor_bytes(&s->mem[l].saved[i].t));
}

/* One area for all segments, of the size of the largest. */
static void place_segments(struct exec *e, struct shape *s, struct arena *a)
{
    size_t begin = a->used, end = begin;

    for (int l = 0; l < e->model->n; l++) {
        if (order_begins(e->order, l))
            a->used = begin;
        place(e, s, l, 1, a);
        end = a->used > end ? a->used : end;
    }
    a->used = end;
}

/* Places everything in the arena; a NULL base only measures. */
static void lay_out(struct exec *e, struct shape *s, struct arena *a)
{
    size_t work = 0, dx = 0;

    for (int l = 0; l < e->model->n; l++)
        place(e, s, l, 0, a);
    place_segments(e, s, a);
    for (int l = 0; l < e->model->n; l++) {
        const struct ds_memory *mem = &s->mem[l];

        for (int mode = 0; mode < 4; mode++)
            if (mem->work[mode] > work)
                work = mem->work[mode];
        if (l + 1 < e->model->n && tensor_bytes(&s->y[l]) > dx)
            dx = tensor_bytes(&s->y[l]);
    }
    s->work = arena_take(a, work);
    for (int i = 0; i < 2 && e->mem.grad && !s->decode; i++)
        s->dx[i] = arena_take(a, dx);
    s->bytes = aligned(a->peak);
}

static void shape_alloc(struct exec *e, struct shape *s)
{
    size_t n = (size_t)e->model->n;

    s->state = xcalloc(n, sizeof *s->state);
    s->mem = xcalloc(n, sizeof *s->mem);
    s->y = xcalloc(n, sizeof *s->y);
    s->saved = xcalloc(n, sizeof *s->saved);
    for (size_t l = 0; l < n; l++)
        s->saved[l] = xcalloc(DS_MAX_SAVED, sizeof **s->saved);
}

void exec_shape_clear(struct exec *e, struct shape *s)
{
    for (int l = 0; l < e->model->n; l++) {
        if (s->state && s->state[l])
            e->model->ops[l]->destroy(s->state[l]);
        if (s->saved)
            free(s->saved[l]);
    }
    e->dev->ops->free(e->dev, s->block);
    free(s->state);
    free(s->mem);
    free(s->y);
    free(s->saved);
}

static int shape_make(struct exec *e, struct shape *s, struct err *err)
{
    struct arena measure = {0}, arena = {0};

    if (size_layers(e, s, err) < 0)
        return -1;
    lay_out(e, s, &measure);
    s->block = e->dev->ops->alloc(e->dev, s->bytes + 64, MEM_ACT, err);
    if (!s->block)
        return err_prefix(err, "activations of %lld x %lld tokens", (long long)s->B, (long long)s->T);
    arena.base = s->block;
    arena.size = s->bytes + 64;
    lay_out(e, s, &arena);
    for (int l = 0; l < e->model->n; l++)
        if (e->model->ops[l]->create(&s->state[l], &e->model->site[l], e->k, e->plans, s->B, s->T,
                                     err) < 0)
            return err_prefix(err, "layer %s", e->model->site[l].name);
    return 0;
}

struct shape *exec_shape(struct exec *e, int64_t B, int64_t T, int decode, struct err *err)
{
    struct shape *s;

    for (int i = 0; i < e->nshapes; i++)
        if (e->shape[i].B == B && e->shape[i].T == T && e->shape[i].decode == decode)
            return &e->shape[i];
    ARRAY_GROW(e->shape, e->nshapes, e->cap_shapes);
    s = &e->shape[e->nshapes];
    *s = (struct shape){.B = B, .T = T, .decode = decode};
    shape_alloc(e, s);
    if (shape_make(e, s, err) < 0) {
        exec_shape_clear(e, s);
        return NULL;
    }
    e->nshapes++;
    return s;
}

int exec_prepare(struct exec *e, int64_t B, int64_t T, struct err *err)
{
    return exec_shape(e, B, T, 0, err) ? 0 : -1;
}

int exec_bytes(struct exec *e, int64_t B, int64_t T, size_t *bytes, struct err *err)
{
    struct shape s = {.B = B, .T = T};
    struct arena measure = {0};
    int rc;

    shape_alloc(e, &s);
    rc = size_layers(e, &s, err);
    if (!rc)
        lay_out(e, &s, &measure);
    *bytes = s.bytes;
    exec_shape_clear(e, &s);
    return rc;
}

/* Adds the types of the layers that have tensors to drop selectively, or of those that have none. */
static int add_types(struct exec *e, struct shape *s, int dropping, struct buf *out)
{
    const struct ds_layer_ops *last = NULL;
    int n = 0;

    for (int l = 0; l < e->model->n; l++) {
        int any = 0;

        for (int i = 0; i < s->mem[l].nsaved; i++)
            any |= drops(e, s, l, i);
        if (any != dropping || e->model->ops[l] == last)
            continue;
        last = e->model->ops[l];
        buf_addf(out, "%s%s", n++ ? ", " : "", last->type);
    }
    return n;
}

int exec_say_again(struct exec *e, int64_t B, int64_t T, struct buf *out, struct err *err)
{
    const struct order *o = e->order;
    struct shape s = {.B = B, .T = T};
    int rc = 0, again = 0;

    for (int use = 0; use < o->n; use++)
        again += (o->use[use].what & USE_AGAIN) != 0;
    if (o->interval)
        buf_addf(out, "  again    %d layers run forward a second time; the inputs of %d segments and one segment's "
                      "activations are kept\n", again, o->nsegments);
    if (!o->selective)
        return 0;
    shape_alloc(e, &s);
    rc = size_layers(e, &s, err);
    buf_adds(out, "  again    what is cheap to make of: ");
    if (!rc && !add_types(e, &s, 1, out))
        buf_adds(out, "no layer");
    buf_adds(out, "; nothing is dropped of: ");
    if (!rc)
        add_types(e, &s, 0, out);
    buf_addc(out, '\n');
    exec_shape_clear(e, &s);
    return rc;
}
