/* What every fuzz entry defines. */
#ifndef DS_FUZZ_H
#define DS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#endif
