#!/bin/bash
# Every file of the repository is in the tarball that make dist packs, so that a build from it can do what
# a build from a checkout can.
cd "${top_srcdir:-.}" || exit 99
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1 || [ ! -e .git ]; then
    echo "1..0 # SKIP this is no checkout: there is nothing to compare the tarball with"
    exit 0
fi
packed=$(make -s -C "${top_builddir:-build}" list-dist) || { echo "Bail out! make list-dist failed"; exit 1; }
missing=$(git ls-files | awk -v packed="$packed" '
    BEGIN {
        n = split(packed, name, /[ \n]+/)
        for (i = 1; i <= n; i++) { sub(/\/$/, "", name[i]); have[name[i]] = 1 }
    }
    # the file itself, or a folder that is packed whole
    {
        for (p = $0; p != ""; p = substr(p, 1, match(p, /\/[^\/]*$/) - 1)) {
            if (p in have) next
            if (p !~ /\//) break
        }
        print
    }' | grep -v -E '^\.(gitignore|clang-format)$')
echo "1..1"
if [ -z "$missing" ]; then
    echo "ok 1 - every file of the repository is in the tarball"
else
    echo "not ok 1 - every file of the repository is in the tarball"
    sed 's/^/# missing: /' <<<"$missing"
fi
