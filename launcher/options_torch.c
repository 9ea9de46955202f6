/* torchrun's words on the command line of ds-launch. What names one node of many is refused (a launch is typed
 * once), what tunes torchrun's own rendezvous has no effect, as there is none: ranks get their table. */
#include "launcher/options_table.h"

#include "engine/base/parse.h"
#include "launcher/torchlog.h"

#include <stdlib.h>
#include <string.h>

#define WORD(name, letter, arg, help) {name, letter, OPT_TORCH, 0, 0, 0, arg, NULL, help}
#define ONCE "type this once, not per node, and leave it out: "

const struct option_row options_torch_rows[] = {
    HEAD("Words of torchrun"),
    WORD("nnodes", 0, "N|MIN:MAX", "the first N hosts; MIN:MAX: up to MAX of them, at least MIN"),
    WORD("nproc-per-node", 0, "N|auto|gpu|cpu", "N ranks on every host; auto, gpu, cpu: as many as this machine has"),
    WORD("standalone", 0, NULL, "this machine only, whatever hostfile there is"),
    WORD("max-restarts", 0, "N", "after a failure start all ranks again, up to N times (default 0)"),
    WORD("rdzv-id", 0, "ID", "TORCHELASTIC_RUN_ID; default: the job's id"),
    WORD("rdzv-backend", 0, "c10d|static", "without effect; etcd is refused"),
    WORD("rdzv-conf", 0, "KEY=VALUE,...", "join_timeout is --connect-timeout; what is for torchrun's store is refused"),
    WORD("rdzv-endpoint", 0, "HOST:PORT", "with --nnodes 1 localhost has no effect; else refused"),
    WORD("node-rank", 0, "N", "with --nnodes 1 number 0 has no effect; else refused: a launch is typed once"),
    WORD("role", 0, "NAME", "ROLE_NAME (default \"default\")"),
    WORD("local-addr", 0, "ADDRESS", "MASTER_ADDR of a launch on one host"),
    WORD("log-dir", 0, "DIR", "write output to DIR/ID_*/attempt_N/RANK/stdout.log and stderr.log too"),
    WORD("tee", 't', "WHICH", "to files and here: 1 stdout, 2 stderr, 3 both; LOCAL_RANK:WHICH,... for some ranks"),
    WORD("redirects", 'r', "WHICH", "to files and not here; the same form"),
    WORD("local-ranks-filter", 0, "LIST", "show only these local ranks, for example 0,2-3"),
    {"use-env", 0, OPT_FLAG, AT(no_local_rank), 0, 0, NULL, NULL, "the same as --no-local-rank"},
    NOTHING("monitor-interval", "SECONDS", "the end of a rank is seen when it happens"),
    NOTHING("start-method", "NAME", "a rank is a program of its own, started by exec"),
    REFUSED("run-path", NULL,
            "it belongs to torchrun's own interpreter; leave it out, the script runs under python3 -u"),
    REFUSED("logs-specs", "NAME",
            "it names a Python plug-in of torchrun; leave it out, and see --log-dir, --tee and --redirects"),
    REFUSED("event-log-handler", "NAME",
            "it names a Python plug-in of torchrun; leave it out, a job's run folder has events.jsonl"),
    REFUSED("signals-to-handle", "LIST",
            "leave it out: INT, TERM, HUP, USR1 and USR2 are passed on to the ranks always"),
    REFUSED("virtual-local-rank", NULL, "leave it out: LOCAL_RANK is the index among all devices of the node"),
    REFUSED("numa-binding", "NAME", "say --bind-to numa, socket or core"),
};
const int options_torch_n = (int)(sizeof options_torch_rows / sizeof options_torch_rows[0]);

static int count(const char *name, const char *v, int *out, struct err *err)
{
    int64_t n;

    if (parse_i64(v, 1, 65536, &n))
        return err_set(err, ERR_INPUT, "--%s %s: give a whole number from 1 to 65536%s", name, v,
                       !strcmp(name, "nnodes") ? ", or MIN:MAX" : ", or auto, gpu, cpu");
    *out = (int)n;
    return 0;
}

static int take_nnodes(struct options *o, const char *v, struct err *err)
{
    const char *colon = strchr(v, ':');
    char *min;
    int rc;

    if (!colon)
        return count("nnodes", v, &o->num_nodes, err);
    min = xstrndup(v, (size_t)(colon - v));
    rc = count("nnodes", min, &o->torch.nodes_min, err) || count("nnodes", colon + 1, &o->torch.nodes_max, err);
    free(min);
    if (!rc && o->torch.nodes_min > o->torch.nodes_max)
        return err_set(err, ERR_INPUT, "--nnodes %s: the least number of hosts is above the largest", v);
    o->num_nodes = -1;
    return rc ? -1 : 0;
}

static int take_nproc(struct options *o, const char *v, struct err *err)
{
    static const char *const words[] = {"auto", "gpu", "cpu"};
    int i;

    for (i = 0; i < 3; i++)
        if (!strcmp(v, words[i])) {
            o->torch.nproc = -1 - i;
            return 0;
        }
    if (count("nproc-per-node", v, &o->torch.nproc, err))
        return -1;
    o->ranks_per_node = o->torch.nproc;
    return 0;
}

static int take_restarts(struct options *o, const char *v, struct err *err)
{
    int64_t n;

    if (parse_i64(v, 0, 1000000, &n))
        return err_set(err, ERR_INPUT, "--max-restarts %s: give a whole number from 0", v);
    o->torch.max_restarts = (int)n;
    return 0;
}

static int take_backend(const char *v, struct err *err)
{
    if (!strcmp(v, "c10d") || !strcmp(v, "static"))
        return 0;
    return err_set(err, ERR_INPUT,
                   "--rdzv-backend %s is not supported: ds-launch hands every rank its place itself and "
                   "asks no store; leave it out",
                   v);
}

/* One KEY=VALUE of --rdzv-conf. Nobody is waited for after the last host has answered, so the timeouts of later
 * phases have nothing to act on. */
static int take_conf(struct options *o, const char *item, struct buf *warn, struct err *err)
{
    static const char *const idle[] = {"last_call_timeout", "close_timeout", "read_timeout", "timeout", NULL};
    size_t n = strcspn(item, "="), i;
    int64_t s;

    if (!item[n] || !n)
        return err_set(err, ERR_INPUT, "--rdzv-conf %s: give KEY=VALUE,KEY=VALUE", item);
    if (n == 12 && !strncmp(item, "join_timeout", n)) {
        if (parse_i64(item + n + 1, 1, 1000000, &s))
            return err_set(err, ERR_INPUT, "--rdzv-conf %s: give whole seconds", item);
        o->torch.join_ms = s * 1000;
        return 0;
    }
    for (i = 0; idle[i]; i++)
        if (strlen(idle[i]) == n && !strncmp(item, idle[i], n)) {
            buf_addf(warn, "--rdzv-conf %s has no effect: ds-launch waits for hosts once, --connect-timeout long\n",
                     idle[i]);
            return 0;
        }
    return err_set(err, ERR_INPUT,
                   "--rdzv-conf %s is not supported: it tunes torchrun's store, and ds-launch has none; "
                   "join_timeout is known, and --ping-limit is when a silent host is lost",
                   item);
}

static int take_confs(struct options *o, const char *v, struct buf *warn, struct err *err)
{
    char *copy = xstrdup(v), *rest = copy, *item;
    int rc = 0;

    while (!rc && (item = strsep(&rest, ",")))
        if (*item)
            rc = take_conf(o, item, warn, err);
    free(copy);
    return rc;
}

static int take_string(char **at, const struct option_row *r, const char *v, struct err *err)
{
    if (!*v)
        return err_set(err, ERR_INPUT, "--%s '': the value is empty", r->name);
    free(*at);
    *at = xstrdup(v);
    return 0;
}

static int take_log(struct options *o, const struct option_row *r, const char *v, struct err *err)
{
    struct torch_options *t = &o->torch;

    if (!strcmp(r->name, "log-dir"))
        return take_string(&t->log_dir, r, v, err);
    if (!strcmp(r->name, "local-ranks-filter")) {
        if (torchlog_filter_check(v))
            return err_set(err, ERR_INPUT, "--local-ranks-filter %s: give local ranks, for example 0,2-3", v);
        return take_string(&t->ranks_shown, r, v, err);
    }
    if (torchlog_which_check(v))
        return err_set(err, ERR_INPUT, "--%s %s: give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or "
                       "LOCAL_RANK:WHICH,...", r->name, v);
    return take_string(*r->name == 't' ? &t->tee : &t->redirects, r, v, err);
}

int options_torch_store(struct options *o, const struct option_row *r, const char *v, struct buf *warn,
                        struct err *err)
{
    struct torch_options *t = &o->torch;

    if (!strcmp(r->name, "nnodes") || !strcmp(r->name, "nproc-per-node") || !strcmp(r->name, "standalone"))
        t->used = 1;
    if (!strcmp(r->name, "nnodes"))
        return take_nnodes(o, v, err);
    if (!strcmp(r->name, "nproc-per-node"))
        return take_nproc(o, v, err);
    if (!strcmp(r->name, "max-restarts"))
        return take_restarts(o, v, err);
    if (!strcmp(r->name, "rdzv-backend"))
        return take_backend(v, err);
    if (!strcmp(r->name, "rdzv-conf"))
        return take_confs(o, v, warn, err);
    if (!strcmp(r->name, "rdzv-id"))
        return take_string(&t->run_id, r, v, err);
    if (!strcmp(r->name, "role"))
        return take_string(&t->role, r, v, err);
    if (!strcmp(r->name, "local-addr"))
        return take_string(&t->local_addr, r, v, err);
    if (!strcmp(r->name, "node-rank"))
        return take_string(&t->node_rank, r, v, err);
    if (!strcmp(r->name, "rdzv-endpoint"))
        return take_string(&t->endpoint, r, v, err);
    if (strcmp(r->name, "standalone"))
        return take_log(o, r, v, err);
    t->standalone = 1;
    return 0;
}

static int is_loopback(const char *endpoint)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *colon = strrchr(endpoint, ':');
    size_t n = colon && !strchr(colon, ']') ? (size_t)(colon - endpoint) : strlen(endpoint), i;

    for (i = 0; i < 3; i++)
        if (strlen(names[i]) == n && !strncmp(names[i], endpoint, n))
            return 1;
    return 0;
}

/* What torchrun asks of each node again says nothing new where there is one. */
static int check_once(const struct options *o, struct err *err)
{
    const struct torch_options *t = &o->torch;
    int one = t->standalone || o->num_nodes == 1 || t->nodes_max == 1;

    if (t->node_rank && !(one && !strcmp(t->node_rank, "0")))
        return err_set(err, ERR_INPUT,
                       "--node-rank %s is not supported: " ONCE "hosts get their numbers in the order of "
                       "the hostfile",
                       t->node_rank);
    if (t->endpoint && !(one && is_loopback(t->endpoint)))
        return err_set(err, ERR_INPUT, "--rdzv-endpoint %s is not supported: " ONCE "the first host is the master; "
                       "--master-addr and --master-port name another place", t->endpoint);
    return 0;
}

int options_torch_check(const struct options *o, struct err *err)
{
    const struct torch_options *t = &o->torch;

    if (t->standalone && (o->hostfile || o->hosts))
        return err_set(err, ERR_INPUT, "--standalone is for this machine only and excludes --hostfile and --hosts");
    if (t->standalone && (o->num_nodes > 1 || t->nodes_min > 1))
        return err_set(err, ERR_INPUT, "--standalone is for one node, but --nnodes asks for more");
    if (t->nproc < 0 && o->ranks_per_node > 0)
        return err_set(err, ERR_INPUT, "--nproc-per-node and --%s say the same; give one of them",
                       options_given(o, " num-gpus num-accelerators "));
    if (o->master_addr && t->local_addr && strcmp(o->master_addr, t->local_addr))
        return err_set(err, ERR_INPUT, "--local-addr and --master-addr differ; give one of them");
    return check_once(o, err);
}

void options_torch_clear(struct torch_options *t)
{
    free(t->run_id);
    free(t->role);
    free(t->node_rank);
    free(t->endpoint);
    free(t->local_addr);
    free(t->log_dir);
    free(t->redirects);
    free(t->tee);
    free(t->ranks_shown);
}
