/* Parameters: see param.h.
 *
 * Invariants: tensors of one flat are neighbours in table->tensor, in flat order; aliases of tied owners
 * come after all flats. The parts of one parameter follow each other without a gap, so that a layer sees
 * one matrix.
 */
#include "engine/param/param.h"

#include "engine/base/buf.h"
#include "engine/base/parse.h"
#include "engine/base/rng.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN_ELEMENTS 16 /* 64 bytes of fp32 */

struct builder {
    struct param_table *t;
    const struct param_layer *layers;
    const struct param_rules *rules;
    int cap_tensors, cap_flats, cap_groups;
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static uint64_t param_numel(const struct ds_param *p)
{
    uint64_t rows = 0;

    for (int i = 0; i < p->nparts; i++)
        rows += (uint64_t)p->part[i].rows;
    return rows * (uint64_t)p->cols;
}

static char *full_name(const struct param_layer *l, const struct ds_param *p, int part)
{
    if (part < 0 || !p->part[part].name[0])
        return xasprintf("%s.%s", l->name, p->name);
    return xasprintf("%s.%s.%s", l->name, p->name, p->part[part].name);
}

static int is_no_decay(const struct ds_param *p)
{
    return p->group ? !strcmp(p->group, "no_decay") : p->cols == 1;
}

/* ---- rules by name ---- */

/* The next word of a list with commas or blanks between; NULL at its end. Owned. */
static char *next_word(const char **list)
{
    size_t n;

    if (!*list)
        return NULL;
    *list += strspn(*list, ", \t");
    n = strcspn(*list, ", \t");
    if (!n)
        return NULL;
    *list += n;
    return xstrndup(*list - n, n);
}

/* Cuts "PATTERN:FACTOR" at its last colon; 0, or -1 when there is no number in 0..1e30 behind one. */
static int cut_factor(char *word, double *factor)
{
    char *colon = strrchr(word, ':');

    if (!colon || parse_f64(colon + 1, factor) < 0 || *factor < 0 || *factor > 1e30)
        return -1;
    *colon = 0;
    return 0;
}

/* Is a pattern of the list one for this name? With factor, what stands behind it is stored there. */
static int is_named(const char *list, const char *name, double *factor)
{
    int hit = 0;

    for (char *word; !hit && (word = next_word(&list)); free(word))
        hit = (!factor || cut_factor(word, factor) == 0) && glob_match(word, name);
    return hit;
}

static int check_rule(const struct param_table *t, const char *key, const char *list, int with_factor,
                      struct err *err)
{
    int rc = 0;

    for (char *word; !rc && (word = next_word(&list)); free(word)) {
        double factor;
        int hit = 0, alias = -1;

        if (with_factor && cut_factor(word, &factor) < 0) {
            rc = err_set(err, ERR_INPUT, "%s: '%s' is not PATTERN:FACTOR with a factor in 0..1e30", key, word);
            continue;
        }
        for (int i = 0; i < t->ntensors && !hit; i++)
            if (glob_match(word, t->tensor[i].name)) {
                hit = t->tensor[i].alias < 0;
                alias = i;
            }
        if (!hit && alias >= 0)
            rc = err_set(err, ERR_INPUT, "%s: '%s' fits %s alone, which is tied to %s and has no values of its own; "
                         "name that one", key, word, t->tensor[alias].name, t->tensor[t->tensor[alias].alias].name);
        else if (!hit)
            rc = err_set(err, ERR_INPUT, "%s: no parameter has a name like '%s'; names are such as %s", key, word,
                         t->ntensors ? t->tensor[0].name : "none");
    }
    return rc;
}

static int check_rules(const struct param_table *t, const struct param_rules *r, struct err *err)
{
    if (check_rule(t, "model.freeze", r->freeze, 0, err) < 0 ||
        check_rule(t, "optimizer.no_decay", r->no_decay, 0, err) < 0)
        return -1;
    return check_rule(t, "optimizer.lr_mul", r->lr_mul, 1, err);
}

static int find_group(struct builder *b, const struct ds_param *p, const char *tensor)
{
    const char *name = p->group ? p->group : is_no_decay(p) ? "no_decay" : "decay";
    struct param_table *t = b->t;
    double mul = 1, decay = is_no_decay(p) || is_named(b->rules->no_decay, tensor, NULL)
                                ? 0 : b->rules->weight_decay;

    if (!is_named(b->rules->lr_mul, tensor, &mul))
        mul = 1;
    for (int i = 0; i < t->ngroups; i++)
        if (!strcmp(t->group[i].name, name) && t->group[i].weight_decay == decay && t->group[i].lr_mul == mul)
            return i;
    ARRAY_GROW(t->group, t->ngroups, b->cap_groups);
    t->group[t->ngroups] = (struct param_group){xstrdup(name), decay, mul};
    return t->ngroups++;
}

/* Is this parameter the owner of a tie of any layer? */
static int is_owner(const struct builder *b, int layer, const struct ds_param *p)
{
    char *name = full_name(&b->layers[layer], p, -1);
    int hit = 0;

    for (int l = 0; l < b->t->nlayers && !hit; l++)
        for (int i = 0; i < b->layers[l].nparams && !hit; i++)
            hit = b->layers[l].param[i].tie && !strcmp(b->layers[l].param[i].tie, name);
    free(name);
    return hit;
}

static struct param_tensor *add_tensor(struct builder *b, int layer, int param, int part)
{
    const struct ds_param *p = &b->layers[layer].param[param];
    struct param_table *t = b->t;
    struct param_tensor *x;

    ARRAY_GROW(t->tensor, t->ntensors, b->cap_tensors);
    x = &t->tensor[t->ntensors++];
    memset(x, 0, sizeof *x);
    x->name = full_name(&b->layers[layer], p, part);
    x->layer = layer;
    x->param = param;
    x->part = part;
    x->rows = (uint64_t)p->part[part].rows;
    x->cols = (uint64_t)p->cols;
    x->numel = x->rows * x->cols;
    x->group = find_group(b, p, x->name);
    x->alias = -1;
    x->flags = p->flags | (is_named(b->rules->freeze, x->name, NULL) ? DS_FROZEN : 0);
    x->init = p->init;
    return x;
}

static void add_param(struct builder *b, struct param_flat *f, int layer, int param)
{
    const struct ds_param *p = &b->layers[layer].param[param];
    uint64_t at = round_up(f->numel, ALIGN_ELEMENTS);

    b->t->flat_of[layer][param] = b->t->nflats;
    b->t->at[layer][param] = at; /* base is added when the flat is complete */
    for (int i = 0; i < p->nparts; i++) {
        struct param_tensor *x = add_tensor(b, layer, param, i);

        x->offset = at;
        at += x->numel;
        b->t->numel += x->numel;
        f->ntensors++;
    }
    f->numel = at;
}

static struct param_flat *begin_flat(struct builder *b, int layer)
{
    struct param_table *t = b->t;

    ARRAY_GROW(t->flat, t->nflats, b->cap_flats);
    t->flat[t->nflats] = (struct param_flat){.layer = layer, .first = t->ntensors};
    return &t->flat[t->nflats];
}

static void end_flat(struct builder *b, struct param_flat *f)
{
    struct param_table *t = b->t;
    uint64_t n = (uint64_t)t->ranks;

    if (!f->ntensors)
        return;
    f->slice = (f->numel + ALIGN_ELEMENTS * n - 1) / (ALIGN_ELEMENTS * n) * ALIGN_ELEMENTS;
    f->base = t->total;
    t->total += f->slice * n;
    for (int i = f->first; i < f->first + f->ntensors; i++)
        if (t->tensor[i].part == 0)
            t->at[t->tensor[i].layer][t->tensor[i].param] += f->base;
    t->nflats++;
}

static void add_layer(struct builder *b, int layer)
{
    const struct param_layer *l = &b->layers[layer];
    struct param_flat *f = begin_flat(b, layer);

    for (int pass = 0; pass < 2; pass++) /* decay, then no-decay */
        for (int i = 0; i < l->nparams; i++)
            if (!l->param[i].tie && is_no_decay(&l->param[i]) == pass &&
                !is_owner(b, layer, &l->param[i]))
                add_param(b, f, layer, i);
    end_flat(b, f);
    for (int i = 0; i < l->nparams; i++)
        if (!l->param[i].tie && is_owner(b, layer, &l->param[i])) {
            f = begin_flat(b, layer);
            add_param(b, f, layer, i);
            end_flat(b, f);
        }
}

/* The tensor that owns what (layer, param, part) is tied to. */
static int find_owner(const struct builder *b, const struct ds_param *p, int part)
{
    const struct param_table *t = b->t;

    for (int i = 0; i < t->ntensors; i++) {
        const struct param_tensor *x = &t->tensor[i];
        const struct ds_param *q;
        char *name;
        int hit;

        if (x->alias >= 0 || x->part != part)
            continue;
        q = &b->layers[x->layer].param[x->param];
        name = full_name(&b->layers[x->layer], q, -1);
        hit = !strcmp(name, p->tie) && param_numel(q) == param_numel(p) && q->cols == p->cols;
        free(name);
        if (hit)
            return i;
    }
    return -1;
}

static int add_aliases(struct builder *b, int layer, struct err *err)
{
    const struct param_layer *l = &b->layers[layer];

    for (int i = 0; i < l->nparams; i++) {
        const struct ds_param *p = &l->param[i];

        for (int part = 0; p->tie && part < p->nparts; part++) {
            int owner = find_owner(b, p, part);

            if (owner < 0)
                return err_set(err, ERR_INPUT,
                               "%s.%s is tied to %s, which no layer declares with the same shape",
                               l->name, p->name, p->tie);
            add_tensor(b, layer, i, part)->alias = owner;
            b->t->at[layer][i] = b->t->at[b->t->tensor[owner].layer][b->t->tensor[owner].param];
            b->t->flat_of[layer][i] =
                b->t->flat_of[b->t->tensor[owner].layer][b->t->tensor[owner].param];
        }
    }
    return 0;
}

int param_table_create(struct param_table **out, const struct param_layer *layers, int nlayers,
                       int ranks, const struct param_rules *rules, struct err *err)
{
    struct param_table *t = xcalloc(1, sizeof *t);
    struct builder b = {t, layers, rules, 0, 0, 0};
    int rc = 0;

    t->ranks = ranks;
    t->nlayers = nlayers;
    t->at = xcalloc((size_t)nlayers + 1, sizeof *t->at);
    t->flat_of = xcalloc((size_t)nlayers + 1, sizeof *t->flat_of);
    t->nparams = xcalloc((size_t)nlayers + 1, sizeof *t->nparams);
    for (int l = 0; l < nlayers; l++) {
        t->at[l] = xcalloc((size_t)layers[l].nparams + 1, sizeof **t->at);
        t->flat_of[l] = xcalloc((size_t)layers[l].nparams + 1, sizeof **t->flat_of);
        t->nparams[l] = layers[l].nparams;
    }
    for (int l = 0; l < nlayers; l++)
        add_layer(&b, l);
    for (int l = 0; l < nlayers && !rc; l++)
        rc = add_aliases(&b, l, err);
    if (!rc)
        rc = check_rules(t, rules, err);
    if (rc)
        param_table_destroy(t);
    else
        *out = t;
    return rc;
}

void param_table_destroy(struct param_table *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->ntensors; i++)
        free(t->tensor[i].name);
    for (int i = 0; i < t->ngroups; i++)
        free(t->group[i].name);
    for (int l = 0; l < t->nlayers; l++) {
        free(t->at[l]);
        free(t->flat_of[l]);
    }
    free(t->at);
    free(t->flat_of);
    free(t->nparams);
    free(t->tensor);
    free(t->flat);
    free(t->group);
    free(t);
}

int param_segments(const struct param_table *t, int flat, int rank, struct param_seg **seg)
{
    const struct param_flat *f = &t->flat[flat];
    uint64_t lo = (uint64_t)rank * f->slice, hi = lo + f->slice;
    int n = 0;

    *seg = xmalloc(sizeof **seg * (size_t)(f->ntensors + 1));
    for (int i = f->first; i < f->first + f->ntensors; i++) {
        const struct param_tensor *x = &t->tensor[i];
        uint64_t a = x->offset > lo ? x->offset : lo;
        uint64_t b = x->offset + x->numel < hi ? x->offset + x->numel : hi;

        if (a < b)
            (*seg)[n++] = (struct param_seg){i, a - x->offset, b - x->offset, a - lo};
    }
    return n;
}

/* As rng_normal for each, some at a time. */
static void init_normal(double scale, uint64_t seed, uint32_t site, uint64_t lo, uint64_t hi, float *out)
{
    enum { SOME = 256 };
    double z[SOME];

    for (uint64_t at = lo; at < hi; at += SOME) {
        uint64_t n = hi - at < SOME ? hi - at : SOME;

        rng_normals(seed, site, at, n, z);
        for (uint64_t i = 0; i < n; i++)
            out[at - lo + i] = (float)(scale * z[i]);
    }
}

void param_init_range(const struct param_tensor *x, uint64_t seed, uint64_t lo, uint64_t hi, float *out)
{
    uint32_t site = rng_site(x->name);

    if (x->init.kind == DS_INIT_NORMAL) {
        init_normal(x->init.scale, seed, site, lo, hi, out);
        return;
    }
    for (uint64_t i = lo; i < hi; i++) {
        double v = 0;

        switch (x->init.kind) {
        case DS_INIT_ZERO:
            break;
        case DS_INIT_ONE:
            v = 1;
            break;
        case DS_INIT_NORMAL:
            break;
        case DS_INIT_UNIFORM:
            v = x->init.scale * (2.0 * (double)rng_uniform(rng_word(seed, 0, site, i)) - 1.0);
            break;
        }
        out[i - lo] = (float)v;
    }
}

int param_find(const struct param_table *t, const char *name)
{
    for (int i = 0; i < t->ntensors; i++)
        if (!strcmp(t->tensor[i].name, name))
            return i;
    return -1;
}
