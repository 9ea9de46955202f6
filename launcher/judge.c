/* Who is to blame: see judge.h. */
#include "launcher/judge.h"

static int class_of(const struct failure *f, int engine)
{
    return engine ? (int)f->kind : f->kind != FAILED_HOST;
}

int judge(const struct failure *f, int n, int engine)
{
    int i, best = 0;

    for (i = 1; i < n; i++) {
        int a = class_of(&f[i], engine), b = class_of(&f[best], engine);

        if (a < b || (a == b && f[i].wall < f[best].wall))
            best = i;
    }
    return best;
}
