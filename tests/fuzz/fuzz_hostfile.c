/* Any bytes as a hostfile. Laws: each error line begins with the file's name; a list that was accepted
 * has unique names and sound slots, and printing does not fail. */
#include "hostfile/hostfile.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check_hosts(const struct hosts *h)
{
    struct buf out = BUF_INIT;

    LAW(h->n > 0);
    for (int i = 0; i < h->n; i++) {
        const struct host *host = &h->host[i];

        LAW(host->name[0] && host->nslots >= 1 && host->nslots <= 65536);
        LAW(host->port >= 0 && host->port <= 65535 && host->line >= 1);
        LAW(i == 0 || strcmp(host->name, h->host[i - 1].name) != 0);
    }
    if (hosts_total(h) < 10000) {
        hosts_print_table(h, &out);
        hosts_print_list(h, &out);
        hosts_print_json(h, &out);
        LAW(out.len > 0);
    }
    buf_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct hosts h = {0};
    struct err err = ERR_INIT;

    if (hostfile_parse(&h, "F", (const char *)data, n, &err)) {
        LAW(h.n == 0 && err.code == ERR_INPUT);
        for (const char *p = err.text; p; p = strchr(p, '\n')) {
            p += *p == '\n';
            LAW(strncmp(p, "F:", 2) == 0 || strncmp(p, "... and ", 8) == 0);
        }
        return 0;
    }
    check_hosts(&h);
    hosts_clear(&h);
    return 0;
}
