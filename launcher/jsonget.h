/* Reads single members of the small flat JSON objects that ranks send. No tree, no allocation. */
#ifndef DS_JSONGET_H
#define DS_JSONGET_H

#include "engine/base/buf.h"

/* The number at "key" of the top-level object text[0..n). 0; -1: not there, no number, or no object. */
int jsonget_number(const char *text, size_t n, const char *key, double *out);
/* The string there, unescaped, appended to out. */
int jsonget_string(const char *text, size_t n, const char *key, struct buf *out);
/* The object there: *text and *n become its own. 0; -1: none. */
int jsonget_object(const char **text, size_t *n, const char *key);
/* 1 when text is one well-formed object and nothing behind it (on one line: no raw control bytes). */
int jsonget_valid(const char *text, size_t n);

#endif
