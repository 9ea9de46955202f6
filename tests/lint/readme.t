#!/bin/bash
# Every folder says what it is: a README.md, but for those that hold data only.
cd "${top_srcdir:-.}" || exit 99
data='^tests/fuzz/corpus|^tests/golden/ckpt$|^tests/bench/'
bad=$(find hostfile launcher elastic engine kernels templates doc tests -type d | grep -vE "$data" | sort |
    while read -r folder; do [ -s "$folder/README.md" ] || echo "$folder"; done)
echo "1..1"
if [ -z "$bad" ]; then
    echo "ok 1 - every folder has a README.md"
else
    echo "not ok 1 - every folder has a README.md"
    sed 's/^/# missing in /' <<<"$bad"
fi
