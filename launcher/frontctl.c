/* The running job as `ds-launch ps` and `ds-launch kill` see it: what stands in its answer, and signals. */
#include "launcher/front.h"

#include <string.h>
#include <unistd.h>

static void add_string(struct buf *b, const char *key, const char *value)
{
    buf_addf(b, ",\"%s\":\"", key);
    buf_add_json(b, value, strlen(value));
    buf_addc(b, '"');
}

static void add_command(const struct front *f, struct buf *out)
{
    const struct task *t = f->task;
    int i;

    if (t->engine)
        buf_adds(out, t->job_file);
    for (i = 0; i < t->argc && !t->engine; i++)
        buf_addf(out, "%s%s", i ? " " : "", t->argv[i]);
}

static void info(void *ctx, struct buf *b)
{
    const struct front *f = ctx;
    struct buf text = BUF_INIT;
    char self[256] = "";

    gethostname(self, sizeof self - 1);
    /* the outer process: the one that takes signals (keeper.h) */
    buf_addf(b, "{\"pid\":%d,\"began\":%.3f,\"nodes\":%d,\"world\":%d", (int)getppid(), f->began_wall,
             f->place.nodes, f->place.world);
    add_string(b, "id", f->task->job_id);
    add_string(b, "name", f->task->name);
    add_string(b, "state", jobstate_name(f->machine.state));
    add_string(b, "host", self);
    hosts_print_list(f->hosts, &text);
    while (text.len && text.data[text.len - 1] == '\n')
        text.data[--text.len] = 0;
    add_string(b, "hosts", buf_str(&text));
    buf_reset(&text);
    add_command(f, &text);
    add_string(b, "command", buf_str(&text));
    add_string(b, "cwd", f->task->cwd);
    if (f->run_dir)
        add_string(b, "run_dir", f->run_dir);
    buf_addc(b, '}');
    buf_clear(&text);
}

static void take_signal(void *ctx, int signo)
{
    front_signal(ctx, signo);
}

void front_control_open(struct front *f)
{
    static const struct control_events events = {info, take_signal};
    struct err err = ERR_INIT;

    f->control = control_open(&f->loop, f->task->job_id, &events, f, &err);
    if (!f->control)
        front_say(f, LOG_WARN, "ds-launch ps and kill cannot reach this job: %s", err.text);
}
