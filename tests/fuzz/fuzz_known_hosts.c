/* Any bytes as a known_hosts file. Laws: every note names a line of the file; a key that is found has a
 * type, a blob and a line; the key of a line that names the host proves it, unless it is revoked; the short way
 * to that verdict finds the same. */
#include "launcher/known_hosts.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void look_up(struct known_hosts *k, const char *host, int port)
{
    struct known_set set = {0};
    const struct known_key *at;
    int bare;

    known_hosts_find(k, host, port, &set, &bare);
    for (int i = 0; i < set.n; i++) {
        const struct known_key *key = set.key[i];
        enum known_status s = known_set_check(&set, bare, key->type, key->blob, &at);
        LAW(*key->type && *key->blob && key->line >= 1 && !strcmp(key->file, "F"));
        LAW(s == KNOWN_REVOKED || (s == KNOWN_OK && !key->revoked));
        LAW(known_hosts_check(k, host, port, key->type, key->blob, &at) == s);
    }
    LAW(known_set_check(&set, bare, "t", "none", &at) == KNOWN_UNKNOWN || at != NULL);
    known_set_clear(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct known_hosts *k = known_hosts_create();
    struct buf notes = BUF_INIT;

    known_hosts_add(k, "F", (const char *)data, n, &notes);
    for (const char *p = buf_str(&notes); *p; p = strchr(p, '\n') + 1)
        LAW(!strncmp(p, "F:", 2) && strchr(p, '\n'));
    look_up(k, "n1", 22);
    look_up(k, "n1", 2222);
    look_up(k, "gate", 2222);
    buf_clear(&notes);
    known_hosts_destroy(k);
    return 0;
}
