/* Fragments of global tensors: see frag.h. Pure. Everything below relies on both lists being sorted
 * by (name, kind, first). */
#include "engine/base/frag.h"
#include "engine/base/buf.h"

#include <stdlib.h>
#include <string.h>

static int compare_tensor(const struct frag *a, const struct frag *b)
{
    int c = strcmp(a->name, b->name);

    return c ? c : strcmp(a->kind, b->kind);
}

static int compare(const void *x, const void *y)
{
    const struct frag *a = x, *b = y;
    int c = compare_tensor(a, b);

    if (c)
        return c;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    return (a->holder > b->holder) - (a->holder < b->holder);
}

void frag_sort(struct frag *f, int n)
{
    if (n > 1)
        qsort(f, (size_t)n, sizeof *f, compare);
}

/* First of the n fragments that belongs to the tensor of w or a later one. */
static int find_tensor(const struct frag *have, int n, const struct frag *w)
{
    int lo = 0, hi = n;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;

        if (compare_tensor(&have[mid], w) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* first + count, which must not pass total. */
static int check_bounds(const struct frag *f, struct err *err)
{
    if (f->first <= f->total && f->count <= f->total - f->first)
        return 0;
    return err_set(err, ERR_INPUT_FILE,
                   "%s|%s: elements %llu to %llu lie outside the tensor's %llu", f->name, f->kind,
                   (unsigned long long)f->first, (unsigned long long)(f->first + f->count),
                   (unsigned long long)f->total);
}

/* Fragments [from, to) of have are those of w's tensor; same total as w, within bounds. */
static int tensor_range(const struct frag *have, int n, const struct frag *w, int *from, int *to,
                        struct err *err)
{
    *from = find_tensor(have, n, w);
    if (check_bounds(w, err) < 0)
        return -1;
    for (*to = *from; *to < n && compare_tensor(&have[*to], w) == 0; (*to)++) {
        const struct frag *h = &have[*to];

        if (h->total != w->total)
            return err_set(err, ERR_INPUT_FILE, "%s|%s has %llu elements where %llu are wanted",
                           w->name, w->kind, (unsigned long long)h->total,
                           (unsigned long long)w->total);
        if (check_bounds(h, err) < 0)
            return -1;
    }
    return 0;
}

static int gap(const struct frag *w, uint64_t lo, uint64_t hi, struct err *err)
{
    return err_set(err, ERR_INPUT_FILE, "%s|%s: elements %llu to %llu of %llu are missing", w->name,
                   w->kind, (unsigned long long)lo, (unsigned long long)hi,
                   (unsigned long long)w->total);
}

static uint64_t end_of(const struct frag *f)
{
    return f->first + f->count;
}

int frag_cover(const struct frag *have, int n, const struct frag *want, int nwant, struct err *err)
{
    for (int i = 0; i < nwant; i++) {
        const struct frag *w = &want[i];
        uint64_t at = w->first, end = end_of(w);
        int from, to;

        if (tensor_range(have, n, w, &from, &to, err) < 0)
            return -1;
        for (int k = from; k < to && at < end; k++) {
            if (have[k].first > at)
                break;
            if (end_of(&have[k]) > at)
                at = end_of(&have[k]);
        }
        if (at < end) {
            uint64_t stop = end;

            for (int k = from; k < to; k++)
                if (have[k].first > at && have[k].first < stop)
                    stop = have[k].first;
            return gap(w, at, stop, err);
        }
    }
    return 0;
}

struct moves {
    struct frag_move *m;
    int n, cap;
};

/* One want: at every element the lowest holder that has it. A holder is kept until its fragment
 * ends or one with a lower number begins. Quadratic in the fragments of one tensor, which are as
 * many as ranks. */
static int plan_one(const struct frag *have, int from, int to, const struct frag *want, int index,
                    struct moves *out, struct err *err)
{
    const struct frag *w = &want[index];
    uint64_t at = w->first, end = end_of(w);

    while (at < end) {
        uint64_t stop = end;
        int best = -1;

        for (int k = from; k < to; k++)
            if (have[k].first <= at && end_of(&have[k]) > at &&
                (best < 0 || have[k].holder < have[best].holder))
                best = k;
        if (best >= 0 && end_of(&have[best]) < stop)
            stop = end_of(&have[best]);
        for (int k = from; k < to; k++)
            if (have[k].first > at && have[k].first < stop && have[k].count &&
                (best < 0 || have[k].holder < have[best].holder))
                stop = have[k].first;
        if (best < 0)
            return gap(w, at, stop, err);
        ARRAY_GROW(out->m, out->n, out->cap);
        out->m[out->n++] =
            (struct frag_move){best, index, at - have[best].first, at - w->first, stop - at};
        at = stop;
    }
    return 0;
}

int frag_plan_moves(const struct frag *have, int n, const struct frag *want, int nwant,
                    struct frag_move **moves, int *nmoves, struct err *err)
{
    struct moves out = {0};

    *moves = NULL;
    *nmoves = 0;
    for (int i = 0; i < nwant; i++) {
        int from, to;

        if (tensor_range(have, n, &want[i], &from, &to, err) < 0 ||
            plan_one(have, from, to, want, i, &out, err) < 0) {
            free(out.m);
            return -1;
        }
    }
    *moves = out.m;
    *nmoves = out.n;
    return 0;
}
