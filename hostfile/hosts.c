/* The list of hosts itself: ownership, totals, and the three ways it is printed. */
#include "hostfile/hostfile.h"

#include "hostfile/nodelist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void host_clear(struct host *host)
{
    free(host->name);
    free(host->user);
    free(host->slot);
    free(host->device);
}

void hosts_drop(struct hosts *h, int i)
{
    host_clear(&h->host[i]);
    memmove(&h->host[i], &h->host[i + 1], (size_t)(h->n - i - 1) * sizeof *h->host);
    h->n--;
}

void hosts_clear(struct hosts *h)
{
    for (int i = 0; i < h->n; i++)
        host_clear(&h->host[i]);
    free(h->host);
    free(h->source);
    *h = (struct hosts){0};
}

int hosts_total(const struct hosts *h)
{
    int total = 0;

    for (int i = 0; i < h->n; i++)
        total += h->host[i].nslots;
    return total;
}

/* "0-3,5": numbers in the order given, runs upwards as ranges. */
static void print_ids(const int *id, int n, struct buf *out)
{
    for (int i = 0; i < n;) {
        int j = i + 1;

        while (j < n && id[j] == id[j - 1] + 1)
            j++;
        buf_addf(out, "%s%d", i ? "," : "", id[i]);
        if (j > i + 1)
            buf_addf(out, "-%d", id[j - 1]);
        i = j;
    }
}

enum { COLUMNS = 6 };

static void table_row(const struct host *host, struct buf cell[COLUMNS])
{
    for (int c = 0; c < COLUMNS; c++)
        buf_reset(&cell[c]);
    buf_adds(&cell[0], host->name);
    buf_addf(&cell[1], "%d", host->nslots);
    print_ids(host->slot, host->nslots, &cell[2]);
    print_ids(host->device, host->nslots, &cell[3]);
    buf_adds(&cell[4], host->user ? host->user : "-");
    if (host->port)
        buf_addf(&cell[5], "%d", host->port);
    else
        buf_adds(&cell[5], "-");
}

static void table_line(const char *const text[COLUMNS], const size_t width[COLUMNS],
                       struct buf *out)
{
    for (int c = 0; c < COLUMNS; c++)
        buf_addf(out, "%-*s%s", c < COLUMNS - 1 ? (int)width[c] : 0, text[c],
                 c < COLUMNS - 1 ? "  " : "\n");
}

void hosts_print_table(const struct hosts *h, struct buf *out)
{
    static const char *const head[COLUMNS] = {"HOST", "SLOTS", "IDS", "DEVICES", "USER", "PORT"};
    struct buf cell[COLUMNS] = {{0}};
    const char *text[COLUMNS];
    size_t width[COLUMNS];
    int total = hosts_total(h);

    for (int c = 0; c < COLUMNS; c++)
        width[c] = strlen(head[c]);
    for (int i = 0; i < h->n; i++) {
        table_row(&h->host[i], cell);
        for (int c = 0; c < COLUMNS; c++)
            if (cell[c].len > width[c])
                width[c] = cell[c].len;
    }
    table_line(head, width, out);
    for (int i = 0; i < h->n; i++) {
        table_row(&h->host[i], cell);
        for (int c = 0; c < COLUMNS; c++)
            text[c] = buf_str(&cell[c]);
        table_line(text, width, out);
    }
    for (int c = 0; c < COLUMNS; c++)
        buf_clear(&cell[c]);
    buf_addf(out, "%d host%s, %d slot%s\n", h->n, h->n == 1 ? "" : "s", total,
             total == 1 ? "" : "s");
}

void hosts_print_list(const struct hosts *h, struct buf *out)
{
    char **name = xcalloc((size_t)h->n + 1, sizeof *name);

    for (int i = 0; i < h->n; i++)
        name[i] = strchr(h->host[i].name, ':') ? xasprintf("[%s]", h->host[i].name)
                                               : xstrdup(h->host[i].name);
    nodelist_print(name, h->n, out);
    for (int i = 0; i < h->n; i++)
        free(name[i]);
    free(name);
}

static void json_ids(const char *key, const int *id, int n, struct buf *out)
{
    buf_addf(out, ",\"%s\":[", key);
    for (int i = 0; i < n; i++)
        buf_addf(out, "%s%d", i ? "," : "", id[i]);
    buf_addc(out, ']');
}

void hosts_print_json(const struct hosts *h, struct buf *out)
{
    buf_adds(out, "{\"hosts\":[");
    for (int i = 0; i < h->n; i++) {
        const struct host *host = &h->host[i];

        buf_adds(out, i ? ",{\"name\":\"" : "{\"name\":\"");
        buf_add_json(out, host->name, strlen(host->name));
        buf_addc(out, '"');
        json_ids("slots", host->slot, host->nslots, out);
        json_ids("devices", host->device, host->nslots, out);
        if (host->user) {
            buf_adds(out, ",\"user\":\"");
            buf_add_json(out, host->user, strlen(host->user));
            buf_addc(out, '"');
        } else {
            buf_adds(out, ",\"user\":null");
        }
        if (host->port)
            buf_addf(out, ",\"port\":%d}", host->port);
        else
            buf_adds(out, ",\"port\":null}");
    }
    buf_adds(out, "]}\n");
}
