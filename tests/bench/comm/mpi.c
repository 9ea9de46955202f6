/* The same measurement as bench_comm.c with MPI_Allreduce: MEGABYTES,... SECONDS INPLACE(0|1). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPS 1000

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double one(float *x, float *y, int n, int rank)
{
    double s, all;

    for (int i = 0; i < n; i++)
        x[i] = (float)(i & 1023) + (float)rank;
    MPI_Barrier(MPI_COMM_WORLD);
    s = MPI_Wtime();
    MPI_Allreduce(y == x ? MPI_IN_PLACE : x, y, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    s = MPI_Wtime() - s;
    MPI_Allreduce(&s, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all * 1e3;
}

int main(int argc, char **argv)
{
    static double ms[MAX_REPS];
    double seconds = argc > 2 ? atof(argv[2]) : 1;
    int rank, in_place = argc > 3 && atoi(argv[3]);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (char *s = strtok(argv[1], ","); s; s = strtok(NULL, ",")) {
        int n = (int)(atof(s) * 1e6 / 4), reps = 0;
        float *x = malloc((size_t)n * 4), *y = in_place ? x : malloc((size_t)n * 4);
        double used = 0;

        one(x, y, n, rank);
        while (reps < MAX_REPS && (used < seconds * 1e3 || reps < 5))
            used += ms[reps++] = one(x, y, n, rank);
        qsort(ms, (size_t)reps, sizeof *ms, by_value);
        if (rank == 0)
            printf("%s %.3f\n", s, ms[reps / 2]);
        if (y != x)
            free(y);
        free(x);
    }
    MPI_Finalize();
    return 0;
}
