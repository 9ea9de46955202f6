#!/bin/sh
# 8 ranks print 2 million lines of 80 bytes together, into log files and a pipe, against `cat | tee FILE` of the same
# bytes through the same pipes. Every line is looked at afterwards: whole, in its rank's order, none lost, and the logs
# byte for byte. Judged: at least 0.5 of that rate (median of the pairs). Usage: output.sh [BUILD] [PAIRS]
build=$(cd "${1:-.}" && pwd) pairs=${2:-5}
here=$(mktemp -d "${TMPDIR:-/tmp}/ds-bench-output.XXXXXX") || exit 99
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 99
print=$build/tests/bench/printlines
[ -x "$print" ] || { echo "make bench-output builds $print"; exit 99; }
now() { date +%s.%N; }
for i in $(seq "$pairs"); do
    rm -rf all logs out
    a=$(now)
    { for r in 0 1 2 3 4 5 6 7; do "$print" 250000 $r & done; wait; } | cat | tee all | cat >out
    b=$(now)
    "$build/ds-launch" --hosts local:1x8 --enable-each-rank-log logs "$print" 250000 </dev/null | cat >out || exit 1
    c=$(now)
    echo "$a $b $c" >>times
done
for r in 0 1 2 3 4 5 6 7; do "$print" 250000 $r | cmp - logs/*rank$r.log || exit 1; done
python3 - "$print" <<'X'
import subprocess, sys
want = [subprocess.Popen([sys.argv[1], "250000", str(r)], stdout=subprocess.PIPE).stdout for r in range(8)]
n = 0
with open("out", "rb") as f:
    for line in f:
        n += 1
        if line[:1] != b"[" or line[2:4] != b"] " or line[4:] != want[int(line[1:2])].readline():
            sys.exit("line %d is torn or out of order: %r" % (n, line))
if n != 2000000:
    sys.exit("%d lines are lost" % (2000000 - n))
pairs = [(b - a, c - b) for a, b, c in (map(float, l.split()) for l in open("times"))]
for base, ours in pairs:
    print("cat | tee %.2f s, ds-launch %.2f s: %.2f of its rate" % (base, ours, base / ours))
ratio = sorted(b / o for b, o in pairs)[len(pairs) // 2]
print("2,000,000 lines, none torn, lost or out of order; %.2f of the rate of cat | tee (at least 0.5)" % ratio)
sys.exit(ratio < 0.5)
X
