/* --save_pid: the file by which others find this launch. */
#ifndef DS_PIDFILE_H
#define DS_PIDFILE_H

#include "engine/base/err.h"

/* Makes /tmp/PID.deepspeed with our process number in it; path is owned, for pidfile_remove. A file that an
 * ended process of the same user and number left is replaced; anything else of that name is an error. */
int pidfile_make(char **path, struct err *err);
void pidfile_remove(char *path); /* NULL is fine; frees */

#endif
