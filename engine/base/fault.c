/* Fault countdowns: see fault.h. The table is filled from DS_FAULT once per process; it is the only
 * state here and exists for tests alone. */
#include "engine/base/fault.h"
#include "engine/base/parse.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define FAULTS_MAX 16

enum fault_action { FAULT_ERRNO, FAULT_KILL, FAULT_WAIT };

static struct fault {
    char name[32];
    int left; /* atomic: fails when it goes from 1 to 0 */
    enum fault_action action;
    int err_no; /* of FAULT_WAIT: milliseconds */
} faults[FAULTS_MAX];
static int nfaults;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_action(struct fault *f, const char *word)
{
    static const struct {
        const char *name;
        int err_no;
    } names[] = {
        {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT},         {"EINTR", EINTR},
        {"EACCES", EACCES}, {"ENOENT", ENOENT}, {"ECONNRESET", ECONNRESET}, {"EPIPE", EPIPE}};
    int64_t ms;

    f->err_no = EIO;
    if (!parse_i64(word, 1, 600000, &ms)) {
        f->action = FAULT_WAIT;
        f->err_no = (int)ms;
    }
    if (strcasecmp(word, "KILL") == 0)
        f->action = FAULT_KILL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(word, names[i].name) == 0)
            f->err_no = names[i].err_no;
}

static void read_faults(void)
{
    const char *spec = getenv("DS_FAULT");
    char copy[512], *save = NULL;

    if (!spec || strlen(spec) >= sizeof copy)
        return;
    strcpy(copy, spec);
    for (char *item = strtok_r(copy, ",", &save); item && nfaults < FAULTS_MAX;
         item = strtok_r(NULL, ",", &save)) {
        struct fault *f = &faults[nfaults];
        char *count = strchr(item, ':'), *action = count ? strchr(count + 1, ':') : NULL;
        int64_t n;

        if (action)
            *action++ = 0;
        if (!count || count - item >= (ptrdiff_t)sizeof f->name ||
            parse_i64(count + 1, 1, INT_MAX, &n) < 0)
            continue;
        *count = 0;
        strcpy(f->name, item);
        f->left = (int)n;
        read_action(f, action ? action : "EIO");
        nfaults++;
    }
}

int fault_hit(const char *name, int *err_no)
{
    pthread_once(&once, read_faults);
    for (int i = 0; i < nfaults; i++) {
        struct fault *f = &faults[i];

        if (strcmp(f->name, name) != 0 || __atomic_fetch_sub(&f->left, 1, __ATOMIC_RELAXED) != 1)
            continue;
        if (f->action == FAULT_KILL)
            raise(SIGKILL);
        if (f->action == FAULT_WAIT) {
            usleep((useconds_t)f->err_no * 1000);
            return 0;
        }
        *err_no = f->err_no;
        return 1;
    }
    return 0;
}
