#!/bin/sh
# What the logs and the terminal may not do to a job: a full disk, a folder that hangs, Ctrl-S.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
run() { timeout 60 "$launch" "$@"; }

# ---- a disk that is full ----
cat >full.sh <<'X'
mount -t tmpfs -o size=256k none full || exit 77
"$1" --hosts local:1x4 --enable-each-rank-log full sh -c 'i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); echo "line $i of $RANK ................................"; done' </dev/null >out 2>err
echo $? >rc
cat full/*rank0.log | head -1 >first
X
mkdir full
if unshare -rm true 2>/dev/null && { timeout 60 unshare -rm sh full.sh "$launch"; [ $? -ne 77 ]; }; then
    is "a full disk: the job goes on" "$(cat rc)" 0
    is "a full disk: every line is shown" "$(wc -l <out | tr -d ' ')" 20000
    is "a full disk: it is said, once" "$(grep -c 'No space left on device' err)" 1
    like "a full disk: which file" "$(cat err)" "cannot write full/"
    is "a full disk: what was there before stays" "$(cat first)" "line 1 of 0 ................................"
else
    pass "a full disk: no tmpfs can be mounted here # SKIP"
fi

# ---- a log folder that hangs for longer than the ping limit: lines go on being shown, none is lost ----
cat >hang.py <<'X'
import os, subprocess, sys, time
os.environ["DS_FAULT"] = "logwrite:5:4000"
p = subprocess.Popen([sys.argv[1], "--hosts", "local:2x1", "--ping-limit", "2s", "--enable-each-rank-log", "hung", "sh", "-c",
                      "i=0; while [ $i -lt 30 ]; do i=$((i + 1)); echo $i; sleep 0.1; done"],
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
began = t = time.monotonic()
gap = n = 0
for line in p.stdout:
    now = time.monotonic()
    gap = max(gap, now - t if n else 0)
    t = now
    n += 1
print(n, "shown on time" if gap < 2.5 else "gap of %.1f s" % gap, "status", p.wait(),
      "it hung" if time.monotonic() - began > 4 else "it did not hang", [sum(1 for l in open("hung/" + f)) for f in sorted(os.listdir("hung"))])
X
is "a log folder that hangs" "$(timeout 60 python3 hang.py "$launch")" "60 shown on time status 0 it hung [30, 30]"

# ---- a folder that cannot be made for longer than the ping limit: the agents are answered meanwhile ----
out=$(DS_FAULT=folders:1:4000 timeout 60 "$launch" --hosts local:2x1 --ping-limit 2s --enable-each-rank-log late echo hi </dev/null 2>err)
is "a folder that hangs while it is made" "$?:$(echo "$out" | sort):$(cat err):$(cat late/*rank1.log)" "0:[0] hi
[1] hi::hi"
DS_FAULT=folders:1:60000 timeout 60 "$launch" --hosts local:2x1 --enable-each-rank-log never echo hi </dev/null >out 2>err &
job=$!
sleep 1
kill $job
wait $job
is "one that hangs for good: the job can be ended" "$?:$(cat out)" "143:"

# ---- Ctrl-S for longer than the ping limit: the ranks wait, then all goes on ----
cat >talk.sh <<'X'
i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); echo "$RANK $i ................................................"; done
X
out=$(timeout 90 python3 "$top_srcdir/tests/cli/terminal.py" 4 "$launch" --hosts local:2x2 --ping-limit 2s sh talk.sh </dev/null)
is "Ctrl-S" "$out" "stopped 0
lines 80000 status 0"
finish
