/* Two processes on the user's terminal: the outer one, which the shell knows, takes the signals and may be stopped
 * (Ctrl-Z); the inner one does the work and must go on, or every agent would find its front end silent and end
 * the job. */
#ifndef DS_KEEPER_H
#define DS_KEEPER_H

/* Runs work in the inner process. signals is a descriptor there, one byte for each signal to act on: SIGINT, SIGTERM,
 * SIGHUP, SIGUSR1, SIGUSR2, but for those ignored at start. The inner process ends when the outer one dies.
 * Returns, in the outer process, the exit status: work's, or 128 + the signal that killed it. */
int keeper_run(int (*work)(void *arg, int signals), void *arg);
/* In work, when signals is readable: takes each that is there. -1: no more will come. */
int keeper_signals(int signals, void (*take)(void *ctx, int sig), void *ctx);

#endif
