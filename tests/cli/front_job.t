#!/bin/sh
# A job file under ds-launch on this machine: the run folder, progress, resume, and how a job ends.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
mark=m$$
run() { DS_TEST_MARK=$mark timeout 60 "$launch" "$@" </dev/null; }
python3 -c 'open("t.txt","w").write("the quick brown fox jumps over the lazy dog. "*400)'
cat >a.ini <<'X'
train_batch_size = 4
steps_per_print = 2
[model]
form = gpt2
n_layer = 1
n_head = 1
n_embd = 16
[data]
train = t.txt
seq_len = 16
[run]
steps = 5
X

run --hosts local:2x1 a.ini --run-dir r >out 2>err
is "a job ends well" $? 0
like "the first step, in a pipe" "$(cat out)" "step 1/5  loss "
like "every second step" "$(cat out)" "step 4/5  loss "
unlike "and not the others" "$(cat out)" "step 3/5"
like "the last step" "$(cat out)" "step 5/5  loss "
like "the summary" "$(cat out)" "5 steps, loss "
like "the run folder is named" "$(cat out)" "run folder $here/r"
unlike "no escape codes in a pipe" "$(cat out err)" "$(printf '\033')"
cmp -s a.ini r/a.ini; is "the job file is copied" $? 0

run --hosts local:1x1 a.ini --run-dir busy --set run.steps=1000000 >out 2>err & first=$!
wait_for 30 test -s busy/metrics.jsonl
before=$(cat busy/job.json)
run --hosts local:1x1 a.ini --run-dir busy --resume auto >out2 2>err2
is "a second job in the folder of one that runs is refused" $? 2
like "and says whose it is" "$(cat err2)" "a job is running in $here/busy, process "
is "and the folder is as it was" "$(cat busy/job.json)" "$before"
"$launch" kill busy >/dev/null
wait $first
like "the first one goes on until it is told to end" "$(cat out)" "/1000000  loss "
run --hosts local:1x1 a.ini --run-dir busy --resume auto --set run.steps=1 >out 2>err
is "then the folder is free" $? 0
cat >check.py <<'X'
import json
job = json.load(open("r/job.json"))
m = [json.loads(l) for l in open("r/metrics.jsonl")]
e = [json.loads(l) for l in open("r/events.jsonl")]
steps = [x["step"] for x in m if "loss" in x]
print(job["world"], len(job["nodes"]), steps, e[0]["ev"], e[0]["world"], e[-1]["ev"], e[-1]["code"], e[-1]["step"],
      sorted(x["rank"] for x in e if x["ev"] == "rank_exit"), all("t" in x and "epoch" in x for x in e))
X
is "job.json, metrics.jsonl, events.jsonl" "$(python3 check.py)" "2 2 [1, 2, 3, 4, 5] epoch_begin 2 done 0 5 [0, 1] True"
loss() { python3 -c 'import json,sys
print([json.loads(l)["loss"] for l in open(sys.argv[1]) if "\"loss\"" in l])' "$1"; }

run --hosts local:2x1 a.ini --run-dir r >out 2>err
is "a run folder in use is refused" $? 2
like "and the way on is said" "$(cat err)" "--resume auto"
run --hosts local:2x1 a.ini --run-dir r --resume auto --set run.steps=8 >out 2>err
is "--resume auto goes on in it" $? 0
like "from the step where it was" "$(cat out)" "step 6/8"
run --hosts local:2x1 a.ini --run-dir whole --set run.steps=8 >out 2>err
is "the loss is that of a run that was not interrupted" "$(loss r/metrics.jsonl)" "$(loss whole/metrics.jsonl)"

truncate -s -7 whole/metrics.jsonl; truncate -s -7 whole/events.jsonl
run --hosts local:2x1 a.ini --run-dir whole --resume auto --set run.steps=9 >out 2>err
is "after half a line a resumed run begins a new one" "$(python3 -c 'import json
for name in "metrics", "events":
    bad = 0
    for line in open("whole/%s.jsonl" % name):
        try: json.loads(line)
        except ValueError: bad += 1
    print(name, bad)')" "metrics 1
events 1"

run --hosts local:2x1 a.ini --run-dir none --set run.save_every=-1 >out 2>err
is "save_every = -1: a run that keeps nothing ends well" $? 0
ok "and leaves no checkpoint" test -f none/metrics.jsonl -a ! -e none/ckpt/latest
ok "where another run leaves one" test -e r/ckpt/latest

run --hosts local:2x1 a.ini --run-dir bad --set data.train=missing.txt >out 2>err
is "a check that fails: status" $? 2
like "a check that fails: why" "$(cat err)" "missing.txt"
ok "a check that fails leaves no run folder" test ! -e bad
is "two hosts with the same complaint share a line" "$(grep -c 'local\[0-1\]: ' err)" 1
run --hosts local:2x1 a.ini --run-dir dry --dry-run >out 2>err
is "--dry-run" "$?:$(ls -d dry 2>/dev/null)" "0:"
run --hosts local:2x1 a.ini --run-dir /proc/nowhere/r >out 2>err; rc=$?
ok "a run folder that cannot be made" test $rc -ne 0
like "a run folder that cannot be made is named" "$(cat err)" "/proc/nowhere"

cat >term.py <<'X'
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "--hosts", "local:2x1", "a.ini", "--run-dir", "tty"])
text = b""
while True:
    try:
        part = os.read(fd, 65536)
    except OSError:
        break
    if not part:
        break
    text += part
_, st = os.waitpid(pid, 0)
text = text.decode()
print(os.waitstatus_to_exitcode(st), "\x1b[Kstep 5/5" in text, text.count("\nstep "), text.rstrip().endswith("/tty"))
X
is "a terminal gets one live line" "$(timeout 60 python3 term.py "$launch")" "0 True 1 True"

begun() { grep -q '"step":2' "$1/metrics.jsonl"; }
DS_TEST_MARK=$mark "$launch" --hosts local:2x1 a.ini --run-dir k --set run.steps=1000000 </dev/null >out 2>err &
pid=$!
wait_for 30 begun k
victim=$(pgrep -x ds-rank | while read -r p; do
    tr '\0' '\n' <"/proc/$p/environ" | grep -q "^DS_TEST_MARK=$mark\$" && echo "$p"
done | head -1)
kill -KILL "$victim"
wait $pid
is "a killed rank: 128 + 9" $? 137
like "a killed rank is named" "$(cat err)" "(pid $victim) was killed by signal 9"
last=$(sed -n 's/.*"step":\([0-9]*\),.*/\1/p' k/metrics.jsonl | tail -n 1)
at=$(sed -n 's/.*signal 9 (Killed)[^;]* \(in\|after\) step \([0-9]*\).*/\2/p' err)
ok "and where in its training" test "$at" -ge "$((last - 1))" -a "$at" -le "$((last + 2))"
like "the other one followed" "$(cat err)" "1 rank followed"
ok "nothing is left" wait_for 10 nobody $mark

DS_TEST_MARK=$mark "$launch" --hosts local:2x1 a.ini --run-dir "s t" --set run.steps=1000000 </dev/null >out 2>err &
pid=$!
wait_for 30 begun "s t"
kill -TERM $pid
wait $pid
is "TERM stops a job" $? 143
ok "which has saved" test -s "s t/ckpt/latest"
go=$(sed -n 's/.*go on with: //p' err)
is "and says how to go on" "$go" "$launch --hosts local:2x1 a.ini --run-dir 's t' --set run.steps=1000000 --resume auto"
steps=$(($(tail -n 1 "s t/metrics.jsonl" | sed 's/.*"step":\([0-9]*\).*/\1/') + 2))
eval "$go --set run.steps=$steps" </dev/null >out 2>err
is "that command goes on" $? 0
like "to the end" "$(cat out)" "step $steps/$steps"
ok "nothing is left then either" wait_for 10 nobody $mark
finish
