/* What a run has spent, over all ranks, at its end: see train.h.
 *
 * Every rank puts its numbers in a row, one all-gather brings the rows together, and rank 0 prints of every
 * column the mean or what is least and most.
 */
#include "engine/train/train.h"

#include "engine/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOW, PEAK, MOMENTS };
enum { SENT, RECEIVED, WAYS };

struct row {
    double ms[TIMES]; /* a step */
    double bytes[GROUPS][COLL_OPS][WAYS], calls[GROUPS][COLL_OPS]; /* a step */
    double memory[MEM_CLASSES][MOMENTS], all[MOMENTS], resident;
};
#define COLUMNS (sizeof(struct row) / sizeof(double))

struct rows {
    int n;
    struct row *of; /* [n] ranks, owned */
};

/* Of one column, named by its place in the row of rank 0. */
struct range {
    double min, max, mean;
};

static struct range range_of(const struct rows *rows, const double *column)
{
    size_t at = (size_t)(column - (const double *)rows->of);
    struct range r = {*column, *column, 0};

    for (int i = 0; i < rows->n; i++) {
        double v = ((const double *)&rows->of[i])[at];

        r.min = fmin(r.min, v);
        r.max = fmax(r.max, v);
        r.mean += v / rows->n;
    }
    return r;
}

/* ---- this rank's numbers ---- */

/* Pages that several ranks map are each rank's in part: the sum over the ranks is what the machine holds. NaN
 * where the kernel does not say. */
static double resident_bytes(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    unsigned long long kb;
    double bytes = NAN;
    char line[256];

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %llu kB", &kb) == 1)
            bytes = (double)kb * 1024;
    if (f)
        fclose(f);
    return bytes;
}

static void fill_memory(struct train *t, struct row *row)
{
    struct mem_info m = {0};

    t->dev->ops->info(t->dev, &m);
    for (int c = 0; c < MEM_CLASSES; c++) {
        row->memory[c][NOW] = (double)m.now[c];
        row->memory[c][PEAK] = (double)m.peak[c];
        for (int i = 0; i < MOMENTS; i++)
            row->all[i] += row->memory[c][i];
    }
    row->resident = resident_bytes();
}

static void fill(struct train *t, struct row *row)
{
    const struct account *a = &t->spent;

    account_ms(a, row->ms);
    for (int g = 0; g < GROUPS; g++)
        for (int op = 0; op < COLL_OPS; op++) {
            account_bytes(a, (enum train_group)g, op, row->bytes[g][op]);
            row->calls[g][op] = a->steps ? (double)a->traffic[g].calls[op] / (double)a->steps : 0;
        }
    fill_memory(t, row);
}

/* ---- the table ---- */

static void add_times(const struct rows *rows, struct buf *out)
{
    struct range time[TIMES];
    double all = 0;

    for (int i = 0; i < TIMES; i++) {
        time[i] = range_of(rows, &rows->of->ms[i]);
        all += time[i].mean;
    }
    buf_addf(out, "  %-22s %12s %12s %8s\n", "time, ms a step", "mean", "slowest", "share");
    for (int i = 0; i < TIMES; i++)
        buf_addf(out, "    %-20s %12.3f %12.3f %7.1f%%\n", time_name[i], time[i].mean, time[i].max,
                 all > 0 ? 100 * time[i].mean / all : 0);
    buf_addf(out, "    %-20s %12.3f\n", "all", all);
}

static void bytes_text(double n, char out[40])
{
    char number[32];

    snprintf(out, 40, "%s%sB", human(n, number), n < 1000 ? " " : "");
}

static void add_range(const struct range *r, struct buf *out)
{
    char text[96], least[40], most[40];

    bytes_text(r->min, least);
    bytes_text(r->max, most);
    if (isnan(r->mean))
        snprintf(text, sizeof text, "unknown");
    else if (!strcmp(least, most))
        snprintf(text, sizeof text, "%s", most);
    else
        snprintf(text, sizeof text, "%s to %s", least, most);
    buf_addf(out, " %20s", text);
}

/* A line of the table: what a rank has of two columns. */
static void add_pair(const struct rows *rows, const char *name, const double column[2], struct buf *out)
{
    buf_addf(out, "    %-28s", name);
    for (int i = 0; i < 2; i++) {
        struct range r = range_of(rows, &column[i]);

        add_range(&r, out);
    }
    buf_addc(out, '\n');
}

static void add_network(const struct rows *rows, struct buf *out)
{
    buf_addf(out, "  %-30s %20s %20s\n", "network, bytes a step", "sent", "received");
    for (int g = 0; g < GROUPS; g++)
        for (int op = 0; op < COLL_OPS; op++) {
            char name[64];

            if (!range_of(rows, &rows->of->calls[g][op]).max)
                continue;
            snprintf(name, sizeof name, "%s %s", group_name[g], coll_name((uint32_t)op));
            add_pair(rows, name, rows->of->bytes[g][op], out);
        }
}

static void add_memory(const struct rows *rows, struct buf *out)
{
    struct range resident = range_of(rows, &rows->of->resident);

    buf_addf(out, "  %-30s %20s %20s\n", "memory", "now", "at peak");
    for (int c = 0; c < MEM_CLASSES; c++)
        if (range_of(rows, &rows->of->memory[c][PEAK]).max > 0)
            add_pair(rows, mem_class_name[c], rows->of->memory[c], out);
    add_pair(rows, "all", rows->of->all, out);
    buf_addf(out, "    %-28s", "resident");
    add_range(&resident, out);
    buf_addc(out, '\n');
}

/* ---- the record ---- */

static void record_range(const struct rows *rows, const char *name, const double *column, struct buf *out)
{
    struct range r = range_of(rows, column);

    if (isnan(r.mean))
        buf_addf(out, "\"%s\":null,", name);
    else
        buf_addf(out, "\"%s\":{\"min\":%.15g,\"mean\":%.15g,\"max\":%.15g},", name, r.min, r.mean, r.max);
}

/* Ends an object or array whose last member has left a comma. */
static void close_object(struct buf *out)
{
    if (out->data[out->len - 1] == ',')
        out->len--;
    buf_adds(out, "},");
}

static void record_times(const struct rows *rows, struct buf *out)
{
    buf_adds(out, "\"phase_ms\":{");
    for (int i = 0; i < TIMES; i++)
        record_range(rows, time_name[i], &rows->of->ms[i], out);
    close_object(out);
}

static void record_network(const struct rows *rows, struct buf *out)
{
    buf_adds(out, "\"step_bytes\":{");
    for (int g = 0; g < GROUPS; g++) {
        buf_addf(out, "\"%s\":{", group_name[g]);
        for (int op = 0; op < COLL_OPS; op++) {
            if (!range_of(rows, &rows->of->calls[g][op]).max)
                continue;
            buf_addf(out, "\"%s\":{", coll_name((uint32_t)op));
            record_range(rows, "calls", &rows->of->calls[g][op], out);
            record_range(rows, "sent", &rows->of->bytes[g][op][SENT], out);
            record_range(rows, "received", &rows->of->bytes[g][op][RECEIVED], out);
            close_object(out);
        }
        close_object(out);
    }
    close_object(out);
}

static void record_memory(const struct rows *rows, struct buf *out)
{
    static const char *const key[MOMENTS] = {"memory_bytes", "memory_peak_bytes"};

    for (int i = 0; i < MOMENTS; i++) {
        buf_addf(out, "\"%s\":{", key[i]);
        for (int c = 0; c < MEM_CLASSES; c++)
            record_range(rows, mem_class_name[c], &rows->of->memory[c][i], out);
        record_range(rows, "all", &rows->of->all[i], out);
        close_object(out);
    }
    record_range(rows, "resident_bytes", &rows->of->resident, out);
}

/* ---- both ---- */

static void print(struct train *t, const struct rows *rows)
{
    const struct job *job = &t->setup->job;
    struct buf table = BUF_INIT, record = BUF_INIT;

    buf_addf(&table, "breakdown of %lld step%s on %d rank%s, each rank for itself\n", (long long)t->spent.steps,
             t->spent.steps == 1 ? "" : "s", rows->n, rows->n == 1 ? "" : "s");
    buf_addf(&record, "{\"breakdown\":{\"steps\":%lld,\"ranks\":%d,", (long long)t->spent.steps, rows->n);
    if (job->wall_clock_breakdown) {
        add_times(rows, &table);
        add_network(rows, &table);
        record_times(rows, &record);
        record_network(rows, &record);
    }
    if (job->memory_breakdown) {
        add_memory(rows, &table);
        record_memory(rows, &record);
    }
    close_object(&record);
    record.data[record.len - 1] = '}';
    table.data[--table.len] = 0;
    train_report_text(t, "%s", table.data);
    train_report_record(t, record.data);
    buf_clear(&table);
    buf_clear(&record);
}

int train_report_breakdown(struct train *t, struct err *err)
{
    const struct job *job = &t->setup->job;
    struct rows rows = {.n = t->comm->size};
    struct row own = {0};
    struct coll all = {.op = COLL_ALL_GATHER, .send = &own, .count = COLUMNS, .dtype = DS_F64,
                       .class = CLASS_CONTROL};
    int rc;

    if (!job->wall_clock_breakdown && !job->memory_breakdown)
        return 0;
    fill(t, &own);
    rows.of = xcalloc((size_t)rows.n, sizeof *rows.of);
    all.recv = rows.of;
    rc = comm_run(t->comm, &all, err);
    if (!rc && t->comm->rank == 0)
        print(t, &rows);
    free(rows.of);
    return rc;
}
