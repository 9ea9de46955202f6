/* The layer list: what is built from [model], and the sentence for everything that cannot be.
 * Parameter counts are worked by hand. */
#include "engine/model/model.h"
#include "engine/param/param.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct built {
    struct settings_rows rows;
    struct settings settings;
    struct job job;
    struct model *model;
    struct err err;
};

static int build_rows(struct built *b, int64_t vocab)
{
    struct settings *tables[1] = {&b->settings};

    settings_init(&b->settings, job_table, job_table_n, &b->job);
    if (settings_apply(tables, 1, &b->rows, "model.", NULL, &b->err) < 0)
        fail_msg("%s", b->err.text);
    return model_create(&b->model, &b->job, &b->rows, DS_F32, vocab, &b->err);
}

static int build(struct built *b, const char *text, int64_t vocab)
{
    char *file = xasprintf("[data]\nseq_len = 64\n[model]\n%s", text);

    *b = (struct built){0};
    if (settings_read(&b->rows, "job.ini", file, strlen(file), &b->err) < 0)
        fail_msg("%s", b->err.text);
    free(file);
    return build_rows(b, vocab);
}

static void clear(struct built *b)
{
    model_destroy(b->model);
    settings_clear(&b->settings);
    settings_rows_clear(&b->rows);
}

static void refused(const char *text, const char *part)
{
    struct built b;

    assert_int_equal(build(&b, text, 256), -1);
    assert_null(b.model);
    assert_int_equal(err_class(&b.err), ERR_CLASS_INPUT);
    if (!strstr(b.err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", b.err.text, part);
    clear(&b);
}

static void bad_input_gets_a_sentence(void **state)
{
    refused("n_head = 5\n", "n_embd = 768 is not a multiple of n_head = 5");
    refused("n_kv_head = 5\n", "n_kv_head = 5 does not divide n_head = 12");
    refused("form = llama\nn_embd = 9\nn_head = 3\n", "head_dim = 3 is odd");
    refused("n_layers = 3\n", "did you mean model.n_layer?");
    refused("form = bert\n", "form");
    refused("n_layer = 0\n", "n_layer");
    refused("embd_dropout = 1\n", "embd_dropout");
    refused("vocab_size = 200\n",
            "vocab_size = 200 is too small for the data, which has token ids up to 255");
    refused("n_positions = 63\n", "n_positions = 63");
    refused("layers = embedding, blocks*2, norm, head\n", "did you mean block?");
    refused("layers = embedding, zyxwv, norm, head\n", "there are embedding, block, norm, head");
    refused("layers = embedding, block*0, norm, head\n", "\"0\" behind *");
    refused("layers = embedding, block*2x, norm, head\n", "\"2x\" behind *");
    refused("layers = embedding,, norm, head\n", "an empty item");
    refused("layers = embedding, block*1000, block*22, norm, head\n", "more than 1024 layers");
    refused("layers = block, norm, head\n", "block cannot be the first layer");
    refused("layers = embedding, block, norm\n", "norm is the last layer and makes no loss");
    refused("layers = embedding, head, block, head\n", "head.0 is not the last layer");
    refused("layers = embedding, embedding, head\n",
            "embedding must be the first layer, not embedding.1");
    refused("layers = embedding, block*3, norm, head\nn_layer = 4\n", "3 blocks but n_layer is 4");
}

static void no_data_no_vocabulary(void **state)
{
    struct built b;

    assert_int_equal(build(&b, "n_layer = 2\n", 0), -1);
    assert_non_null(strstr(b.err.text, "vocab_size is not set"));
    clear(&b);
    assert_int_equal(build(&b, "n_layer = 2\nvocab_size = 99\n", 0), 0);
    assert_int_equal(b.model->vocab, 99);
    clear(&b);
}

static void the_default_list(void **state)
{
    struct built b;

    assert_int_equal(build(&b, "n_layer = 3\nn_embd = 48\nn_head = 4\n", 256), 0);
    assert_int_equal(b.model->n, 6);
    assert_string_equal(b.model->site[0].name, "embedding");
    assert_string_equal(b.model->site[1].name, "block.0");
    assert_string_equal(b.model->site[3].name, "block.2");
    assert_string_equal(b.model->site[5].name, "head");
    assert_int_equal(b.model->site[2].type_index, 1);
    assert_int_equal(b.model->site[2].type_count, 3);
    assert_int_equal(b.model->vocab, 256);
    assert_int_equal(b.model->max_T, 64); /* learned positions */
    assert_string_equal(b.model->param[5][0].tie, "embedding.wte");
    assert_int_equal(b.model->ntables, 1);
    clear(&b);

    assert_int_equal(build(&b, "form = llama\nlayers = embedding, block * 2 ,norm,head\n", 256), 0);
    assert_int_equal(b.model->n, 5);
    assert_int_equal(b.model->max_T, 0);
    assert_null(b.model->param[4][0].tie);
    clear(&b);
}

static void the_head_can_be_untied(void **state)
{
    struct built b;

    assert_int_equal(build(&b, "tie_embedding = false\n", 256), 0);
    assert_null(b.model->param[b.model->n - 1][0].tie);
    clear(&b);
}

static void the_hash_follows_what_matters(void **state)
{
    struct built a, b;

    assert_int_equal(build(&a, "n_layer = 2\n", 256), 0);
    assert_int_equal(build(&b, "n_layer = 2\nvocab_size = 256\nn_positions = 64\n", 256), 0);
    assert_true(model_hash(a.model) == model_hash(b.model));
    clear(&b);
    assert_int_equal(build(&b, "n_layer = 3\n", 256), 0);
    assert_true(model_hash(a.model) != model_hash(b.model));
    clear(&b);
    assert_int_equal(build(&b, "n_layer = 2\nresid_dropout = 0.1\n", 256), 0);
    assert_true(model_hash(a.model) != model_hash(b.model));
    clear(&b);
    clear(&a);
}

/* 2 (forward) x tokens x weights of matrices, and attention's two products over half of T x T. */
static void operations_are_counted(void **state)
{
    struct built b;
    int64_t block = 2 * 128 * (12 * 48 * 48) + 2 * 128 * 64 * 48, head = 2 * 128 * 48 * 256;

    assert_int_equal(build(&b, "n_layer = 3\nn_embd = 48\nn_head = 4\n", 256), 0);
    assert_int_equal(model_flops(b.model, 2, 64), 3 * block + head);
    clear(&b);
}

/* ---- presets and templates ---- */

static uint64_t parameters(const struct model *m)
{
    struct param_layer *layers = xcalloc((size_t)m->n, sizeof *layers);
    struct param_table *table;
    struct err err = ERR_INIT;
    uint64_t n;

    for (int i = 0; i < m->n; i++)
        layers[i] = (struct param_layer){m->site[i].name, m->param[i], m->nparams[i]};
    if (param_table_create(&table, layers, m->n, 1, &(struct param_rules){0}, &err) < 0)
        fail_msg("%s", err.text);
    n = table->numel;
    param_table_destroy(table);
    free(layers);
    return n;
}

static void count_template(const char *file, int64_t vocab, uint64_t want)
{
    const char *top = getenv("top_srcdir");
    struct built b = {0};
    char *templates = xasprintf("%s/templates", top ? top : "."), *path;

    setenv("DS_TEMPLATES", templates, 1);
    path = xasprintf("%s/%s", templates, file);
    if (job_read(&b.rows, path, &b.err) < 0 || build_rows(&b, vocab) < 0)
        fail_msg("%s", b.err.text);
    assert_int_equal(parameters(b.model), want);
    clear(&b);
    free(path);
    free(templates);
}

/* GPT-2: V C + 1024 C + 12 (12 C^2 + 13 C) + 2 C. Llama: 2 V C + L (C^2 + 2 C KV + C^2 + 3 C F + 2
 * C) + C. */
static void templates_have_the_parameters_they_say(void **state)
{
    count_template("gpt2-124m.ini", 50257, 124439808);
    count_template("models/gpt2-124m.ini", 50257, 124439808);
    count_template("models/llama-60m.ini", 32000,
                   2 * 32000 * 512 +
                       8 * (2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 1376 + 2 * 512) + 512);
    count_template("llama-small.ini", 256,
                   2 * 256 * 384 + 6 * (2 * 384 * 384 + 2 * 384 * 128 + 3 * 384 * 1024 + 2 * 384) +
                       384);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_input_gets_a_sentence),
        cmocka_unit_test(no_data_no_vocabulary),
        cmocka_unit_test(the_default_list),
        cmocka_unit_test(the_head_can_be_untied),
        cmocka_unit_test(the_hash_follows_what_matters),
        cmocka_unit_test(operations_are_counted),
        cmocka_unit_test(templates_have_the_parameters_they_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
