/* JSON values, read only; the one place that includes jansson. Duplicate keys are refused. Objects
 * keep the order of their text. */
#ifndef DS_BASE_JSON_H
#define DS_BASE_JSON_H

#include <stddef.h>
#include <stdint.h>

struct jv; /* one value; everything below takes NULL as "not there" */

enum jv_type { JV_NONE, JV_NULL, JV_BOOL, JV_INT, JV_REAL, JV_TEXT, JV_LIST, JV_OBJECT };

/* The outermost value, owned by the caller (jv_free); NULL, and why and its line when it is not
 * valid. */
struct jv *jv_parse(const char *text, size_t n, int *line, char why[200]);
void jv_free(struct jv *root);

/* Values found inside live as long as the root. */
enum jv_type jv_type(const struct jv *v);
const struct jv *jv_member(const struct jv *object, const char *key); /* NULL: not there */
size_t jv_count(const struct jv *v); /* of a list or object, else 0 */
const struct jv *jv_item(const struct jv *list, size_t i);
/* Members in order: *at begins as NULL; the key, or NULL behind the last. */
const char *jv_next(const struct jv *object, void **at, const struct jv **value);

int64_t jv_int(const struct jv *v);      /* 0 when it is no integer */
double jv_number(const struct jv *v);    /* of an integer or real, else 0 */
const char *jv_text(const struct jv *v); /* NULL when it is no text */
char *jv_print(const struct jv *v);      /* as compact JSON, owned by the caller */

#endif
