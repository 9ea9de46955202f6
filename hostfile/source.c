/* Allocation sources: where the list of hosts comes from. A file, this machine once or several
 * times over, or invented nodes for plans and tests. */
#include "hostfile/hostfile.h"

#include "engine/base/clock.h"
#include "hostfile/ids.h"
#include "hostfile/nodelist.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILE_MAX_BYTES = 64 << 20,
    PIPE_WAIT_MS = 10000, /* a named pipe that nobody writes to */
    SLOTS_MAX = 1 << 20,
};

/* ---- files ---- */

static int fail_read(const char *path, const char *why, struct err *err)
{
    return err_set(err, ERR_INPUT_FILE, "cannot read the hostfile %s: %s", path, why);
}

/* Appends all of fd. */
static int read_all(int fd, const char *path, struct buf *out, struct err *err)
{
    int64_t deadline = clock_ms() + PIPE_WAIT_MS;

    for (;;) {
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        int64_t left = deadline - clock_ms();
        ssize_t n;

        if (out->len > FILE_MAX_BYTES)
            return fail_read(path, "it is larger than 64 MiB; is this a hostfile?", err);
        if (left <= 0 || poll(&pfd, 1, (int)left) == 0)
            return fail_read(path, "nothing came from it for 10 s; is anyone writing to it?", err);
        buf_reserve(out, 1 << 16);
        n = read(fd, out->data + out->len, 1 << 16);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return fail_read(path, strerror(errno), err);
        if (n > 0) {
            out->len += (size_t)n;
            out->data[out->len] = 0;
            deadline = clock_ms() + PIPE_WAIT_MS;
        }
    }
}

static int open_file(const char *path, struct err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 && errno == ENOENT)
        return fail_read(path,
                         "there is no such file; check the name, or use --hosts local to run "
                         "on this machine",
                         err);
    if (fd < 0)
        return fail_read(path, strerror(errno), err);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        return fail_read(path, "it is a folder; name a file in it", err);
    }
    return fd;
}

int hostfile_read(struct hosts *h, const char *path, struct err *err)
{
    struct buf text = BUF_INIT;
    int fd = open_file(path, err), rc;

    if (fd < 0)
        return -1;
    rc = read_all(fd, path, &text, err);
    close(fd);
    if (rc == 0 && text.len == 0)
        rc = fail_read(path, "it is empty; write one host a line, such as: node01 slots=8", err);
    if (rc == 0)
        rc = hostfile_parse(h, path, text.data, text.len, err);
    buf_clear(&text);
    return rc;
}

/* ---- hosts that are not in a file ---- */

/* Nodes of slots each; the devices of node i begin at i * stride. */
static void invent(struct hosts *h, const char *source, const char *prefix, int width, int first,
                   int nodes, int slots, int stride)
{
    *h = (struct hosts){.n = nodes, .cap = nodes, .source = xstrdup(source)};
    h->host = xcalloc((size_t)nodes, sizeof *h->host);
    for (int i = 0; i < nodes; i++) {
        struct host *host = &h->host[i];

        host->name = width ? xasprintf("%s%0*d", prefix, width, first + i) : xstrdup(prefix);
        host->nslots = slots;
        host->slot = xmalloc((size_t)slots * sizeof *host->slot);
        host->device = xmalloc((size_t)slots * sizeof *host->device);
        for (int s = 0; s < slots; s++) {
            host->slot[s] = s;
            host->device[s] = i * stride + s;
        }
    }
}

/* "N" or "NxM", decimal and nothing else. The number of numbers read, 0 when it is neither. */
static int read_shape(const char *s, int64_t v[2])
{
    for (int i = 0; i < 2; i++) {
        size_t n = strspn(s, "0123456789");

        if (n == 0 || n > 9)
            return 0;
        v[i] = strtoll(s, NULL, 10);
        s += n;
        if (*s == 0)
            return i + 1;
        if (*s++ != 'x')
            return 0;
    }
    return 0;
}

static int refuse_shape(const char *spec, const char *forms, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "\"%.64s\" is no list of hosts; write %s, with 1 to %d nodes and "
                   "1 to %d slots in all",
                   spec, forms, NODELIST_MAX, SLOTS_MAX);
}

static int shape_ok(const int64_t v[2])
{
    return v[0] >= 1 && v[0] <= NODELIST_MAX && v[1] >= 1 && v[1] <= 65536 &&
           v[0] * v[1] <= SLOTS_MAX;
}

static int source_local(struct hosts *h, const char *spec, const char *shape, struct err *err)
{
    int64_t v[2] = {1, 1};
    int n = *shape ? read_shape(shape, v) : 1;

    if (n == 1 && *shape) {
        v[1] = v[0];
        v[0] = 1;
    }
    if (n == 0 || !shape_ok(v) || v[0] * v[1] > IDS_MAX)
        return refuse_shape(spec, "local, local:SLOTS or local:NODESxSLOTS", err);
    if (v[0] == 1)
        invent(h, spec, "localhost", 0, 0, 1, (int)v[1], 0);
    else
        invent(h, spec, "local", 1, 0, (int)v[0], (int)v[1], (int)v[1]);
    return 0;
}

static int source_sim(struct hosts *h, const char *spec, const char *shape, struct err *err)
{
    int64_t v[2] = {1, 1};
    char digits[16];

    if (read_shape(shape, v) != 2 || !shape_ok(v))
        return refuse_shape(spec, "sim:NODESxSLOTS", err);
    invent(h, spec, "sim", snprintf(digits, sizeof digits, "%d", (int)v[0]), 1, (int)v[0],
           (int)v[1], 0);
    return 0;
}

int hosts_source(struct hosts *h, const char *spec, struct err *err)
{
    if (strcmp(spec, "local") == 0)
        return source_local(h, spec, "", err);
    if (strncmp(spec, "local:", 6) == 0)
        return spec[6] ? source_local(h, spec, spec + 6, err)
                       : refuse_shape(spec, "local, local:SLOTS or local:NODESxSLOTS", err);
    if (strncmp(spec, "sim:", 4) == 0)
        return source_sim(h, spec, spec + 4, err);
    if (!*spec)
        return err_set(err, ERR_INPUT,
                       "the name of the hostfile is empty; name a file, or "
                       "local:SLOTS");
    return hostfile_read(h, spec, err);
}
