/* Messages to stderr: see log.h. One write(2) per line, so that lines of many processes on one
 * pipe stay whole (up to PIPE_BUF). */
#include "engine/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum log_level log_level = LOG_INFO;
static const char *log_program; /* belongs to the level: set once by log_open */

void log_open(const char *program)
{
    log_program = program;
}

/* One write, so that it stays whole. */
static void write_line(const char *program, const char *word, const char *line, int n)
{
    char text[4096];
    int len =
        snprintf(text, sizeof text - 1, "%.255s%s%s%.*s", program ? program : "", program ? ": " : "", word, n, line);
    ssize_t done;

    if (len > (int)sizeof text - 2) {
        len = (int)sizeof text - 2;
        memcpy(text + len - 3, "...", 3);
    }
    text[len++] = '\n';
    done = write(STDERR_FILENO, text, (size_t)len);
    (void)done;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
    static const char *const word[] = {"", "warning: ", "", "debug: "};
    char text[8192], *line = text;
    int saved = errno, n;
    va_list ap;

    if (level > log_level)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap); /* errno is the caller's still, for %m */
    va_end(ap);
    do {
        n = (int)strcspn(line, "\n");
        write_line(log_program, word[level], line, n);
        line += n + (line[n] == '\n');
    } while (*line);
    errno = saved;
}

int log_level_parse(const char *name, enum log_level *level)
{
    static const struct {
        const char *name;
        enum log_level level;
    } names[] = {{"debug", LOG_DEBUG}, {"info", LOG_INFO},   {"warning", LOG_WARN},
                 {"warn", LOG_WARN},   {"error", LOG_ERROR}, {"critical", LOG_ERROR}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcasecmp(name, names[i].name) == 0) {
            *level = names[i].level;
            return 0;
        }
    }
    return -1;
}
