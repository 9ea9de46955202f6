#!/bin/bash
# All-reduce inside a machine and between two nodes (network namespaces joined by a veth pair; needs
# root), comm host against Open MPI at its best setting, in one run. Prints a table of medians and ratios.
#
#   tests/bench/comm.sh [BUILD-FOLDER]        SECONDS_EACH=1 SIZES=1,64,256 ROUNDS=3
#
# Rounds alternate between the two, and the best median of each counts, so that a mood of the machine
# hits both. Not part of make check. Without mpicc and mpirun only our own times are shown.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bench=$(realpath "${1:-.}")/tests/bench/comm/bench_comm
seconds=${SECONDS_EACH:-1} sizes=${SIZES:-1,64,256} rounds=${ROUNDS:-3}
tmp=$(mktemp -d)
a=dsb$$a b=dsb$$b
cleanup() {
    rm -rf "$tmp"
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
}
trap cleanup EXIT
[ -x "$bench" ] || { echo "comm.sh: no $bench; run make bench-comm in the build folder" >&2; exit 1; }

mpi=
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
    mpicc -O2 -o "$tmp/mpi" "$here/comm/mpi.c" && mpi=yes
fi

# the settings of Open MPI that are tried: its default, segmented ring (as measured best), ring,
# recursive doubling, Rabenseifner
tuned='--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm'
settings=(
    ''
    "$tuned 5 --mca coll_tuned_allreduce_algorithm_segmentsize 1048576"
    "$tuned 5 --mca coll_tuned_allreduce_algorithm_segmentsize 262144"
    "$tuned 4"
    "$tuned 3"
    "$tuned 6"
)
flags='--allow-run-as-root --oversubscribe --bind-to none -q'

# best NAME: keeps the smaller time per size of "size ms" lines on stdin
best() {
    touch "$tmp/$1"
    cat >>"$tmp/$1"
}
lowest() { # NAME SIZE
    awk -v s="$2" '$1 == s && (m == "" || $2 < m) { m = $2 } END { print m }' "$tmp/$1" 2>/dev/null
}
row() { # LABEL NAME SIZE
    local ours theirs
    ours=$(lowest "$2.ours" "$3") theirs=$(lowest "$2.mpi" "$3")
    printf '%-24s %6s MB %10.2f ms' "$1" "$3" "$ours"
    [ -n "$theirs" ] && printf ' %10.2f ms %8.2f' "$theirs" "$(awk "BEGIN { print $theirs / $ours }")"
    echo
}

inside() { # RANKS
    for _ in $(seq "$rounds"); do
        "$bench" "$1" "$sizes" "$seconds" | best "in$1.ours"
        [ -n "$mpi" ] || continue
        for s in "${settings[@]}"; do
            for place in 0 1; do
                # shellcheck disable=SC2086
                mpirun $flags -n "$1" $s "$tmp/mpi" "$sizes" "$seconds" $place | best "in$1.mpi"
            done
        done
    done
}

nodes() {
    ip netns add "$a" && ip netns add "$b"
    ip link add v0 netns "$a" type veth peer name v0 netns "$b"
    ip -n "$a" addr add 10.78.0.1/24 dev v0 && ip -n "$b" addr add 10.78.0.2/24 dev v0
    for n in "$a" "$b"; do ip -n "$n" link set lo up && ip -n "$n" link set v0 up; done
    # mpirun's "ssh": runs the daemon in the namespace that has the address
    cat >"$tmp/rsh" <<R
#!/bin/sh
ns=$a; [ "\$1" = 10.78.0.2 ] && ns=$b
shift
exec ip netns exec \$ns unshare --uts sh -c "hostname \$ns; \$*"
R
    chmod +x "$tmp/rsh"
}

between() { # RANKS-PER-NODE
    local hosts="10.78.0.1:$1,10.78.0.2:$1"
    for _ in $(seq "$rounds"); do
        "$bench" "$1" "$sizes" "$seconds" "$a@10.78.0.1" "$b@10.78.0.2" | best "net$1.ours"
        [ -n "$mpi" ] || continue
        for s in "${settings[@]}"; do
            # shellcheck disable=SC2086
            ip netns exec "$a" unshare --uts sh -c "hostname $a; exec \"\$@\"" sh \
                mpirun $flags --mca plm_rsh_agent "$tmp/rsh" --host "$hosts" --mca btl tcp,vader,self \
                --mca pml ob1 --mca btl_tcp_if_include v0 -n $((2 * $1)) $s "$tmp/mpi" "$sizes" \
                "$seconds" 1 | best "net$1.mpi"
        done
    done
}

rows() { # LABEL NAME
    for s in ${sizes//,/ }; do row "$1" "$2" "$s"; done
}

printf '%-24s %9s %13s %13s %8s\n' "all-reduce, fp32" size "comm host" "Open MPI" ratio
for n in 2 4; do
    inside $n
    rows "inside, $n ranks" "in$n"
done
if [ "$(id -u)" = 0 ] && nodes; then
    for n in 1 2; do
        between $n
        rows "2 nodes, $n ranks each" "net$n"
    done
else
    echo "comm.sh: not root, so nothing between nodes" >&2
fi
