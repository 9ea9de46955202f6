#!/bin/sh
# How the front end grows: simulated nodes of 8 ranks are started, exchange their addresses (put, fence, get of each
# rank's peers on demand), and are torn down. Judged: 4,096 nodes within 10 s and 60 MB, and time no worse than linear
# from 256 nodes: in ranks, and for the exchange in values (a rank has 2 peers more for each doubling). The best of three
# runs counts. Usage: scale.sh [BUILD] (default: .)
launch=${1:-.}/ds-launch
out=$(mktemp) || exit 99
trap 'rm -f "$out"' EXIT
for n in 256 256 256 1024 1024 1024 4096 4096 4096; do
    for word in true exchange; do
        "$launch" --hosts "sim:${n}x8" $word </dev/null 2>"$out.err" || { cat "$out.err"; rm -f "$out.err"; exit 1; }
        printf '%s ' $word >>"$out"
        cat "$out.err" >>"$out"
    done
done
rm -f "$out.err"
python3 - "$out" <<'X'
import re, sys
rows, bad = {}, 0
for line in open(sys.argv[1]):
    word = line.split()[0]
    nodes, ranks = map(int, re.search(r"(\d+) nodes, (\d+) ranks", line).groups())
    ran = float(re.search(r"ran in ([\d.]+) s", line)[1])
    cpu, mb, to, back = map(float, re.search(r"([\d.]+) s of processor time, ([\d.]+) MB; ([\d.]+) MB to the agents, "
                                             r"([\d.]+) MB from", line).groups())
    wall = sum(float(t) for t in re.findall(r"in ([\d.]+) s", line))
    row = (wall, ranks, cpu, mb, ran, to, back)
    rows[word, nodes] = min(rows.get((word, nodes), row), row)
print("%-9s %6s %7s %8s %8s %8s %8s %9s %9s" % ("", "nodes", "ranks", "wall s", "cpu s", "MB", "ran s", "MB to", "MB from"))
for (word, nodes), (wall, ranks, cpu, mb, ran, to, back) in sorted(rows.items()):
    print("%-9s %6d %7d %8.2f %8.2f %8.1f %8.2f %9.1f %9.1f" % (word, nodes, ranks, wall, cpu, mb, ran, to, back))
    bad |= nodes == 4096 and (wall > 10 or mb > 60)
for word, linear in ("true", 16), ("exchange", 16 * (2 + 2 * 12) / (2 + 2 * 8)):
    small, large = rows[word, 256][0], rows[word, 4096][0]
    print("%s: 4096 nodes took %.1f times as long as 256; linear is %.1f" % (word, large / small, linear))
    bad |= large / max(small, 0.1) > linear * 1.1  # below 0.1 s it is the clock that is measured
print("within the limits" if not bad else "BEYOND THE LIMITS")
sys.exit(bad)
X
