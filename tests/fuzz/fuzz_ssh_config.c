/* Any bytes as an ssh_config file. Laws: an error names the file; what was accepted has a sound port and
 * timeout, its notes name the file, and passing over other hosts' blocks finds the same. */
#include "launcher/ssh_config.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check_words(const struct ssh_words *w)
{
    for (int i = 0; i < w->n; i++)
        LAW(!strchr(w->word[i], '\n'));
}

static void check_config(const struct ssh_config *c)
{
    LAW(c->port >= 0 && c->port <= 65535);
    LAW(c->connect_timeout_ms == -1 || c->connect_timeout_ms > 0);
    LAW(c->identities_only >= -1 && c->identities_only <= 1);
    check_words(&c->identity);
    check_words(&c->user_known_hosts);
    check_words(&c->global_known_hosts);
    for (const char *p = buf_str(&c->notes); *p; p = strchr(p, '\n') + 1)
        LAW(!strncmp(p, "F:", 2) && strchr(p, '\n'));
}

static void check_parts(const struct ssh_config *c)
{
    struct ssh_tokens t = {.host = "h", .home = "/u", .port = 22};
    struct buf out = BUF_INIT;
    struct err err = ERR_INIT;
    char *user, *host;
    int port;

    for (int i = 0; i < c->identity.n; i++)
        if (ssh_config_expand(c->identity.word[i], &t, &out, &err))
            LAW(err.code == ERR_INPUT);
    buf_clear(&out);
    if (c->proxy_jump && !ssh_split_destination(c->proxy_jump, strlen(c->proxy_jump), &user, &host, &port)) {
        LAW(*host && port >= 0 && port <= 65535 && (!user || *user));
        free(user);
        free(host);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ssh_config c, skimmed;
    struct err err = ERR_INIT;

    ssh_config_init(&c);
    ssh_config_init(&skimmed);
    skimmed.skim = 1;
    if (ssh_config_apply(&c, "n1", "F", 1, (const char *)data, n, NULL, &err)) {
        LAW(err.code == ERR_INPUT || err.code == ERR_INPUT_FILE);
        LAW(err.text[0] == 'F' && err.text[1] == ':');
    } else {
        check_config(&c);
        check_parts(&c);
        LAW(!ssh_config_apply(&skimmed, "n1", "F", 1, (const char *)data, n, NULL, &err));
        LAW(skimmed.port == c.port && skimmed.identity.n == c.identity.n);
        LAW(!strcmp(buf_str(&skimmed.notes), buf_str(&c.notes)));
    }
    ssh_config_clear(&c);
    ssh_config_clear(&skimmed);
    return 0;
}
