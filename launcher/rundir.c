/* The run folder: see rundir.h. */
#include "launcher/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

char *rundir_name(const char *cwd, const char *name, double wall)
{
    time_t t = (time_t)wall;
    struct tm tm;
    char when[32], *path;
    int i;

    localtime_r(&t, &tm);
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", &tm);
    path = xasprintf("%s/ds-runs/%s-%s", cwd, name, when);
    for (i = 2; !access(path, F_OK) && i < 1000; i++) {
        free(path);
        path = xasprintf("%s/ds-runs/%s-%s-%d", cwd, name, when, i);
    }
    return path;
}

/* Makes path, its user's alone (what ranks print and settings say is nobody else's unless the user says so), and the
 * folders above it. */
static int make_all(const char *path, mode_t mode, struct err *err)
{
    char *part = xstrdup(path), *p;

    for (p = part + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            if (mkdir(part, 0777) && errno != EEXIST)
                break;
            *p = '/';
        }
    if (mkdir(part, mode) && errno != EEXIST) {
        err_set(err, ERR_JOB_IO, "cannot make the run folder %s: %s: %m; give another with --run-dir", path,
                part);
        free(part);
        return -1;
    }
    free(part);
    return 0;
}

int rundir_make(const char *path, int again, struct err *err)
{
    static const struct {
        const char *name;
        mode_t mode;
    } folders[] = {{".", 0700}, {"logs", 0700}, {"ckpt", 0777}, {NULL, 0}};
    char *sub;
    int i;

    sub = xasprintf("%s/job.json", path);
    if (!again && !access(sub, F_OK)) {
        free(sub);
        return err_set(err, ERR_INPUT, "%s has a run in it; go on with it by --resume auto, or give "
                       "another folder with --run-dir", path);
    }
    free(sub);
    for (i = 0; folders[i].name; i++) {
        sub = i ? xasprintf("%s/%s", path, folders[i].name) : xstrdup(path);
        if (make_all(sub, folders[i].mode, err)) {
            free(sub);
            return -1;
        }
        free(sub);
    }
    return 0;
}

/* Who holds the lock, as it has written down there. */
static int refuse_lock(const char *path, int fd, struct err *err)
{
    char who[128];
    ssize_t n = pread(fd, who, sizeof who - 1, 0);

    who[n > 0 ? n : 0] = 0;
    who[strcspn(who, "\n")] = 0;
    close(fd);
    return err_set(
        err, ERR_INPUT,
        "a job is running in %s%s%s: wait for its end, end it with ds-launch kill %s, or give another folder "
        "with --run-dir",
        path, *who ? ", " : "", who, path);
}

int rundir_lock(const char *path, struct err *err)
{
    char *name = xasprintf("%s/lock", path), host[65] = "";
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0) {
        err_set(err, ERR_JOB_IO, "cannot make %s: %m", name);
        free(name);
        return -1;
    }
    free(name);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        gethostname(host, sizeof host - 1);
        if (ftruncate(fd, 0) == 0)
            dprintf(fd, "process %d on %s\n", (int)getpid(), host);
        return fd;
    }
    if (errno == EWOULDBLOCK)
        return refuse_lock(path, fd, err);
    close(fd);
    return -2;
}

int rundir_write(const char *path, const char *name, const void *data, size_t n, struct err *err)
{
    char *tmp = xasprintf("%s/.%s.tmp", path, name), *final = xasprintf("%s/%s", path, name);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), rc = -1;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* whose sync makes the rename last */
    const char *p = data;

    while (fd >= 0 && n) {
        ssize_t w = write(fd, p, n);

        if (w < 0 && errno != EINTR)
            break;
        if (w > 0) {
            p += w;
            n -= (size_t)w;
        }
    }
    if (fd >= 0 && folder >= 0 && !n && !fsync(fd) && !rename(tmp, final) && !fsync(folder))
        rc = 0;
    if (rc)
        err_set(err, ERR_JOB_IO, "cannot write %s: %m", final);
    if (fd >= 0)
        close(fd);
    if (folder >= 0)
        close(folder);
    if (rc)
        unlink(tmp);
    free(tmp);
    free(final);
    return rc;
}
