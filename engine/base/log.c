/* Messages to stderr: see log.h. One write(2) per message, so that lines of many processes on one
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

void log_msg(enum log_level level, const char *fmt, ...)
{
    static const char *const word[] = {"", "warning: ", "", "debug: "};
    char text[4096];
    int saved = errno, n = 0, more;
    ssize_t done;
    va_list ap;

    if (level > log_level)
        return;
    if (log_program)
        n = snprintf(text, 256, "%s: ", log_program);
    if (n > 255)
        n = 255;
    n += snprintf(text + n, 32, "%s", word[level]);
    errno = saved; /* for %m */
    va_start(ap, fmt);
    more = vsnprintf(text + n, sizeof text - 1 - (size_t)n, fmt, ap);
    va_end(ap);
    if (more < 0)
        more = 0;
    if (more >= (int)sizeof text - 1 - n) {
        more = (int)sizeof text - 2 - n;
        memcpy(text + n + more - 3, "...", 3);
    }
    n += more;
    text[n++] = '\n';
    done = write(STDERR_FILENO, text, (size_t)n);
    (void)done;
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
