/* Who is to blame when a job fails: one cause, the others followed. Pure. */
#ifndef DS_JUDGE_H
#define DS_JUDGE_H

enum failure_kind { /* the order in which an engine job blames */
    FAILED_HOST,    /* the node is gone */
    FAILED_SIGNAL,  /* killed by a signal that was not ours */
    FAILED_CODE,    /* its own exit code, or its own report */
    FAILED_PEER,    /* it reports that another rank is gone */
};

struct failure {
    enum failure_kind kind;
    int rank;    /* -1 with FAILED_HOST */
    int node;
    double wall; /* when, on the front end's clock, seconds */
};

/* The index of the cause among n >= 1 failures. An engine job: the first kind in the order above, then the
 * earliest. A foreign program, whose followers cannot be told from causes: the earliest, but for a host that
 * is lost, which is noticed late and comes first. */
int judge(const struct failure *f, int n, int engine);

#endif
