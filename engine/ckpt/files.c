/* Files and folders of checkpoints: see files.h. */
#include "engine/ckpt/files.h"
#include "engine/base/fault.h"
#include "engine/base/parse.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITE_BYTES (8u << 20) /* one write(2) */

static int sync_fd(int fd)
{
    if (fault_hit("fsync", &errno))
        return -1;
    return fsync(fd);
}

static int write_all(int fd, const char *data, size_t n)
{
    while (n) {
        size_t part = n < WRITE_BYTES ? n : WRITE_BYTES;
        ssize_t done = fault_hit("write", &errno) ? -1 : write(fd, data, part);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        data += done;
        n -= (size_t)done;
    }
    return 0;
}

int file_write(const char *path, const void *data, size_t n, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), failed;

    if (fd < 0)
        return err_set(err, ERR_JOB_IO, "%s cannot be created: %m", path);
    failed = write_all(fd, data, n) < 0 || sync_fd(fd) < 0;
    if (failed)
        err_set(err, ERR_JOB_IO, "%s cannot be written: %m", path);
    if (close(fd) < 0 && !failed)
        failed = err_set(err, ERR_JOB_IO, "%s cannot be written: %m", path);
    return failed ? -1 : 0;
}

int file_rename(const char *from, const char *to, struct err *err)
{
    if (fault_hit("rename", &errno) || rename(from, to) < 0)
        return err_set(err, ERR_JOB_IO, "%s cannot be renamed to %s: %m", from, to);
    return 0;
}

int folder_sync(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = fd < 0 ? -1 : sync_fd(fd);

    if (rc < 0)
        err_set(err, ERR_JOB_IO, "folder %s cannot be synced: %m", path);
    if (fd >= 0)
        close(fd);
    return rc;
}

int file_replace(const char *path, const void *data, size_t n, struct err *err)
{
    const char *slash = strrchr(path, '/');
    char *tmp = xasprintf("%s.tmp", path),
         *folder = slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup(".");
    int rc = file_write(tmp, data, n, err);

    if (rc == 0)
        rc = file_rename(tmp, path, err);
    if (rc == 0)
        rc = folder_sync(folder, err);
    if (rc < 0)
        unlink(tmp);
    free(tmp);
    free(folder);
    return rc;
}

int folder_make(const char *path, struct err *err)
{
    char *copy = xstrdup(path);
    int rc = 0;

    for (char *p = copy + 1; rc == 0; p++) {
        char c = *p;

        if (c && c != '/')
            continue;
        *p = 0;
        if (mkdir(copy, 0777) < 0 && errno != EEXIST)
            rc = err_set(err, ERR_JOB_IO, "folder %s cannot be made: %m", copy);
        *p = c;
        if (!c)
            break;
    }
    free(copy);
    return rc;
}

int folder_remove(const char *path, struct err *err)
{
    char *manifest = xasprintf("%s/manifest.json", path);
    DIR *d = opendir(path);
    struct dirent *e;

    unlink(manifest);
    free(manifest);
    if (!d)
        return errno == ENOENT ? 0 : err_set(err, ERR_JOB_IO, "folder %s cannot be read: %m", path);
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
    if (rmdir(path) < 0 && errno != ENOENT)
        return err_set(err, ERR_JOB_IO, "folder %s cannot be removed: %m", path);
    return 0;
}

int file_read(const char *path, size_t max, struct buf *out, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 1;

    if (fd < 0)
        return err_set(err, ERR_INPUT_FILE, "%s cannot be opened: %m", path);
    while (n && out->len <= max) {
        buf_reserve(out, 1 << 16);
        n = read(fd, out->data + out->len, 1 << 16);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        out->len += (size_t)n;
    }
    if (n < 0)
        err_set(err, ERR_INPUT_FILE, "%s cannot be read: %m", path);
    else if (out->len > max)
        n = err_set(err, ERR_INPUT_FILE, "%s is larger than %zu bytes: not what it should be", path,
                    max);
    close(fd);
    if (out->data)
        out->data[out->len] = 0;
    return n < 0 ? -1 : 0;
}

int step_parse(const char *name, int64_t *step)
{
    return strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9'
               ? -1
               : parse_i64(name + 5, 0, INT64_MAX, step);
}

static int by_time(const void *x, const void *y)
{
    const struct step_folder *a = x, *b = y;

    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return (a->step > b->step) - (a->step < b->step);
}

int step_list(const char *dir, struct step_folder **list)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0, cap = 0;

    *list = NULL;
    while (d && (e = readdir(d))) {
        struct step_folder s;
        struct stat st;
        char *path;

        if (step_parse(e->d_name, &s.step) < 0)
            continue;
        path = xasprintf("%s/%s/manifest.json", dir, e->d_name);
        if (stat(path, &st) == 0) {
            s.time_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
            ARRAY_GROW(*list, n, cap);
            (*list)[n++] = s;
        }
        free(path);
    }
    if (d)
        closedir(d);
    if (n)
        qsort(*list, (size_t)n, sizeof **list, by_time);
    return n;
}

/* "step-N.old" was moved aside for a new step-N: it is that again, unless the new one came. */
static void put_back(const char *dir, const char *name)
{
    char *old = xasprintf("%s/%s", dir, name), *to = xstrndup(old, strlen(old) - strlen(".old"));

    if (access(to, F_OK) == 0 || rename(old, to) < 0)
        folder_remove(old, NULL);
    free(old);
    free(to);
}

static int is_old(const char *name)
{
    size_t n = strlen(name);
    char *step = n > 4 && strcmp(name + n - 4, ".old") == 0 ? xstrndup(name, n - 4) : NULL;
    int64_t number;
    int rc = step && step_parse(step, &number) == 0;

    free(step);
    return rc;
}

void step_clean(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        size_t n = strlen(e->d_name);

        if (n > 10 && strncmp(e->d_name, ".step-", 6) == 0 &&
            strcmp(e->d_name + n - 4, ".tmp") == 0) {
            char *path = xasprintf("%s/%s", dir, e->d_name);

            folder_remove(path, NULL);
            free(path);
        } else if (is_old(e->d_name)) {
            put_back(dir, e->d_name);
        }
    }
    if (d)
        closedir(d);
}
