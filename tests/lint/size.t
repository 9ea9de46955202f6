#!/bin/bash
# A source file has at most 600 lines and a function at most 60: what is longer is two things. A line has at most 120 columns.
cd "${top_srcdir:-.}" || exit 99
n=0

sources() {
    find hostfile launcher elastic engine kernels -name '*.[ch]' -o -name '*.cu' | sort
}

report() { # report NAME COMPLAINTS
    n=$((n + 1))
    if [ -z "$2" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        sed 's/^/# /' <<<"$2"
    fi
}

echo "1..4"
report "files of at most 600 lines" "$(sources | xargs awk '
    FNR == 1 && NR > 1 && last > 600 { print name ": " last " lines" }
    { name = FILENAME; last = FNR }
    END { if (last > 600) print name ": " last " lines" }')"
# A function's body stands between a { and a } in the first column.
report "functions of at most 60 lines" "$(sources | xargs awk '
    /^[A-Za-z_].*\(/ { head = $0 }
    /^\{/ { start = FNR }
    /^\}/ {
        if (start && FNR - start > 60) print FILENAME ":" start ": " FNR - start " lines: " head
        start = 0
    }')"
report "a folder's README of at most 60 lines" "$(
    find hostfile launcher elastic engine kernels templates doc tests -name README.md |
        xargs awk 'FNR == 61 { print FILENAME ": more than 60 lines" }')"
report "lines of at most 120 columns" "$(find hostfile launcher elastic engine kernels tests -name '*.[ch]' | sort |
    LC_ALL=C.UTF-8 xargs awk 'length > 120 { print FILENAME ":" FNR ": " length " columns" }')"
