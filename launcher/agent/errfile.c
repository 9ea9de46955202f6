/* The error file of a rank (torchrun's TORCHELASTIC_ERROR_FILE): memory that is reached through /proc, so that
 * nothing is left on a node's disk however it ends. What the rank wrote is sent before its EXIT. */
#include "launcher/agent/agent.h"

#include <sys/mman.h>
#include <unistd.h>

#define MOST 65536 /* bytes of it that are sent */

char *errfile_open(struct rank *r)
{
    r->error_fd = lift_fd(memfd_create("error.json", MFD_CLOEXEC));
    return r->error_fd < 0 ? NULL : xasprintf("/proc/%d/fd/%d", (int)getpid(), r->error_fd);
}

void errfile_close(struct rank *r)
{
    if (r->error_fd >= 0)
        close(r->error_fd);
    r->error_fd = -1;
}

void errfile_send(struct rank *r)
{
    struct buf b = BUF_INIT;
    ssize_t n;

    if (r->error_fd < 0)
        return;
    put_u32(&b, (uint32_t)r->number);
    buf_reserve(&b, MOST);
    n = pread(r->error_fd, b.data + b.len, MOST, 0);
    if (n > 0) {
        b.len += (size_t)n;
        chan_sendb(r->team->agent->chan, MSG_ERROR, r->team->epoch, &b);
    }
    buf_clear(&b);
    errfile_close(r);
}
