/* ds-rank ckpt inspect|verify: what a checkpoint holds, and whether it is whole. A program: prints.
 */
#include "engine/base/log.h"
#include "engine/base/parse.h"
#include "engine/ckpt/ckpt.h"
#include "engine/ckpt/reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void print_shape(const uint64_t *shape, int ndim)
{
    char text[128];
    int n = 0;

    text[0] = 0;
    for (int i = 0; i < ndim && n < (int)sizeof text - 24; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%" PRIu64, i ? "x" : "", shape[i]);
    printf(" %-16s", text);
}

static void print_bytes(uint64_t bytes)
{
    static const char *const unit[] = {"bytes", "kB", "MB", "GB", "TB"};
    double n = (double)bytes;
    int i = 0;

    while (n >= 1000 && i < 4) {
        n /= 1000;
        i++;
    }
    printf(i && n < 100 ? "%.1f %s" : "%.0f %s", n, unit[i]);
}

static void print_meta(const struct ckpt_meta *m)
{
    printf("step        %" PRId64 " (%" PRId64 " updates, %" PRId64 " samples)\n", m->step,
           m->update, m->samples);
    if (!isnan(m->loss))
        printf("loss        %.4f\n", m->loss);
    if (!isnan(m->valid_loss))
        printf("validation  %.4f\n", m->valid_loss);
    printf("seed        %" PRIu64 "\n", m->seed);
    printf("written by  %d rank%s x %d thread%s, mesh %s, %s, build %s\n", m->world, m->world == 1 ? "" : "s",
           m->threads, m->threads == 1 ? "" : "s", m->mesh, m->isa, m->build);
    printf("hashes      settings %016" PRIx64 ", data %016" PRIx64 "\n", m->config_hash,
           m->data_hash);
}

static int print_plain(const char *path, int verify)
{
    struct st_header h;
    struct err err = ERR_INIT;

    if (st_header_read(&h, path, &err) < 0) {
        log_error("%s", err.text);
        return err_exit_code(&err);
    }
    for (int i = 0; i < h.n; i++) {
        printf("%-48s %-6s", h.entry[i].key, h.entry[i].dtype);
        print_shape(h.entry[i].shape, h.entry[i].ndim);
        printf("  ");
        print_bytes(h.entry[i].bytes);
        printf("\n");
    }
    if (verify && st_verify(&h, path, &err) < 0)
        log_error("%s", err.text);
    else if (verify)
        printf("%s: %d tensors, header and sizes agree; %s\n", path, h.n,
               h.ours ? "so do all hashes of the data" : "it has no hashes");
    st_header_clear(&h);
    return err.code ? err_exit_code(&err) : 0;
}

/* One row for a tensor, whose kinds stand behind each other in the manifest: "w/m/v". Returns how many. */
static int print_tensor(const struct ckpt_entry *t, int n)
{
    char kinds[32] = "";
    size_t len = 0;
    int k;

    for (k = 0; k < n && strcmp(t[k].name, t->name) == 0 && len < sizeof kinds; k++)
        len += (size_t)snprintf(kinds + len, sizeof kinds - len, "%s%s", k ? "/" : "", t[k].kind);
    printf("%-40s %-6s", t->name, kinds);
    print_shape(t->shape, t->ndim);
    printf(" %12" PRIu64 "\n", t->count);
    return k;
}

static void inspect(const struct ckpt *c)
{
    const struct ckpt_entry *t;
    int n = ckpt_tensors(c, &t), rows = 0;
    uint64_t params = 0;

    printf("checkpoint  %s\n", ckpt_path(c));
    print_meta(ckpt_meta(c));
    for (int i = 0; i < c->m.nfiles; i++) {
        printf("file        %s ", c->m.file[i].name);
        print_bytes(c->m.file[i].bytes);
        printf(", %d fragments\n", c->header[i].n);
    }
    for (int i = 0; i < n; i++)
        params += strcmp(t[i].kind, "w") == 0 ? t[i].count : 0;
    for (int i = 0; i < n; rows++)
        i += print_tensor(&t[i], n - i);
    printf("%d tensors, %" PRIu64 " parameters\n", rows, params);
}

static const char usage[] = "usage: ds-launch ckpt inspect|verify FOLDER (a step, ckpt or run folder; or a "
                            ".safetensors file)";
static const char help[] =
    "usage: ds-launch ckpt inspect|verify FOLDER\n"
    "\n"
    "  inspect  prints what a checkpoint holds: step, loss, files, tensors; w its weights, m and v\n"
    "           the optimizer's moments\n"
    "  verify   reads every byte and compares hashes; exit status 0: it is whole\n"
    "  --help   this text\n"
    "\n"
    "FOLDER is a step (ckpt/step-N), ckpt or run folder, of which the newest step is taken, or a\n"
    ".safetensors file.";

int ckpt_main(int argc, char **argv)
{
    struct ckpt *c;
    struct err err = ERR_INIT;
    struct stat st;
    uint64_t bytes;
    int rc, verify;

    if (parse_help(argc, argv, help))
        return 0;
    if (argc > 1 && strcmp(argv[1], "inspect") != 0 && strcmp(argv[1], "verify") != 0) {
        log_error("ckpt %s: there is no such word; %s", argv[1], usage);
        return 2;
    }
    if (argc != 3) {
        log_error("%s", usage);
        return 2;
    }
    verify = strcmp(argv[1], "verify") == 0;
    if (stat(argv[2], &st) == 0 && S_ISREG(st.st_mode))
        return print_plain(argv[2], verify);
    rc = ckpt_open(&c, argv[2], &err);
    if (rc == 0 && verify && ckpt_passed_over(c))
        rc = err_set(&err, ERR_INPUT_FILE, "%s; a resumed run would begin at %s", ckpt_passed_over(c), ckpt_path(c));
    else if (rc == 0 && ckpt_passed_over(c))
        log_warn("%s", ckpt_passed_over(c));
    if (rc == 0 && verify) {
        rc = ckpt_verify(c, &bytes, &err);
        if (rc == 0)
            printf("%s: whole: %d files, %d fragments, %d tensors, %" PRIu64 " bytes\n",
                   ckpt_path(c), c->m.nfiles, c->nhave, c->m.ntensors, bytes);
    } else if (rc == 0) {
        inspect(c);
    }
    ckpt_close(c);
    if (rc < 0)
        log_error("%s", err.text);
    return rc < 0 ? err_exit_code(&err) : 0;
}
