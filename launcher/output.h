/* What the ranks write, turned into whole lines with prefixes. Knows no thread, no descriptor and no clock: text goes
 * out through a callback. A rank's unfinished line is given out after a moment, and goes on where it stopped when
 * nobody else wrote since; where somebody did, "..." marks the break and the rest.
 *
 * A line that is drawn again and again (carriage returns: a progress bar) counts as one: its newest state is a line
 * now and then, or the live line of a terminal. Escape sequences that move the cursor are dropped. A lone program
 * without a prefix is passed on byte for byte. */
#ifndef DS_OUTPUT_H
#define DS_OUTPUT_H

#include "engine/base/buf.h"

#include <stdint.h>

enum output_prefix { PREFIX_NONE = 0, PREFIX_RANK = 1, PREFIX_HOST = 2, PREFIX_TIME = 4 };

#define OUTPUT_LINE_BYTES 16384 /* an unfinished line longer than this is given out at once */
#define OUTPUT_PARTIAL_MS 50    /* an unfinished line older than this, too: the agent waited for its rank before */
#define OUTPUT_BAR_MS 1000      /* between two states of a progress bar */
#define OUTPUT_TAIL_LINES 20

struct output_style {
    int prefix; /* of enum output_prefix */
    int color;  /* prefixes are coloured */
    int fold;   /* equal lines of several ranks are one: fold.h */
    double (*wall)(void); /* for PREFIX_TIME: seconds since 1970 */
    /* The text is given over: emit clears it. stream 1 or 2. */
    void (*emit)(void *ctx, int stream, struct buf *text);
    void (*live)(void *ctx, const char *line); /* a progress bar, "": none any more. NULL: no terminal */
    void *ctx;
};

struct output;

/* "none", or words of rank, host, host:rank, time with commas between; -1: something else. */
int output_prefix_parse(const char *words);
/* --color (NULL: auto), NO_COLOR, CLICOLOR, CLICOLOR_FORCE (values or NULL) and whether it is a terminal. */
int output_wants_color(const char *option, const char *no_color, const char *clicolor, const char *force, int terminal);

/* hosts[rank] names the rank's host (borrowed). */
struct output *output_create(int world, const struct output_style *style, const char *const *hosts);
void output_destroy(struct output *o); /* NULL is fine */

/* Bytes of a rank at time now_ms; n = 0: the stream ended. Complete lines are emitted in one call. */
void output_feed(struct output *o, int rank, int stream, const char *data, size_t n, int64_t now_ms);
/* A line of our own: begins a new line first when a partial one stands there. */
void output_own(struct output *o, int stream, const char *text, size_t n);
/* All streams have ended, whether or not it was told. */
void output_flush(struct output *o);
/* Gives out what has been unfinished for too long. */
void output_tick(struct output *o, int64_t now_ms);
/* The last lines of a rank, both streams in order of arrival; nothing where all of them are blank. */
void output_tail(const struct output *o, int rank, struct buf *out);

#endif
