/* What every fuzz entry defines, and how it states a law. */
#ifndef DS_FUZZ_H
#define DS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Ends the program when a law does not hold. */
#define LAW(x)                                                                                     \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: law does not hold: %s\n", __FILE__, __LINE__, #x);             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
