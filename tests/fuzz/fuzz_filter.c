/* Any text as --include and --exclude. Laws: refused and the list is untouched, or what is included and
 * what the same text excludes are the whole list, without overlap. */
#include "hostfile/hostfile.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static const char file[] = "w[1-4] slots=4\nx slots=2 devices=6,7\n[::1]:1\n";
enum { TOTAL = 4 * 4 + 2 + 1 };

static int apply(const char *include, const char *exclude, struct err *err)
{
    struct host_filter f = {.include = include, .exclude = exclude, .num_nodes = -1, .num_slots = -1};
    struct hosts h = {0};
    int rc, total;

    LAW(hostfile_parse(&h, "F", file, sizeof file - 1, err) == 0);
    rc = hosts_filter(&h, &f, err);
    total = hosts_total(&h);
    LAW(rc == 0 ? total > 0 : total == TOTAL);
    hosts_clear(&h);
    return rc ? -1 : total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char text[512];
    struct err err = ERR_INIT, other = ERR_INIT;
    int in, out;

    if (n >= sizeof text)
        return 0;
    memcpy(text, data, n);
    text[n] = 0;
    in = apply(text, NULL, &err);
    out = apply(NULL, text, &other);
    if (!*text)
        LAW(in == TOTAL && out == TOTAL);
    else if (in < 0)
        LAW(out < 0 && err.text[0] && other.text[0]);
    else
        LAW(in == TOTAL ? out < 0 : in + out == TOTAL);
    return 0;
}
