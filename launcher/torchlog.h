/* Which output of which rank goes where, in torchrun's words: --log-dir, --tee, --redirects and
 * --local-ranks-filter. Pure. */
#ifndef DS_TORCHLOG_H
#define DS_TORCHLOG_H

enum { TORCHLOG_OUT = 1, TORCHLOG_ERR = 2 }; /* bit of stream s: 1 << (s - 1) */

/* "0" to "3" for all, or "LOCAL_RANK:WHICH,..." where ranks that are not named get 0. -1: neither. */
int torchlog_which_check(const char *spec);
/* The bits of a local rank; spec NULL: 0. */
int torchlog_which(const char *spec, int local_rank);
/* "0,2-3". -1: no list. */
int torchlog_filter_check(const char *list);
int torchlog_filter(const char *list, int local_rank); /* 1: shown; list NULL: all are */

#endif
