/* The last layer: logits (N, V) = x W^T, and the cross-entropy of them.
 *
 * Training makes one product of all rows, in the compute type, into a saved tensor, and turns it
 * into the logits' gradient in place while the loss is summed: forward already knows loss_seed.
 * Backward is then two products and nothing is computed twice; the price is N * V elements kept
 * between the passes. Evaluation keeps nothing, so it goes through the rows in chunks of at most
 * CHUNK_BYTES of logits. Rows of saved logits are padded to a multiple of 64 bytes; padding columns
 * are zero and never read by a product.
 */
#include "engine/model/config.h"

#include "engine/base/buf.h"
#include "engine/ops/linear.h"
#include "engine/ops/scratch.h"

#include <stdlib.h>

#define CHUNK_BYTES ((int64_t)32 << 20)

enum { S_DLOGITS };

struct head {
    const char *name;
    enum ds_dtype dtype;
    int64_t N, C, V, ld;
    int64_t chunk; /* rows of logits at a time in evaluation */
    struct linear train, eval, eval_rest, decode;
    size_t own; /* scratch: the products' own at 0, then */
    size_t unused_loss_at, chunk_at, bytes[4];
};

static int head_check(const struct ds_site *site, const struct ds_tensor *x, struct err *err)
{
    const struct model_config *c = site->config;

    if (config_check_input(site, x, err) < 0)
        return -1;
    if (!c->vocab_size)
        return err_set(err, ERR_INPUT,
                       "[model] vocab_size is not set and there is no data to take it from");
    return 0;
}

static int head_params(const struct ds_site *site, struct ds_param *out, struct err *err)
{
    struct model_config c;

    (void)err;
    config_resolve(site, &c);
    *out = (struct ds_param){.name = "weight",
                             .part = {{"", c.vocab_size}},
                             .nparts = 1,
                             .cols = c.n_embd,
                             .unit = 1,
                             .cut = DS_CUT,
                             .flags = DS_VOCAB,
                             .init = {DS_INIT_NORMAL, c.init_std}};
    if (c.tie_embedding == CHOICE_YES)
        out->tie = "embedding.wte";
    return 1;
}

static int head_shapes(const struct ds_site *site, int64_t B, int64_t T, const struct ds_tensor *x,
                       struct ds_tensor *y, struct err *err)
{
    const struct model_config *c = site->config;

    (void)x;
    (void)err;
    *y = (struct ds_tensor){NULL, DS_F32, 3, {B, T, c->vocab_size}};
    return 0;
}

static struct linear head_map(const struct head *h, int64_t rows, int64_t ld, enum ds_dtype ytype)
{
    return (struct linear){.N = rows,
                           .in = h->C,
                           .out = h->V,
                           .store = LINEAR_OUT_IN,
                           .dtype = h->dtype,
                           .ldy = ld,
                           .ytype = ytype};
}

static void head_setup(struct head *h, const struct ds_site *site, int64_t N)
{
    const struct model_config *c = site->config;
    int64_t row_bytes, pad = 64 / (int64_t)ds_dtype_bytes(site->dtype);

    *h = (struct head){
        .name = site->name, .dtype = site->dtype, .N = N, .C = c->n_embd, .V = c->vocab_size};
    h->ld = (h->V + pad - 1) / pad * pad;
    row_bytes = h->ld * (int64_t)ds_dtype_bytes(h->dtype);
    h->chunk = CHUNK_BYTES / row_bytes;
    if (h->chunk < 1)
        h->chunk = 1;
    if (h->chunk > N)
        h->chunk = N;
    h->train = head_map(h, N, h->ld, h->dtype);
    h->eval = head_map(h, h->chunk, h->ld, h->dtype);
    h->eval_rest = head_map(h, N % h->chunk, h->ld, h->dtype);
    h->decode = head_map(h, N, 0, DS_F32);
}

static void head_layout(struct head *h)
{
    size_t used = 0;

    scratch_take(&used, h->own);
    h->unused_loss_at = scratch_take(&used, 3 * sizeof(double));
    for (int mode = 0; mode < 4; mode++)
        h->bytes[mode] = used;
    h->chunk_at = scratch_take(&used, (size_t)(h->chunk * h->ld) * ds_dtype_bytes(h->dtype));
    h->bytes[DS_EVAL] = used;
}

static int head_init(struct head *h, const struct ds_site *site, const struct kernels *k,
                     struct ds_plans *plans, int64_t N, struct err *err)
{
    head_setup(h, site, N);
    if (linear_init(&h->train, h->name, k, plans, 1, &h->own, err) < 0 ||
        linear_init(&h->eval, h->name, k, plans, 0, &h->own, err) < 0 ||
        linear_init(&h->decode, h->name, k, plans, 0, &h->own, err) < 0)
        return -1;
    if (h->eval_rest.N && linear_init(&h->eval_rest, h->name, k, plans, 0, &h->own, err) < 0)
        return -1;
    head_layout(h);
    return 0;
}

static int head_memory(const struct ds_site *site, const struct kernels *k, struct ds_plans *plans,
                       int64_t B, int64_t T, struct ds_memory *out, struct err *err)
{
    struct head h;

    if (head_init(&h, site, k, plans, B * T, err) < 0)
        return -1;
    *out = (struct ds_memory){.nsaved = 1};
    out->saved[S_DLOGITS] = (struct ds_saved){{NULL, h.dtype, 3, {B, T, h.ld}}, DS_SAVE_DROP_FULL};
    for (int mode = 0; mode < 4; mode++)
        out->work[mode] = h.bytes[mode];
    return 0;
}

static int64_t head_flops(const struct ds_site *site, int64_t B, int64_t T)
{
    const struct model_config *c = site->config;

    return 2 * B * T * c->n_embd * c->vocab_size;
}

static int head_create(void **state, const struct ds_site *site, const struct kernels *k,
                       struct ds_plans *plans, int64_t B, int64_t T, struct err *err)
{
    struct head *h = xmalloc(sizeof *h);

    if (head_init(h, site, k, plans, B * T, err) < 0) {
        free(h);
        return -1;
    }
    *state = h;
    return 0;
}

/* A forward that is run again must not add its loss again. */
static int train_forward(const struct head *h, struct ds_call *c, struct err *err)
{
    void *logits = c->saved[S_DLOGITS];
    double *loss = c->mode == DS_RECOMPUTE ? scratch_at(c->work, h->unused_loss_at) : c->loss;

    if (linear_forward(&h->train, c, logits, c->x->data, c->w[0], NULL, c->work, err) < 0)
        return -1;
    c->k->cross_entropy(loss, NULL, logits, logits, c->batch->target, h->N, h->V, h->ld,
                        c->loss_seed, h->dtype, c->stream);
    return 0;
}

static int eval_forward(const struct head *h, struct ds_call *c, struct err *err)
{
    void *logits = scratch_at(c->work, h->chunk_at);
    size_t row = (size_t)h->C * ds_dtype_bytes(h->dtype);

    for (int64_t at = 0; at < h->N; at += h->chunk) {
        const struct linear *map = h->N - at < h->chunk ? &h->eval_rest : &h->eval;
        const char *x = (const char *)c->x->data + (size_t)at * row;

        if (linear_forward(map, c, logits, x, c->w[0], NULL, c->work, err) < 0)
            return -1;
        c->k->cross_entropy(c->loss, NULL, NULL, logits, c->batch->target + at, map->N, h->V, h->ld,
                            0, h->dtype, c->stream);
    }
    return 0;
}

static int head_forward(void *state, struct ds_call *c, struct err *err)
{
    const struct head *h = state;

    if (c->mode == DS_DECODE)
        return linear_forward(&h->decode, c, c->y->data, c->x->data, c->w[0], NULL, c->work, err);
    return c->mode == DS_EVAL ? eval_forward(h, c, err) : train_forward(h, c, err);
}

static int head_backward(void *state, struct ds_call *c, struct err *err)
{
    const struct head *h = state;
    const void *dlogits = c->saved[S_DLOGITS];

    if (grads_are_f32(h->name, c, 1, err) < 0)
        return -1;
    if ((c->want & DS_WANT_DX) &&
        linear_dx(&h->train, c, c->dx->data, dlogits, c->w[0], c->work, err) < 0)
        return -1;
    if (!(c->want & DS_WANT_DW))
        return 0;
    return linear_dw(&h->train, c, &c->g[0], NULL, c->x->data, dlogits, c->work, err);
}

const struct ds_layer_ops layer_head = {
    .type = "head",
    .abi = DS_LAYER_ABI,
    .caps = DS_CAP_DECODE | DS_CAP_LOSS,
    .settings = model_settings,
    .nsettings = MODEL_NSETTINGS,
    .config_bytes = sizeof(struct model_config),
    .check = head_check,
    .params = head_params,
    .shapes = head_shapes,
    .memory = head_memory,
    .flops = head_flops,
    .create = head_create,
    .destroy = free,
    .forward = head_forward,
    .backward = head_backward,
};
