/* Where our own programs lie: see programs.h. */
#include "launcher/programs.h"

#include "engine/base/buf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *self_folder(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    char *slash;

    if (n <= 0)
        return xstrdup(BINDIR);
    path[n] = 0;
    slash = strrchr(path, '/');
    if (slash)
        *slash = 0;
    return xstrdup(path);
}

char *program_find(const char *name, const char *variable, struct err *err)
{
    const char *given = variable ? getenv(variable) : NULL;
    char *self, *path;

    if (given && *given) {
        if (!access(given, X_OK))
            return xstrdup(given);
        err_set(err, ERR_INPUT_FILE, "%s=%s: %m; unset it or name the program", variable, given);
        return NULL;
    }
    self = self_folder();
    path = xasprintf("%s/%s", self, name);
    if (access(path, X_OK)) { /* an installed tree that was moved as a whole */
        free(path);
        path = xasprintf("%s/../libexec/ds-launch/%s", self, name);
    }
    if (access(path, X_OK)) {
        free(path);
        path = xasprintf("%s/%s", PKGLIBEXECDIR, name);
    }
    if (access(path, X_OK)) {
        err_set(err, ERR_INPUT_FILE, "%s is neither in %s nor in %s; install it there", name, self,
                PKGLIBEXECDIR);
        free(path);
        path = NULL;
    }
    free(self);
    return path;
}
