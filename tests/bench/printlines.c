/* Prints N lines of 80 bytes that name the rank and count: printlines N [RANK] (default: RANK of the environment). */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const char *rank = argc > 2 ? argv[2] : getenv("RANK");
    long n = argc > 1 ? atol(argv[1]) : 0;
    char line[81];

    for (long i = 0; i < n; i++) {
        int len = snprintf(line, sizeof line, "rank %s line %ld ", rank ? rank : "0", i);

        for (; len < 79; len++)
            line[len] = (char)('a' + (len + i) % 26);
        line[79] = '\n';
        if (fwrite(line, 1, 80, stdout) != 80)
            return 1;
    }
    return fflush(stdout) != 0;
}
