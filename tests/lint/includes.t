#!/bin/bash
# Who may include whom: the table of ARCHITECTURE.md. And a foreign library has one .c file, so that a
# site without it loses one file.
cd "${top_srcdir:-.}" || exit 99
n=0

ok() { # ok STATUS NAME: STATUS lines of complaint follow on stdin as diagnostics
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
    sed 's/^/# /'
}

sources() {
    find hostfile launcher elastic engine kernels -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort
}

# FILE LINE INCLUDED, for every #include "..."
includes() {
    sources | xargs awk '
        match($0, /^[ \t]*#[ \t]*include[ \t]*"[^"]*"/) {
            text = substr($0, RSTART, RLENGTH); gsub(/.*include[ \t]*"|"$/, "", text)
            print FILENAME, FNR, text
        }'
}

echo "1..3"

# The order inside the engine; a lower one never includes a higher one, nor one beside it.
bad=$(includes | awk '
    BEGIN {
        split("base:0 mesh:1 device:2 data:2 tensor:3 param:3 layer:3 comm:4 ops:5 optim:5 tp:6 zero:6 " \
              "model:7 pipe:8 ckpt:9 train:10 engine:11", pair, " ")
        for (i in pair) { split(pair[i], kv, ":"); level[kv[1]] = kv[2] }
    }
    # The part of a path: a top folder, or engine/NAME.
    function part(path,    p) {
        split(path, p, "/")
        if (p[1] != "engine")
            return p[1]
        if (p[3] != "")
            return "engine/" p[2]
        sub(/\..*/, "", p[2])
        return (p[2] in level) ? "engine/" p[2] : "engine/engine"
    }
    function allowed(from, to, file,    a, b) {
        if (from == to || to == "engine/base" && from != "kernels")
            return 1
        if (to == "config.h" || to == "build_hash.h") # made by the build
            return 1
        if (from == "elastic")
            return to == "hostfile" || to == "engine/mesh"
        if (from == "launcher")
            return to == "hostfile" || to == "elastic" || to == "engine/mesh" || file == "engine/engine.h"
        if (from !~ /^engine\// || from == "engine/base" || from == "engine/mesh")
            return 0
        if (to == "kernels")
            return 1
        if (to !~ /^engine\//)
            return 0
        a = substr(from, 8); b = substr(to, 8)
        # layer.h is the interface that stands beside tensor and param
        if (b == "layer" || a == "layer")
            return level[b] <= level[a]
        return level[b] < level[a]
    }
    !allowed(part($1), part($3), $3) {
        printf "%s:%d: %s may not include %s\n", $1, $2, part($1), $3
    }')
[ -z "$bad" ]; ok $? "who may include whom" < <(printf '%s' "$bad")

bad=$(includes | while read -r file line included; do
    case $included in config.h | build_hash.h) continue ;; esac
    [ -e "$included" ] || echo "$file:$line: \"$included\" is not written from the root of the tree"
done)
[ -z "$bad" ]; ok $? "includes are written from the root" < <(printf '%s' "$bad")

# Each foreign header in one .c file. libuv is the loop itself: it may stand in the launcher alone.
bad=$(for header in ini.h jansson.h xxhash.h dnnl.h hwloc.h sodium.h slurm/slurm.h ucp/api/ucp.h nccl.h; do
    files=$(sources | xargs grep -l "^ *# *include *<$header>")
    count=$(echo "$files" | grep -c .)
    if [ "$count" -gt 1 ] || [[ $files == *.h ]]; then
        echo "<$header> is included by:" $files
    fi
done
files=$(sources | xargs grep -l '^ *# *include *<libssh/')
[ "$(echo "$files" | grep -c .)" -le 1 ] || echo "<libssh/...> is included by:" $files
sources | grep -v -e '^kernels/' -e '^engine/train/threads\.c$' | xargs grep -l '^ *# *include *<omp.h>' | sed 's/$/ includes <omp.h>/'
sources | grep -v '^launcher/' | xargs grep -l '^ *# *include *<uv.h>' | sed 's/$/ includes <uv.h>/')
[ -z "$bad" ]; ok $? "a foreign header in one .c file each" < <(printf '%s' "$bad")
