#!/bin/bash
# Each header compiles alone, without a warning, and is guarded: included twice it is the same.
cd "${top_srcdir:-.}" || exit 99
n=0
mapfile -t headers < <(find hostfile launcher elastic engine kernels tests -name '*.h' | sort)
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

echo "1..${#headers[@]}"
for h in "${headers[@]}"; do
    n=$((n + 1))
    printf '#include "%s"\n#include "%s"\n' "$h" "$h" >"$work/one.c"
    # kernels/cpu is compiled once per instruction set, told by DS_ISA_SUFFIX
    if ${CC:-gcc} -std=gnu11 -D_GNU_SOURCE -DDS_ISA_SUFFIX=plain -fsyntax-only -Wall -Wextra -Werror -Wno-unused-parameter \
        -Wno-unused-function -fopenmp -I. ${LINT_CFLAGS:-} "$work/one.c" 2>"$work/said"; then
        echo "ok $n - $h"
    else
        echo "not ok $n - $h"
        sed 's/^/# /' "$work/said"
    fi
done
