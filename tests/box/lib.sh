# Sourced by the tests of this folder: TAP, and a box with our programs in it. Never run by itself.
#
# Needs root, iproute2 and openssh-server. Without them the test says what is missing and skips; where CI=true
# they are meant to be there, so then it fails.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${top_builddir:-$(pwd)}
count=0 failed=0

result() { # result STATUS NAME
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then echo "ok $count - $2"; else echo "not ok $count - $2"; failed=1; fi
}
said() { sed 's/^/# /' "$out"; } # what the last run printed
like() { # like NAME REGEX...: every REGEX matches a line that the last run printed
    local name=$1 pattern bad=0
    shift
    for pattern; do grep -Eq -- "$pattern" "$out" || { bad=1; echo "# no line matches: $pattern"; }; done
    result $bad "$name"
    [ $bad = 0 ] || said
}
is() { # is NAME GOT WANTED
    [ "$2" = "$3" ]
    local rc=$?
    result $rc "$1"
    [ $rc = 0 ] || { echo "# got '$2', wanted '$3'"; said; }
}
skip() { count=$((count + 1)); echo "ok $count - $1 # SKIP $2"; }

lacks() { # lacks REASON: the whole test cannot run
    if [ "${CI:-}" = true ]; then echo "Bail out! $1"; exit 1; fi
    echo "1..0 # SKIP $1"
    exit 0
}

box() { "$here/box" "$@"; }
launch() { # launch USER ARGS...: ds-launch on n0; prints into $out, status in $rc
    local user=$1
    shift
    timeout "${limit:-60}" "$here/box" as "$user" 0 env XDG_RUNTIME_DIR="$BOX/run/$user" "$BOX/shared/bin/ds-launch" "$@" >"$out" 2>&1 </dev/null
    rc=$?
}
hosts() { printf '%s\n' "$@" >"$BOX/shared/hosts"; } # one line of a hostfile each

# Processes of ours on nodes I...: front ends, agents, ranks, and the rank program of these tests (sleep 7777).
ours() { for i; do box ps "$i" 2>/dev/null | grep -E '[s]leep 7777|[/]agent-[0-9a-f]|[/]ds-(agent|rank|launch)' || :; done; }
gone() { # gone NAME I...: within 10 s nothing of ours is left there
    local name=$1 n
    shift
    for n in $(seq 100); do [ -z "$(ours "$@")" ] && break; sleep 0.1; done
    [ -z "$(ours "$@")" ]
    result $? "$name"
    ours "$@" | sed 's/^/# left: /'
}
# The control sockets of jobs of root and hpc: what a front end left that was killed goes when ps looks.
sockets() {
    for user in root hpc; do
        timeout 20 "$here/box" as $user 0 env XDG_RUNTIME_DIR="$BOX/run/$user" "$BOX/shared/bin/ds-launch" ps >/dev/null 2>&1 </dev/null
        find "$BOX/run/$user" -type s
    done
}
# Connections over ssh that nodes I... still hold.
linked() { for i; do box on "$i" ss -tnH state established '( sport = :22 or dport = :22 )' 2>/dev/null; done; }
clean() { # clean NAME I...: within 10 s neither process nor socket of a job is left there
    local name=$1 n
    shift
    for n in $(seq 100); do [ -z "$(ours "$@")$(linked "$@")" ] && break; sleep 0.1; done
    [ -z "$(ours "$@")$(linked "$@")$(sockets)" ]
    result $? "$name"
    { ours "$@"; linked "$@"; sockets; } | sed 's/^/# left: /'
}
running() { # running I...: waits until a rank runs on each; 1: it did not come within 20 s
    local i n
    for i; do
        for n in $(seq 200); do box ps "$i" | grep -q '[s]leep 7777' && break; sleep 0.1; done
        [ "$n" -lt 200 ] || { echo "# no rank came up on n$i"; said; return 1; }
    done
}
pid_of() { box ps "$1" | awk -v re="$2" '$0 ~ re && !/awk/ {print $1; exit}'; } # pid_of I REGEX, in the node
background() { # background USER ARGS...: as launch, not waited for; see finish
    local user=$1
    shift
    timeout "${limit:-60}" "$here/box" as "$user" 0 env XDG_RUNTIME_DIR="$BOX/run/$user" "$BOX/shared/bin/ds-launch" "$@" >"$out" 2>&1 </dev/null &
    job=$!
}
finish() { wait "$job"; rc=$?; }

up() { # up N: the box, with our programs in its shared folder
    [ "$(id -u)" = 0 ] || lacks "needs root: a node is a set of namespaces"
    for tool in ip unshare nsenter ssh ssh-keygen /usr/sbin/sshd; do
        command -v "$tool" >/dev/null || lacks "needs $tool (apt-get install iproute2 openssh-server openssh-client)"
    done
    [ -x "$build/ds-launch" ] && [ -x "$build/ds-agent" ] || { echo "Bail out! ds-launch is not built"; exit 1; }
    work=$(mktemp -d) && chmod 755 "$work" || exit 99
    out=$work/out
    export BOX=$work/box
    trap 'box down; rm -rf "$work"' EXIT
    box up "$1" >"$work/up" 2>&1 </dev/null || lacks "no box here: $(tail -1 "$work/up")"
    mkdir "$BOX/shared/bin" "$BOX/run"
    install -d -m 700 "$BOX/run/root"
    install -d -m 700 -o 2000 -g 2000 "$BOX/run/hpc"
    cp "$build/ds-launch" "$build/ds-agent" "$BOX/shared/bin/"
    : >"$out"
    unset SSH_AUTH_SOCK
}
finished() { echo "1..$count"; exit $failed; }
