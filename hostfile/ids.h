/* Lists of slot and device numbers as people write them: "0-3,5". Internal to hostfile/. */
#ifndef DS_HOSTFILE_IDS_H
#define DS_HOSTFILE_IDS_H

#include <stddef.h>

#define IDS_MAX 65536 /* numbers run from 0 to 65535, so a list holds at most this many */

struct ids {
    int *id; /* in written order, unique; owned */
    int n, cap;
};

/* Appends text[0..len). 0, or -1 with *at the offset of what is wrong and *what its name (static).
 */
int ids_parse(struct ids *ids, const char *text, size_t len, size_t *at, const char **what);
void ids_clear(struct ids *ids);
int ids_has(const struct ids *ids, int id);

#endif
