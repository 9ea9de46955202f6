#!/bin/bash
# Nothing of one person's machine and nothing half done is in the tree.
cd "${top_srcdir:-.}" || exit 99
fail=0 n=0

files() {
    find . -path ./build -prune -o -path ./build-aux -prune -o -path ./autom4te.cache -prune -o \
        -path ./.git -prune -o -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.md' -o -name '*.mk' \
        -o -name '*.m4' -o -name '*.t' -o -name '*.sh' -o -name '*.py' -o -name '*.ini' -o -name '*.[15]' \
        -o -name configure.ac -o -name Makefile.am -o -name quickstart \) -print |
        grep -v -e '/names\.t$' -e '^./aclocal.m4$'
}

check() { # check NAME REGEX: no line may match
    n=$((n + 1))
    local found
    found=$(files | xargs grep -nE -- "$2")
    if [ -z "$found" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        sed 's/^/# /' <<<"$found"
        fail=1
    fi
}

echo "1..4"
check "no path of a workstation" '(^|[^A-Za-z0-9_.$/-])(/work/|/tmp/w/|/tmp/hub|/root/[A-Za-z]|/home/[a-z]+/)'
check "no mark of unfinished work" '\b(TODO|FIXME|XXX|HACK|NotImplemented)\b|not (yet )?implemented'
check "no conflict marker" '^(<<<<<<<|>>>>>>>|=======$)'
check "no blank at the end of a line" '[ 	]$'
exit $fail
