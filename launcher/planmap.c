/* Prints where ranks sit: see planmap.h. */
#include "launcher/planmap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void map_print(const struct hosts *hosts, const struct place *place, const struct map_rank *ranks,
               struct buf *out)
{
    buf_addf(out, "%-6s %-20s %-6s %-6s %-9s %-5s %s\n", "rank", "host", "local", "slot", "device", "NUMA",
             "cores");
    for (int r = 0; r < place->world; r++) {
        const struct place_rank *k = &place->rank[r];
        const struct map_rank *m = &ranks[r];
        char number[16];

        snprintf(number, sizeof number, "%d", k->device);
        buf_addf(out, "%-6d %-20s %-6d %-6d %-9s %-5s %s\n", r, hosts->host[k->node].name, k->local_rank,
                 k->slot, m->device ? m->device : m->cores ? "-" : number,
                 m->numa && *m->numa ? m->numa : "-",
                 !m->cores ? "the host is not asked" : *m->cores ? m->cores : "not bound");
    }
}

static void add_string(struct buf *out, const char *key, const char *value)
{
    if (!value)
        return;
    buf_addf(out, ",\"%s\":\"", key);
    buf_add_json(out, value, strlen(value));
    buf_addc(out, '"');
}

void map_print_json(const struct hosts *hosts, const struct place *place, const struct map_rank *ranks,
                    struct buf *out)
{
    for (int r = 0; r < place->world; r++) {
        const struct place_rank *k = &place->rank[r];

        buf_addf(out, "%s{\"rank\":%d", r ? "," : "", r);
        add_string(out, "host", hosts->host[k->node].name);
        buf_addf(out, ",\"node\":%d,\"local_rank\":%d,\"slot\":%d,\"device\":%d", k->node, k->local_rank,
                 k->slot, k->device);
        add_string(out, "cuda", ranks[r].device);
        add_string(out, "cores", ranks[r].cores);
        add_string(out, "numa", ranks[r].numa);
        buf_addc(out, '}');
    }
}

void map_devices(struct map_rank *ranks, int n, const char *devices)
{
    for (int i = 0; i < n && *devices; i++) {
        size_t len = strcspn(devices, ",");

        ranks[i].device = xstrndup(devices, len);
        devices += len + (devices[len] == ',');
    }
}

void map_clear(struct map_rank *ranks, int n)
{
    for (int i = 0; ranks && i < n; i++)
        free(ranks[i].device);
    free(ranks);
}
