#!/bin/sh
# Simulated hosts: 64 nodes of 8 ranks through start, output, key space, failure, loss and end.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
run() { timeout 60 "$launch" --hosts sim:64x8 "$@" </dev/null; }

run true 2>err; rc=$?
is "512 ranks that return 0" $rc 0
like "what it cost" "$(cat err)" "64 nodes, 512 ranks: connected in"
like "memory and bytes" "$(cat err)" "MB from them"
# each rank puts its name, meets the others at a fence, gets 2 names of the ring and 2 at each of 6 distances on
# its rail, compares what it got with what the peer put, and meets the others again; a wrong value is its failure
run exchange 2>err; is "512 ranks exchange their addresses" $? 0
is "--prefix rank: every rank's line once" "$(run echo hi 2>/dev/null | sort | uniq | wc -l | tr -d ' ')" 512
is "the line itself" "$(run echo hi there 2>/dev/null | grep -c '^\[[0-9]*\] hi there$')" 512
run lines 200 >out 2>/dev/null
python3 - >check <<'X'
import re
left = [200] * 512
bad = 0
for line in open("out"):
    m = re.fullmatch(r"\[(\d+)\] (\d+) +\n", line)
    if not m or len(line) != 80 + len(m[1]) + 3 or int(m[2]) != left[int(m[1])]:
        bad += 1
        continue
    left[int(m[1])] -= 1
print(bad, sum(left))
X
is "102,400 lines: whole, in order, none lost" "$(cat check)" "0 0"
run exit 3 17 2>err; is "one rank's code" $? 3
like "which rank, on which host" "$(cat err)" "rank 17 on sim03 (pid 18) ended with code 3"
run exit 5 2>err; is "all ranks fail" $? 5
like "the others followed" "$(cat err)" "511"
run lose 5 2>err; is "a node that dies" $? 1
like "which node" "$(cat err)" "host sim06 was lost"
run python3 x.py 2>err; is "a program cannot be simulated" $? 2
like "what can" "$(cat err)" "exit CODE [RANK], echo TEXT"
run --launcher ssh true 2>err; is "invented hosts have no sshd" $? 2
"$launch" --hosts sim:64x8 sleep 60000 </dev/null 2>err &
pid=$!
sleep 1
kill -TERM $pid
wait $pid
is "a signal ends them" $? 143
if pgrep -P $pid >left; then fail "nothing is left" "$(cat left)"; else pass "nothing is left"; fi
finish
