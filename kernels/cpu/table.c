/* The operators of this instruction set in one table; dispatch.c picks among the tables. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/tables.h"

#define FIELD(op) .op = K(op),
const struct kernels K(kernels_table) = {KERNELS_OPS(FIELD)};
