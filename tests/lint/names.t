#!/bin/bash
# Nothing of one person's machine and nothing half done is in the tree.
cd "${top_srcdir:-.}" || exit 99
n=0

files() {
    find configure.ac Makefile.am autogen.sh quickstart packages.txt ./*.md .ci hostfile launcher elastic engine \
        kernels templates doc m4 tests -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.md' -o \
        -name '*.mk' -o -name '*.m4' -o -name '*.t' -o -name '*.sh' -o -name '*.py' -o -name '*.ini' -o \
        -name '*.[15]' -o -name '*.txt' -o ! -name '*.*' \) ! -path 'tests/fuzz/corpus/*' ! -name names.t
}

check() { # check NAME REGEX: no line may match
    n=$((n + 1))
    local found
    found=$(files | xargs grep -nIE -- "$2")
    if [ -z "$found" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        sed 's/^/# /' <<<"$found"
    fi
}

echo "1..4"
check "no path of a workstation" '(^|[^A-Za-z0-9_.$/-])(/root/[A-Za-z]|/home/[a-z]+/)'
check "no mark of unfinished work" '\b(TODO|FIXME|XXX|HACK|NotImplemented)\b|not (yet )?implemented'
check "no conflict marker" '^(<<<<<<<|>>>>>>>|=======$)'
check "no blank at the end of a line" '[ 	]$'
