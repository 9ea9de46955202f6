#!/bin/bash
# How fast a job is started and ended over SSH, against pdsh and clush in the same run.
#
#   tests/bench/launch/launch.sh BUILD-FOLDER peers [HOSTS [ROUNDS]]   wall time and ratios, with `true` everywhere
#   tests/bench/launch/launch.sh BUILD-FOLDER cost [HOSTS [ROUNDS]]    processor time, memory, pongs per host
#   tests/bench/launch/launch.sh BUILD-FOLDER first [HOSTS [ROUNDS]]   with no agent on the nodes yet
#   tests/bench/launch/launch.sh BUILD-FOLDER shell COMMAND...         anything else, in the same place
#
# All hosts are addresses 127.0.x.y of one sshd in namespaces of its own, on port 22, with the account's shell
# sh (LOGIN_SHELL) and an empty home. The hosts' keys are on record under hashed names. A launch is: agents up,
# ranks started, ranks ended, all torn down. Needs root, openssh-server and iproute2; pdsh and clustershell are
# left out where they are missing.
set -u
here=$(dirname "$(realpath "$0")")
build=$(realpath "${1:?usage: launch.sh BUILD-FOLDER peers|cost|first|shell ...}") what=${2:-peers}
shift 2

if [ "${LAUNCH_BENCH:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || { echo "launch.sh: needs root, for namespaces of its own" >&2; exit 77; }
    for tool in ip unshare ssh ssh-keygen /usr/sbin/sshd; do
        command -v "$tool" >/dev/null || { echo "launch.sh: needs $tool" >&2; exit 77; }
    done
    tmp=$(mktemp -d) || exit 1
    chmod 755 "$tmp"
    trap 'rm -rf "$tmp"' EXIT
    LAUNCH_BENCH=inside TMP=$tmp unshare --net --mount --ipc --pid --fork --kill-child --mount-proc \
        --propagation private bash "$0" "$build" "$what" "$@"
    exit
fi

address() { echo "127.0.$(($1 / 200 + 1)).$(($1 % 200 + 1))"; }
list() { for ((i = 0; i < $1; i++)); do address "$i"; done; } # the first N hosts

setup() { # MOST HOSTS: one sshd, one account, everybody's keys
    local home=$TMP/home
    mkdir -p "$home/.ssh" /run/sshd && chmod 700 "$home/.ssh"
    ip link set lo up
    sed "s#^root:.*#root:x:0:0:root:$home:${LOGIN_SHELL:-/bin/sh}#" /etc/passwd >"$TMP/passwd"
    mount --bind "$TMP/passwd" /etc/passwd
    ssh-keygen -q -t ed25519 -N '' -f "$TMP/hostkey"
    ssh-keygen -q -t ed25519 -N '' -f "$home/.ssh/id_ed25519"
    cp "$home/.ssh/id_ed25519.pub" "$home/.ssh/authorized_keys"
    list "$1" | sed "s#\$# $(cut -d' ' -f1,2 "$TMP/hostkey.pub")#" >"$home/.ssh/known_hosts"
    ssh-keygen -q -H -f "$home/.ssh/known_hosts" >/dev/null 2>&1
    rm -f "$home/.ssh/known_hosts.old"
    cat >"$TMP/sshd_config" <<END
HostKey $TMP/hostkey
MaxStartups 2000
UsePAM no
UseDNS no
StrictModes no
PidFile none
PermitRootLogin yes
END
    /usr/sbin/sshd -f "$TMP/sshd_config" -E "$TMP/sshd.log" || exit 1
    export HOME=$home
    unset SSH_AUTH_SOCK
    cd "$home" || exit 1
}

usage() { # NAME COMMAND...: one line of figures into NAME's file
    local name=$1 rc
    shift
    "$build/tests/bench/launch/usage" "$TMP/$name" "$@" >"$TMP/out" 2>&1 </dev/null
    rc=$?
    [ $rc = 0 ] || { echo "launch.sh: $name ended with $rc: $(tail -3 "$TMP/out")" >&2; exit 1; }
}
launch() { # NAME HOSTS ARGS...
    local name=$1 hosts=$2
    shift 2
    list "$hosts" >"$TMP/hosts.$hosts"
    usage "$name" "$build/ds-launch" -H "$TMP/hosts.$hosts" "$@"
}
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
column() { awk -v c="$2" '{ print $c }' "$TMP/$1" | median; } # NAME COLUMN

peers() { # HOSTS ROUNDS
    local hosts=$1 rounds=$2 names=(ds-launch) words
    words=$(list "$hosts" | paste -sd,)
    if command -v pdsh >/dev/null; then names+=(pdsh "pdsh-f128"); else echo "pdsh is not installed: left out"; fi
    if command -v clush >/dev/null; then names+=(clush); else echo "clush is not installed: left out"; fi
    launch warm "$hosts" true # the agent is on the node, the files are in memory
    for ((r = 0; r < rounds; r++)); do
        for name in "${names[@]}"; do
            case $name in
            ds-launch) launch ds-launch "$hosts" true ;;
            pdsh) usage pdsh pdsh -R ssh -w "$words" true ;;
            pdsh-f128) usage pdsh-f128 pdsh -R ssh -f 128 -w "$words" true ;;
            clush) usage clush clush -q -w "$words" true ;;
            esac
        done
    done
    printf '%-10s %6s %10s %16s %8s\n' tool hosts 'wall [s]' 'client [ms/host]' ratio
    for name in "${names[@]}"; do
        printf '%-10s %6d %10.2f %16.2f %8s\n' "$name" "$hosts" "$(column "$name" 1)" \
            "$(awk -v s="$(column "$name" 2)" -v n="$hosts" 'BEGIN { print 1000 * s / n }')" \
            "$(awk -v a="$(column ds-launch 1)" -v b="$(column "$name" 1)" 'BEGIN { printf "%.2f", a / b }')"
    done
}

cost() { # HOSTS ROUNDS: the slope from 8 hosts, so that what a start costs at all is left out
    local hosts=$1 rounds=$2
    launch warm 8 true
    for ((r = 0; r < rounds; r++)); do
        launch few 8 true
        launch many "$hosts" --log-level debug true
        sed -n 's/.*\(pongs: .*\)/\1/p' "$TMP/out"
    done
    awk -v n="$hosts" -v ws="$(column few 1)" -v cs="$(column few 2)" -v ms="$(column few 3)" \
        -v wl="$(column many 1)" -v cl="$(column many 2)" -v ml="$(column many 3)" 'BEGIN {
        printf "%d hosts: %.2f s, %.2f ms of wall time, %.2f ms of processor time and %.1f KiB per host (%d KiB in all)\n",
            n, wl, 1000 * (wl - ws) / (n - 8), 1000 * cl / n, (ml - ms) / (n - 8), ml }'
}

first() { # HOSTS ROUNDS
    local hosts=$1 rounds=$2
    launch warm "$hosts" true
    for ((r = 0; r < rounds; r++)); do
        launch later "$hosts" true
        rm -rf "$HOME/.cache/ds-launch"
        launch first "$hosts" true
    done
    awk -v n="$hosts" -v a="$(column first 1)" -v b="$(column later 1)" 'BEGIN {
        printf "%d hosts: %.2f s without an agent on the nodes, %.2f s with it, ratio %.2f\n", n, a, b, a / b }'
}

case $what in
peers) setup "${1:-128}"; peers "${1:-128}" "${2:-3}" ;;
cost) setup "${1:-512}"; cost "${1:-512}" "${2:-2}" ;;
first) setup "${1:-64}"; first "${1:-64}" "${2:-3}" ;;
shell) setup 512; list 512 >"$TMP/hosts.512"; "$@" ;;
*) echo "launch.sh: $what is none of peers, cost, first, shell" >&2; exit 2 ;;
esac
