/* Building a model from its settings. See model.h.
 *
 * One settings table is bound per distinct table among the types of the list: the built-in types
 * share one, so "n_embd" is said once. A model that was created has passed every layer's check, and
 * its outputs fit the next layer's input.
 */
#include "engine/model/model.h"

#include "engine/base/hash.h"
#include "engine/model/config.h"
#include "engine/model/list.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_LAYERS "embedding, block, norm, head"

/* ---- settings ---- */

static const struct settings_row *row_of(const struct settings_rows *rows, const char *path)
{
    for (int i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].path, path) == 0)
            return &rows->row[i];
    return NULL;
}

/* Field of an SETTING_INT path in any bound table, NULL when no layer has it. */
static const int64_t *find_int(const struct model *m, const char *path)
{
    for (int t = 0; t < m->ntables; t++)
        for (int i = 0; i < m->tables[t].n; i++)
            if (m->tables[t].table[i].type == SETTING_INT &&
                strcmp(m->tables[t].table[i].path, path) == 0)
                return (const int64_t *)((const char *)m->tables[t].config +
                                         m->tables[t].table[i].offset);
    return NULL;
}

/* The config that the type's layers point to, bound on first use; NULL when it has no settings. */
static void *bind_type(struct model *m, const struct ds_layer_ops *ops)
{
    if (!ops->nsettings)
        return NULL;
    for (int t = 0; t < m->ntables; t++)
        if (m->tables[t].table == ops->settings)
            return m->tables[t].config;
    m->tables = xrealloc(m->tables, (size_t)(m->ntables + 1) * sizeof *m->tables);
    settings_init(&m->tables[m->ntables], ops->settings, ops->nsettings,
                  xcalloc(1, ops->config_bytes));
    return m->tables[m->ntables++].config;
}

/* Fills in what comes from the data where a layer has the key and the job left it open: not at all, as 0 or as
 * auto. */
static void add_default(struct settings_rows *rows, const struct model *m, const char *path,
                        int64_t value)
{
    const struct settings_row *row = row_of(rows, path);
    char *text;

    if (value <= 0 || !find_int(m, path) || (row && strcmp(row->value, "0") && strcmp(row->value, "auto")))
        return;
    text = xasprintf("%lld", (long long)value);
    settings_rows_add(rows, path, text, "[data]");
    free(text);
}

/* Applies the [model] rows to every bound table; [model] has keys of the job's own beside them. */
static int apply(struct model *m, const struct job *job, const struct settings_rows *rows,
                 int64_t data_vocab, struct err *err)
{
    struct job scratch = {0};
    struct settings own, **tables = xcalloc((size_t)m->ntables + 1, sizeof *tables);
    struct settings_rows mine = {0};
    int rc;

    for (int i = 0; i < rows->n; i++)
        if (strncmp(rows->row[i].path, "model.", 6) == 0)
            settings_rows_add(&mine, rows->row[i].path, rows->row[i].value, rows->row[i].where);
    add_default(&mine, m, "model.vocab_size", data_vocab);
    add_default(&mine, m, "model.n_positions", job->seq_len);
    settings_init(&own, job_table, job_table_n, &scratch);
    tables[0] = &own;
    for (int t = 0; t < m->ntables; t++)
        tables[t + 1] = &m->tables[t];
    rc = settings_apply(tables, m->ntables + 1, &mine, NULL, NULL, err);
    settings_clear(&own);
    settings_rows_clear(&mine);
    free(tables);
    return rc;
}

/* ---- the list ---- */

/* n_layer says how many blocks the default list has; beside a list of the user's it may only agree.
 */
static int check_n_layer(const struct model *m, const struct settings_rows *rows, const char *where,
                         struct err *err)
{
    const int64_t *n_layer = find_int(m, "model.n_layer");
    int blocks = 0;

    if (!n_layer || !row_of(rows, "model.n_layer"))
        return 0;
    for (int i = 0; i < m->n; i++)
        blocks += m->ops[i] == &layer_block;
    if (blocks == *n_layer)
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: [model] layers has %d blocks but n_layer is %lld (%s): make them agree, or "
                   "leave one out",
                   where, blocks, (long long)*n_layer, row_of(rows, "model.n_layer")->where);
}

static int build_list(struct model *m, const struct job *job, const struct settings_rows *rows,
                      int64_t data_vocab, struct err *err)
{
    const struct settings_row *row = row_of(rows, "model.layers");
    const char *where = row ? row->where : "the default";
    char *text = NULL;

    m->n = list_parse(job->layers ? job->layers : DEFAULT_LAYERS, where, &m->ops, err);
    if (m->n < 0) {
        m->n = 0;
        return -1;
    }
    for (int i = 0; i < m->n; i++)
        bind_type(m, m->ops[i]);
    if (apply(m, job, rows, data_vocab, err) < 0)
        return -1;
    if (job->layers)
        return check_n_layer(m, rows, where, err);
    free(m->ops);
    m->ops = NULL;
    text = xasprintf("embedding, block*%lld, norm, head", (long long)*find_int(m, "model.n_layer"));
    m->n = list_parse(text, where, &m->ops, err);
    free(text);
    return m->n < 0 ? (m->n = 0, -1) : 0;
}

static int count_type(const struct model *m, int n, const struct ds_layer_ops *ops)
{
    int count = 0;

    for (int i = 0; i < n; i++)
        count += m->ops[i] == ops;
    return count;
}

static void build_sites(struct model *m, const struct job *job, enum ds_dtype dtype)
{
    m->site = xcalloc((size_t)m->n, sizeof *m->site);
    for (int i = 0; i < m->n; i++) {
        struct ds_site *s = &m->site[i];
        const char *type = m->ops[i]->type;

        s->index = i;
        s->count = m->n;
        s->type_index = count_type(m, i, m->ops[i]);
        s->type_count = count_type(m, m->n, m->ops[i]);
        s->name = s->type_count > 1 ? xasprintf("%s.%d", type, s->type_index) : xstrdup(type);
        s->config = bind_type(m, m->ops[i]);
        s->dtype = dtype;
        s->tp_size = 1;
        s->seed = (uint64_t)job->seed;
    }
}

/* ---- checks ---- */

static int check_layers(const struct model *m, const struct job *job, struct err *err)
{
    struct ds_tensor x = {0}, y;
    int64_t T = job->seq_len > 0 ? job->seq_len : 1;

    for (int i = 0; i < m->n; i++) {
        int last = i == m->n - 1, loss = (m->ops[i]->caps & DS_CAP_LOSS) != 0;

        if (last != loss)
            return err_set(
                err, ERR_INPUT,
                "[model] layers: %s is %s; a model ends in exactly one layer that makes the "
                "loss, such as head",
                m->site[i].name,
                last ? "the last layer and makes no loss"
                     : "not the last layer but makes the loss");
        if (m->ops[i]->check(&m->site[i], &x, err) < 0 ||
            m->ops[i]->shapes(&m->site[i], 1, T, &x, &y, err) < 0)
            return -1;
        x = y;
    }
    return 0;
}

static int check_param(const struct ds_site *site, const struct ds_param *p, struct err *err)
{
    int bad = !p->name || !*p->name || p->nparts < 1 || p->nparts > 4 || p->cols < 1 || p->unit < 1;

    for (int i = 0; !bad && i < p->nparts; i++)
        bad = !p->part[i].name || p->part[i].rows < 1 || p->part[i].rows % p->unit;
    if (bad)
        return err_set(
            err, ERR_JOB_INTERNAL,
            "layer %s declares a parameter %s without a name, or with no rows or columns, or "
            "rows that its unit does not divide",
            site->name, p->name ? p->name : "");
    return 0;
}

static int build_params(struct model *m, struct err *err)
{
    m->param = xcalloc((size_t)m->n, sizeof *m->param);
    m->nparams = xcalloc((size_t)m->n, sizeof *m->nparams);
    for (int i = 0; i < m->n; i++) {
        m->param[i] = xcalloc(DS_MAX_PARAMS, sizeof **m->param);
        m->nparams[i] = m->ops[i]->params(&m->site[i], m->param[i], err);
        if (m->nparams[i] < 0)
            return -1;
        for (int p = 0; p < m->nparams[i]; p++)
            if (check_param(&m->site[i], &m->param[i][p], err) < 0)
                return -1;
    }
    return 0;
}

/* Does layer.name spell full? */
static int is_named(const struct ds_site *site, const struct ds_param *p, const char *full)
{
    size_t n = strlen(site->name);

    return strncmp(full, site->name, n) == 0 && full[n] == '.' &&
           strcmp(full + n + 1, p->name) == 0;
}

static int same_shape(const struct ds_param *a, const struct ds_param *b)
{
    if (a->nparts != b->nparts || a->cols != b->cols || a->unit != b->unit || a->cut != b->cut)
        return 0;
    for (int i = 0; i < a->nparts; i++)
        if (a->part[i].rows != b->part[i].rows)
            return 0;
    return 1;
}

static int check_tie(const struct model *m, int layer, const struct ds_param *p, struct err *err)
{
    for (int i = 0; i < m->n; i++)
        for (int j = 0; j < m->nparams[i]; j++) {
            const struct ds_param *owner = &m->param[i][j];

            if (!is_named(&m->site[i], owner, p->tie))
                continue;
            if (!owner->tie && same_shape(owner, p))
                return 0;
            return err_set(err, ERR_INPUT,
                           "[model] %s.%s is tied to %s, which %s: set tie_embedding = false",
                           m->site[layer].name, p->name, p->tie,
                           owner->tie ? "is tied itself" : "has another shape");
        }
    return err_set(
        err, ERR_INPUT,
        "[model] %s.%s is tied to %s, which no layer of the list has: set tie_embedding = "
        "false",
        m->site[layer].name, p->name, p->tie);
}

static int check_ties(const struct model *m, struct err *err)
{
    for (int i = 0; i < m->n; i++)
        for (int j = 0; j < m->nparams[i]; j++)
            if (m->param[i][j].tie && check_tie(m, i, &m->param[i][j], err) < 0)
                return -1;
    return 0;
}

static int check_vocab(const struct model *m, const struct settings_rows *rows, int64_t data_vocab,
                       struct err *err)
{
    const struct settings_row *row = row_of(rows, "model.vocab_size");

    if (!m->vocab || m->vocab >= data_vocab)
        return 0;
    return err_set(
        err, ERR_INPUT,
        "%s: model.vocab_size = %lld is too small for the data, which has token ids up to "
        "%lld: set at least %lld, or leave it out",
        row ? row->where : "[model]", (long long)m->vocab, (long long)data_vocab - 1,
        (long long)data_vocab);
}

/* n_positions when a longer sample is refused, else 0. */
static int64_t longest_sample(const struct model *m)
{
    const int64_t *n = find_int(m, "model.n_positions");
    struct ds_tensor x = {0}, y;

    if (!n || !*n)
        return 0;
    for (int i = 0; i < m->n; i++) {
        if (m->ops[i]->shapes(&m->site[i], 1, *n + 1, &x, &y, NULL) < 0)
            return *n;
        x = y;
    }
    return 0;
}

/* ---- create, destroy ---- */

static int build(struct model *m, const struct job *job, const struct settings_rows *rows,
                 enum ds_dtype dtype, int64_t data_vocab, struct err *err)
{
    const int64_t *vocab;

    if (build_list(m, job, rows, data_vocab, err) < 0)
        return -1;
    build_sites(m, job, dtype);
    vocab = find_int(m, "model.vocab_size");
    m->vocab = vocab ? *vocab : data_vocab;
    if (check_vocab(m, rows, data_vocab, err) < 0 || check_layers(m, job, err) < 0 ||
        build_params(m, err) < 0 || check_ties(m, err) < 0)
        return -1;
    m->max_T = longest_sample(m);
    return 0;
}

int model_create(struct model **out, const struct job *job, const struct settings_rows *rows,
                 enum ds_dtype dtype, int64_t data_vocab, struct err *err)
{
    struct model *m = xcalloc(1, sizeof *m);

    if (build(m, job, rows, dtype, data_vocab, err) < 0) {
        model_destroy(m);
        return -1;
    }
    *out = m;
    return 0;
}

void model_destroy(struct model *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n; i++) {
        if (m->site)
            free((char *)m->site[i].name);
        if (m->param)
            free(m->param[i]);
    }
    for (int t = 0; t < m->ntables; t++) {
        void *config = m->tables[t].config;

        settings_clear(&m->tables[t]);
        free(config);
    }
    free(m->tables);
    free(m->ops);
    free(m->site);
    free(m->param);
    free(m->nparams);
    free(m);
}

uint64_t model_hash(const struct model *m)
{
    struct buf text = BUF_INIT;
    uint64_t h;

    for (int i = 0; i < m->n; i++)
        buf_addf(&text, "%s\n", m->ops[i]->type);
    for (int t = 0; t < m->ntables; t++)
        buf_addf(&text, "%016llx\n", (unsigned long long)settings_hash(&m->tables[t]));
    h = hash64(buf_str(&text), text.len);
    buf_clear(&text);
    return h;
}

int64_t model_flops(const struct model *m, int64_t B, int64_t T)
{
    int64_t n = 0;

    for (int i = 0; i < m->n; i++)
        n += m->ops[i]->flops(&m->site[i], B, T);
    return n;
}
