# Sourced by the shell tests: TAP lines. ok NAME COMMAND..., is NAME GOT WANT, like NAME TEXT PATTERN, plan at the
# end. Each test has a folder of its own, taken away at the end.
n=0
here=$(mktemp -d "${TMPDIR:-/tmp}/ds-test.XXXXXX") || exit 99
trap 'rm -rf "$here"' EXIT
launch=$top_builddir/ds-launch

pass() { n=$((n + 1)); echo "ok $n - $1"; }
fail() {
    n=$((n + 1))
    echo "not ok $n - $1"
    shift
    printf '%s\n' "$*" | sed 's/^/# /'
}
ok() {
    name=$1
    shift
    if "$@" >"$here/.ok" 2>&1; then pass "$name"; else fail "$name" "$(cat "$here/.ok")"; fi
}
is() { if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "got:  $2" "want: $3"; fi; }
like() { case $2 in *"$3"*) pass "$1" ;; *) fail "$1" "no '$3' in: $2" ;; esac; }
unlike() { case $2 in *"$3"*) fail "$1" "'$3' in: $2" ;; *) pass "$1" ;; esac; }
finish() { echo "1..$n"; }

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
    left=$(($1 * 20))
    shift
    until "$@" 2>/dev/null; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || return 1
        sleep 0.05
    done
}
# nobody MARK: no process has this word in its environment or arguments but we ourselves.
nobody() { ! grep -alsz "DS_TEST_MARK=$1" /proc/[0-9]*/environ | grep -q .; }
