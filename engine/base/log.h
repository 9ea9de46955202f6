/* Messages to stderr. Only programs (main.c files and the front end) print above debug; library code
 * passes a struct err up and prints nothing. The level is the one global of the project. */
#ifndef DS_BASE_LOG_H
#define DS_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

extern enum log_level log_level; /* messages above it are dropped; LOG_INFO at start */

/* "PROGRAM: " in front of each line of the text, a write(2) a line; never fails, keeps errno. PROGRAM is set once by
 * log_open (kept by reference). */
void log_open(const char *program);
void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_msg(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_msg(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_msg(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_msg(LOG_DEBUG, __VA_ARGS__)

/* Parses debug|info|warning|error|critical (critical = error). 0, or -1 when unknown. */
int log_level_parse(const char *name, enum log_level *level);

#endif
