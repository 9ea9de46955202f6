/* --venv_script: one shell on the node sources it, in the environment and folder that the ranks would have, and
 * becomes this program again, which prints what the environment is then, each entry ended by a NUL byte. So
 * nothing of it passes through a shell's quoting. The script's own output goes to stderr. */
#include "launcher/agent/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void venv_exec(const struct spawn *s, char **env, pid_t agent)
{
    const char *shell = access("/bin/bash", X_OK) ? "/bin/sh" : "/bin/bash";
    char self[32];
    char *argv[] = {(char *)(uintptr_t)shell, "-c", ". \"$1\" >&2; exec \"$2\" --environment", "ds-agent", s->venv,
                    self, NULL};

    snprintf(self, sizeof self, "/proc/%d/exe", (int)agent);
    execve(shell, argv, env);
}

int venv_print(void)
{
    for (char **e = environ; *e; e++)
        if (fwrite(*e, 1, strlen(*e) + 1, stdout) != strlen(*e) + 1)
            return 1;
    return fflush(stdout) != 0;
}

/* The shell's own variables are none of the script's. */
static int is_shells(const char *entry)
{
    return !strncmp(entry, "_=", 2) || !strncmp(entry, "OLDPWD=", 7) || !strncmp(entry, "SHLVL=", 6) ||
           !strchr(entry, '=');
}

char **venv_take(const char *text, size_t n)
{
    const char *p, *end = text + n;
    char **env;
    int count = 0;

    if (!n || end[-1])
        return NULL;
    for (p = text; p < end; p += strlen(p) + 1)
        count++;
    env = xcalloc((size_t)count + 1, sizeof *env);
    count = 0;
    for (p = text; p < end; p += strlen(p) + 1)
        if (!is_shells(p))
            env[count++] = xstrdup(p);
    return env;
}

void venv_late(struct spawn *s)
{
    int gone = s->nenv - s->nlate;

    for (int i = 0; i < gone; i++)
        free(s->env[i]);
    memmove(s->env, s->env + gone, (size_t)s->nlate * sizeof *s->env);
    s->nenv = s->nlate;
    s->env[s->nenv] = NULL;
}
