/* usage FILE COMMAND...: runs the command and appends to FILE what it took, in one line: wall seconds, processor
 * seconds, the largest resident set of any of its processes in KiB, exit status. Descendants that were waited
 * for count; what a server did on its behalf does not. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
    struct timespec from, to;
    struct rusage u;
    int status;
    pid_t pid;
    FILE *f;

    if (argc < 3 || !(f = fopen(argv[1], "ae"))) {
        fprintf(stderr, "usage: usage FILE COMMAND...\n");
        return 2;
    }
    clock_gettime(CLOCK_MONOTONIC, &from);
    pid = fork();
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        perror("usage");
        return 2;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    getrusage(RUSAGE_CHILDREN, &u);
    status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    fprintf(f, "%.4f %.4f %ld %d\n",
            (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9,
            seconds(u.ru_utime) + seconds(u.ru_stime), u.ru_maxrss, status);
    return fclose(f) ? 2 : status;
}
