/* The file of --save_pid: see pidfile.h. Its name can be foreseen and /tmp is everybody's, so it is only ever
 * made anew, never followed or written into. */
#include "launcher/pidfile.h"

#include "engine/base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int make(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

int pidfile_make(char **path, struct err *err)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%d", (int)getpid());
    struct stat st;
    int fd;

    *path = xasprintf("/tmp/%d.deepspeed", (int)getpid());
    fd = make(*path);
    if (fd < 0 && errno == EEXIST && !lstat(*path, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        !unlink(*path))
        fd = make(*path);
    if (fd >= 0 && write(fd, text, (size_t)n) == n && !close(fd))
        return 0;
    err_set(err, ERR_INPUT_FILE, "--save_pid: cannot make %s: %m", *path);
    if (fd >= 0)
        unlink(*path);
    free(*path);
    *path = NULL;
    return -1;
}

void pidfile_remove(char *path)
{
    if (path)
        unlink(path);
    free(path);
}
