#!/bin/sh
# Programs under ds-launch on this machine: environment, arguments, output, stdin, exit codes, signals, and that
# nothing is left whatever happens.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
mark=m$$
run() { DS_TEST_MARK=$mark timeout 60 "$launch" "$@"; }

# ---- environment and arguments ----
cat >env.sh <<'X'
echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $LOCAL_SIZE $NODE_RANK $GROUP_RANK $CROSS_RANK $CROSS_SIZE $MASTER_ADDR"
X
run --hosts local:2x2 --prefix none sh env.sh </dev/null | sort >got
cat >want <<'X'
0 4 0 2 2 0 0 0 2 127.0.0.1
1 4 1 2 2 0 0 0 2 127.0.0.1
2 4 0 2 2 1 1 1 2 127.0.0.1
3 4 1 2 2 1 1 1 2 127.0.0.1
X
is "the environment of four ranks on two nodes" "$(cat got)" "$(cat want)"
is "one MASTER_PORT for all" "$(run --hosts local:2x2 --prefix none sh -c 'echo $MASTER_PORT' </dev/null | sort -u | grep -c '^[1-9][0-9]*$')" 1
cat >port.py <<'X'
import os, socket
if os.environ["RANK"] == "0":
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    s.listen()
    print("listens")
X
is "rank 0 can listen on MASTER_PORT" "$(run --hosts local:2x1 --prefix none port.py </dev/null)" "listens"

cat >args.py <<'X'
import os, sys
if os.environ["RANK"] == "1":
    sys.stdout.write(repr(sys.argv[1:]) + "\n")
X
nasty='a "b" '"'c'"' $HOME `x` \ =*
second line'
got=$(run --hosts local:1x2 --prefix none --no_local_rank args.py "$nasty" '' '--hosts' '$(date)' </dev/null 2>/dev/null)
want=$(python3 -c 'import sys; print(repr(sys.argv[1:]))' "$nasty" '' '--hosts' '$(date)')
is "arguments arrive byte for byte" "$got" "$want"
is "--local_rank stands in front of a Python program's arguments" \
    "$(run --hosts local:1x2 --prefix none args.py sub --x </dev/null)" "['--local_rank=1', 'sub', '--x']"
like "a flag behind the program is warned about" "$(run --hosts local:1x1 true --hosts x </dev/null 2>&1)" "stands behind the program"
got=$(NEW='x y=z"' run --hosts local:1x1 --export NEW --export 'EQ=a=b $c' --prefix none sh -c 'echo "$NEW|$EQ"' </dev/null)
like "--export of what is not set is said" "$(run --hosts local:1 --export NOT_SET_HERE --export 'NO_*' true </dev/null 2>&1)" "--export NOT_SET_HERE: it is not set here"
is "exported values arrive byte for byte" "$got" 'x y=z"|a=b $c'
printf '# mine\nexport FROM_FILE="a b"\n' >.deepspeed_env
is ".deepspeed_env is carried" "$(run --hosts local:1x1 sh -c 'echo $FROM_FILE' </dev/null)" "a b"
rm .deepspeed_env
is "an outer launch's variables are gone" "$(WORLD_SIZE=9 DS_AGENT_FD=3 run --hosts local:1x1 sh -c 'echo $WORLD_SIZE.$DS_AGENT_FD' </dev/null)" "1."
mkdir "a b"
is "the working directory" "$(cd 'a b' && run --hosts local:1x1 pwd </dev/null)" "$here/a b"

# ---- output ----
cat >chatty.py <<'X'
import os, sys
r = os.environ["RANK"]
for i in range(20000):
    sys.stdout.write("rank %s line %d %s\n" % (r, i, "x" * (i % 90)))
X
run --hosts local:2x2 chatty.py </dev/null >out
is "four chatty ranks: every line is there" "$(wc -l <out | tr -d ' ')" 80000
python3 - >check <<'X'
import re
nxt = [0] * 4
bad = 0
for line in open("out"):
    m = re.fullmatch(r"\[(\d)\] rank (\d) line (\d+) (x*)\n", line)
    if not m or m[1] != m[2] or int(m[3]) != nxt[int(m[1])] or len(m[4]) != int(m[3]) % 90:
        bad += 1
        continue
    nxt[int(m[1])] += 1
print(bad, nxt)
X
is "four chatty ranks: whole lines, in order" "$(cat check)" "0 [20000, 20000, 20000, 20000]"
is "--prefix host" "$(run --hosts local:2x1 --prefix host echo hi </dev/null | sort | tr '\n' ' ')" "local0:0: hi local1:1: hi "
is "stderr stays stderr" "$(run --hosts local:1x2 sh -c 'echo e >&2' </dev/null 2>&1 >/dev/null | sort | tr '\n' ' ')" "[0] e [1] e "
is "a lone program's output is untouched" "$(run --hosts local:1x1 printf 'a\nb' </dev/null | od -c)" "$(printf 'a\nb' | od -c)"
run --hosts local:1x2 --enable_each_rank_log logs sh -c 'echo out$RANK; echo err$RANK >&2' </dev/null >/dev/null 2>&1
is "a log for each rank" "$(sort logs/2*_rank0.log | tr '\n' ' ')$(sort logs/2*_rank1.log | tr '\n' ' ')" "err0 out0 err1 out1 "
run --hosts local:1x4 sh -c 'while :; do echo y; done' </dev/null 2>/dev/null | head -3 >/dev/null
ok "a reader that leaves ends the job" wait_for 20 nobody $mark

# a reader that stands still (Ctrl-S) for longer than the ping limit holds the ranks back; the job goes on, and
# the memory of ds-launch stays small
cat >slow.py <<'X'
import os, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "--hosts", "local:2x2", "--ping_limit", "2s", "sh", "-c", "yes " + "z" * 200], stdout=subprocess.PIPE,
                     stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.read(p.stdout.fileno(), 1)
time.sleep(4)
inner = int(subprocess.check_output(["pgrep", "-P", str(p.pid)]).split()[0])
rss = [int(l.split()[1]) for l in open("/proc/%d/status" % inner) if l.startswith("VmRSS")][0]
p.send_signal(2)
p.stdout.read()
print("small" if rss < 400000 else "%d kB" % rss, p.wait())
X
is "a slow reader costs no memory" "$(timeout 90 python3 slow.py "$launch")" "small 130"

# ---- stdin ----
is "stdin goes to rank 0 only" "$(printf 'one\ntwo\n' | run --hosts local:2x1 sh -c 'cat' | sort | tr '\n' ' ')" "[0] one [0] two "
python3 -c 'import sys; sys.stdout.write("line\n" * 400000)' >big
is "a large stdin arrives whole" "$(run --hosts local:1x1 sh -c 'sleep 0.3; md5sum' <big | cut -c1-32)" "$(md5sum <big | cut -c1-32)"
is "a rank that does not read its stdin ends" "$(run --hosts local:1x1 sh -c 'echo done' <big)" "done"

# ---- ends ----
run --hosts local:2x2 true </dev/null; is "all returned 0" $? 0
run --hosts local:2x2 sh -c 'test $RANK != 2 || exit 7; sleep 30' </dev/null 2>err; rc=$?
is "the code of the rank that failed" $rc 7
like "the rank that failed, its host" "$(cat err)" "rank 2 on local1 (pid "
like "the rank that failed, its code" "$(cat err)" "ended with code 7"
run --hosts local:2x2 sh -c 'if test $RANK = 1; then echo last words; kill -SEGV $$; fi; sleep 30' </dev/null 2>err >out; rc=$?
is "128 + the signal" $rc 139
like "the signal by number" "$(cat err)" "killed by signal 11"
like "its last lines" "$(cat err)" "  | last words"
run --hosts local:1x2 sh -c 'test $RANK = 0 || exec sleep 30
i=0; while [ $((i += 1)) -le 30 ]; do printf "%02d %0300d\n" $i 7; done; exit 3' </dev/null 2>err >out
is "twenty long ones, to the end" "$(awk '/^  \| / { n++; last = $2 " " length } END { print n, last }' err)" "20 30 307"
run --hosts local:1x2 sh -c 'test $RANK = 0 || exec sleep 30; printf "\n \n\n"; exit 3' </dev/null 2>err >out
unlike "blank lines are none" "$(cat err)" "last lines of rank"
run --hosts local:1x2 no-such-program-here </dev/null 2>err; rc=$?
ok "a program that is not there: a status that is not 0" test $rc -ne 0
like "a program that is not there: its name" "$(cat err)" "no-such-program-here"
rc=0; "$launch" --hosts local:2x1 "$here/no-such-script.py" >out 2>err || rc=$?
is "a script that is not there: the status of wrong input" "$rc" 2
is "a script that is not there is told once, and nothing is started" "$(grep -c no-such-script.py err)" 1

# the first one that failed is blamed, though the others fail at once after it
run --hosts local:1x3 sh -c 'if test $RANK = 1; then touch died; exit 3; fi; while ! test -e died; do sleep 0.01; done; sleep 0.1; exit 4' </dev/null 2>err; rc=$?
is "cause and followers: the code" $rc 3
like "cause and followers: the count" "$(cat err)" "2 ranks followed"

cat >stubborn.sh <<'X'
trap '' TERM INT
echo $$ >pid.$RANK
touch up.$RANK
if test "$RANK" = 0 && test -n "$FAIL"; then while ! test -e up.1; do sleep 0.01; done; exit 5; fi
while :; do sleep 0.1; done
X
rm -f up.*
FAIL=1 run --hosts local:1x2 --export FAIL --grace 500ms sh stubborn.sh </dev/null 2>err; rc=$?
is "ranks that ignore TERM are killed after the grace time" $rc 5
ok "and are gone" wait_for 5 nobody $mark

up() { test -e up.0 && test -e up.1; }
start() { # start ARGS...: in the background, pid in $pid
    rm -f up.*
    DS_TEST_MARK=$mark "$launch" "$@" </dev/null >out 2>err &
    pid=$!
    wait_for 20 up || echo "# it did not come up: $(cat err)"
}
cat >plain.sh <<'X'
echo $$ >pid.$RANK
touch up.$RANK
sleep 60 & wait
X
for s in INT TERM HUP; do
    # a shell starts background jobs with SIGINT ignored, and what is ignored at start stays so
    start_sig() { rm -f up.*; DS_TEST_MARK=$mark python3 -c 'import os,signal,sys
for s in (signal.SIGINT, signal.SIGQUIT): signal.signal(s, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$launch" --hosts local:2x1 sh plain.sh </dev/null >out 2>err & pid=$!; wait_for 20 up; }
    start_sig
    kill -$s $pid
    wait $pid
    rc=$?
    case $s in INT) want=130 ;; TERM) want=143 ;; HUP) want=129 ;; esac
    is "SIG$s ends the job" $rc $want
    ok "SIG$s: nothing is left" wait_for 5 nobody $mark
done
rm -f up.* pid.*
DS_TEST_MARK=$mark python3 -c 'import os,signal,sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$launch" --hosts local:2x1 sh stubborn.sh </dev/null >out 2>err & pid=$!
wait_for 20 up
kill -INT $pid
sleep 0.5
ok "one SIGINT: the grace time runs" kill -0 $pid
kill -INT $pid
wait $pid
is "a second SIGINT kills" $? 130
ok "a second SIGINT: nothing is left" wait_for 5 nobody $mark

start --hosts local:2x1 --ping_limit 1s sh plain.sh
kill -TSTP $pid
sleep 2.5
is "Ctrl-Z stops the terminal's side" "$(cut -d' ' -f3 /proc/$pid/stat)" T
ok "and not the job" kill -0 "$(cat pid.1)"
kill -CONT $pid
kill -TERM $pid
wait $pid
is "it goes on to the end" $? 143

cat >usr.sh <<'X'
trap 'echo got USR1; exit 0' USR1
touch up.$RANK
while :; do sleep 0.05; done
X
start --hosts local:2x1 sh usr.sh
kill -USR1 $pid
wait $pid
is "SIGUSR1 is passed on" "$?:$(sort out | tr '\n' ' ')" "0:[0] got USR1 [1] got USR1 "

start --hosts local:2x1 --grace 1s sh plain.sh
kill -KILL $pid
wait $pid 2>/dev/null
ok "kill -9 of ds-launch: nothing is left" wait_for 20 nobody $mark

for which in head tail; do
    start --hosts local:2x1 sh plain.sh
    keeper=$(pgrep -P "$(pgrep -P $pid | head -1)" -x ds-agent | $which -1)
    kill -KILL "$keeper"
    wait $pid
    is "kill -9 of an agent's keeper: the job fails" $? 1
    like "kill -9 of an agent's keeper: its host is to blame, not a rank" "$(cat err)" "was lost: its agent ended: its keeper is gone"
    ok "kill -9 of an agent's keeper: nothing is left" wait_for 20 nobody $mark
done

start --hosts local:2x1 --ping_limit 1s sh plain.sh
keeper=$(pgrep -P "$(pgrep -P $pid | head -1)" -x ds-agent | tail -1)
agent=$(pgrep -P "$keeper" -x ds-agent | head -1)
kill -STOP "$agent"
wait $pid
rc=$?
kill -CONT "$agent" 2>/dev/null
is "a silent host: the job fails" $rc 1
like "a silent host is named" "$(cat err)" "was lost: nothing was heard from it"
ok "a silent host: nothing is left" wait_for 20 nobody $mark

# ---- exec ----
out=$(run --hosts 'a,b' --launcher exec --launcher_args "echo noise on %h; exec $top_builddir/ds-agent" --prefix host echo hi </dev/null 2>err | sort | tr '\n' ' ')
is "launcher exec, with noise in front of the agent" "$out" "a:0: hi b:1: hi "
run --hosts 'a,b' --launcher exec --launcher_args "echo cannot reach %h >&2; exit 255" true </dev/null 2>err; rc=$?
is "hosts that cannot be reached" $rc 1
like "hosts that cannot be reached are named" "$(cat err)" "cannot reach a"
like "all of them" "$(cat err)" "cannot reach b"
run --hosts 'a' --launcher exec --launcher_args "sleep 60 # ds-agent" --connect_timeout 500ms true </dev/null 2>err; rc=$?
is "a host that does not answer" $rc 1
like "a host that does not answer is named" "$(cat err)" "a: no answer"
DS_TEST_MARK=$mark "$launch" --hosts a --launcher exec --launcher_args "sleep 60 # ds-agent" true </dev/null 2>err &
pid=$!
sleep 0.5
kill -TERM $pid
wait $pid
is "a signal while hosts are connected to" $? 143
ok "a signal while hosts are connected to: nothing is left" wait_for 10 nobody $mark
is "--dry-run starts nothing" "$(run --hosts local:2x1 --dry-run touch started </dev/null 2>&1 | grep -c 'every check passed'; ls started 2>/dev/null)" 1
finish
