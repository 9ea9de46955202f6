#!/bin/sh
# How the front end grows: simulated nodes of 8 ranks are started, exchange their addresses (put, fence, get of each
# rank's peers on demand), and are torn down. Judged: 4,096 nodes within 10 s and 60 MB, and no worse than 16 times
# 256 nodes. Usage: scale.sh [BUILD] (default: .)
launch=${1:-.}/ds-launch
out=$(mktemp) || exit 99
trap 'rm -f "$out"' EXIT
for n in 256 1024 4096; do
    for word in true exchange; do
        "$launch" --hosts "sim:${n}x8" $word </dev/null 2>"$out.err" || { cat "$out.err"; rm -f "$out.err"; exit 1; }
        printf '%s ' $word >>"$out"
        cat "$out.err" >>"$out"
    done
done
rm -f "$out.err"
python3 - "$out" <<'X'
import re, sys
wall, bad = {}, 0
print("%-9s %6s %7s %8s %8s %8s %8s %9s %9s" % ("", "nodes", "ranks", "wall s", "cpu s", "MB", "ran s", "MB to", "MB from"))
for line in open(sys.argv[1]):
    word = line.split()[0]
    nodes, ranks = map(int, re.search(r"(\d+) nodes, (\d+) ranks", line).groups())
    parts = dict((w, float(t)) for w, t in re.findall(r"(\w+) in ([\d.]+) s", line))
    cpu, mb, to, back = map(float, re.search(r"([\d.]+) s of processor time, ([\d.]+) MB; ([\d.]+) MB to the agents, "
                                             r"([\d.]+) MB from", line).groups())
    total = sum(float(t) for t in re.findall(r"in ([\d.]+) s", line))
    wall[word, nodes] = total
    print("%-9s %6d %7d %8.2f %8.2f %8.1f %8.2f %9.1f %9.1f" % (word, nodes, ranks, total, cpu, mb, parts["ran"], to, back))
    if nodes == 4096 and (total > 10 or mb > 60):
        bad = 1
for word in ("true", "exchange"):
    ratio = wall[word, 4096] / max(wall[word, 256], 0.01)
    print("%s: 4096 nodes took %.1f times as long as 256 (16 is linear)" % (word, ratio))
    if ratio > 16 and wall[word, 256] >= 0.1:
        bad = 1
print("within the limits" if not bad else "BEYOND THE LIMITS")
sys.exit(bad)
X
