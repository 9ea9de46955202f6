#!/bin/sh
# Words and variables of torchrun: what a rank sees, with uneven slots too, the error file, files of output, restarts.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
mark=m$$
run() { DS_TEST_MARK=$mark timeout 60 "$launch" "$@" </dev/null; }

# ---- what a rank sees ----
printf 'a slots=1\nb slots=3\n' >hf
agent="exec $top_builddir/ds-agent"
cat >vars.sh <<'X'
echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $ROLE_RANK/$ROLE_WORLD_SIZE \
$ROLE_NAME $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID"
X
run -H hf --launcher exec --launcher_args "$agent" --rdzv-id 'run 5' --role trainer --max-restarts 4 --prefix none sh vars.sh | sort >got
cat >want <<'X'
0/4 0/1 0/2 0/4 trainer 0/4 run 5
1/4 0/3 1/2 1/4 trainer 0/4 run 5
2/4 1/3 1/2 2/4 trainer 0/4 run 5
3/4 2/3 1/2 3/4 trainer 0/4 run 5
X
is "torchrun's variables with uneven slots" "$(cat got)" "$(cat want)"
is "one run id for all ranks, another one for another launch" \
    "$({ run --hosts local:2x2 --prefix none sh -c 'echo $TORCHELASTIC_RUN_ID'; run --hosts local:1 sh -c 'echo $TORCHELASTIC_RUN_ID'; } | sort -u | wc -l | tr -d ' ')" 2
is "an agent store of a torchrun around us is not announced" \
    "$(TORCHELASTIC_USE_AGENT_STORE=True run --hosts local:1 sh -c 'echo "<$TORCHELASTIC_USE_AGENT_STORE>"')" "<>"
echo 'import sys; print(sys.argv[1:])' >args.py
is "--nproc-per-node appends no --local_rank" "$(run --nproc-per-node 1 args.py x)" "['x']"
is "--nproc-per-node of hosts without a number of slots" \
    "$(run --hosts a,b --launcher exec --launcher_args "$agent" --nproc-per-node 2 --prefix none sh -c 'echo $RANK/$WORLD_SIZE' | sort | tr '\n' ' ')" "0/4 1/4 2/4 3/4 "
is "-m runs a module" "$(run --standalone --nproc-per-node 1 -m args x y)" "['x', 'y']"
is "--nproc-per-node cpu" "$(run --standalone --nproc-per-node cpu --prefix none echo x | wc -l | tr -d ' ')" "$(nproc)"
for line in "--nnodes=1 --node_rank=0" "--nnodes=1 --rdzv_backend=c10d --rdzv_endpoint=localhost:0" \
    "--nnodes=1:1 --rdzv-endpoint 127.0.0.1" "--standalone --rdzv_id=1 --rdzv_backend=c10d --rdzv_endpoint=[::1]:29400"; do
    is "one node as torchrun starts it: $line" "$(run $line --nproc_per_node=2 --prefix none sh -c 'echo $WORLD_SIZE' 2>&1 | tr '\n' ' ')" "2 2 "
done
like "more ranks than slots: the option that was typed" "$(run --nproc-per-node 8 --hosts a:2 plan true 2>&1)" \
    "ds-launch: --nproc-per-node is 8 but host a has 2 slots"
like "more hosts than there are: the option that was typed" "$(run --nnodes 3 --hosts a:2 plan true 2>&1)" \
    "ds-launch: --nnodes is 3 but --hosts has 1 host;"
is "--nnodes MIN:MAX takes what is there" "$(run --nnodes 1:4 --hosts local:2x1 --prefix none echo x | wc -l | tr -d ' ')" 2
is "--nnodes MIN:MAX takes at most MAX" "$(run --nnodes 1:2 --hosts local:3x1 --prefix none echo x | wc -l | tr -d ' ')" 2
is "--standalone is this machine" "$(run --standalone --nproc-per-node 2 --prefix none sh -c 'echo $MASTER_ADDR' | sort -u)" 127.0.0.1
is "--local-addr is MASTER_ADDR of one host" "$(run --local-addr 127.0.0.2 --hosts local:1 sh -c 'echo $MASTER_ADDR')" 127.0.0.2
out=$(run --local-addr 127.0.0.2 --hosts local:2x1 true 2>&1); rc=$?
is "--local-addr of many hosts: status" $rc 2
like "--local-addr of many hosts: why" "$out" "--network-interface"

# ---- limits, umask, folder: of the shell, on a node whose login has others ----
cat >limits.sh <<'X'
echo "$(ulimit -S -c) $(ulimit -S -n) $(umask) $PWD"
X
hard=$(ulimit -H -n)
[ "$hard" -le 1048576 ] 2>/dev/null || hard=1048576
got=$(ulimit -S -c 0; umask 027; run --hosts a --launcher exec --launcher_args "ulimit -S -c unlimited; ulimit -S -n 64; umask 0; cd /; $agent" sh limits.sh)
is "no core files, all descriptors, umask and folder" "$got" "0 $hard 0027 $here"
is "descriptors on this machine: no more than on others" "$(run --hosts local:1 sh -c 'ulimit -S -n')" "$hard"

# ---- values and arguments are bytes, through an agent that a shell started ----
cat >bytes.py <<'X'
import os, sys
sys.stdout.buffer.write(b"|".join([os.environb[b"MY_BYTES"], os.environb[b"MY_EMPTY"]] + [os.fsencode(a) for a in sys.argv[1:]]))
X
cat >bytes_want.py <<'X'
import sys
sys.stdout.buffer.write(b"|".join([b"\xff a\n'b\" $c=`d`\\ \xc3\xa9", b"", b"", b"two\nlines\n", b"\xfe\x01", b"-x", b"a b  c", b"$HOME;*", b"\xe2\x82\xac"]))
X
python3 bytes_want.py >want
MY_BYTES=$(printf "\\377 a\\n'b\" \$c=\`d\`\\\\ \\303\\251") MY_EMPTY= run --hosts x --launcher exec --launcher_args "env -i $top_builddir/ds-agent" \
    --export 'MY_*' --no_local_rank bytes.py '' 'two
lines
' "$(printf '\376\001')" -x 'a b  c' '$HOME;*' '€' >got
is "variables and arguments arrive byte for byte" "$(od -c got)" "$(od -c want)"

# ---- --venv_script ----
mkdir -p venv/bin
printf '#!/bin/sh\necho from the venv "$@"\n' >venv/bin/tool
chmod +x venv/bin/tool
cat >venv/activate <<'X'
echo noise of the script
PATH=$PWD/venv/bin:$PATH
export SET_HERE="a  b
c\$ ' é" OVER=script WINS=script
false
X
cat >venv.sh <<'X'
tool; printf '%s|' "$SET_HERE" "$OVER" "$WINS" "$RANK" "$LOCAL_RANK"; echo
X
got=$(OVER=shell run --hosts local:2x1 --venv_script venv/activate --export WINS=export --prefix none sh venv.sh 2>err | sort)
want=$(printf '%s\n' "c\$ ' é|script|export|0|0|" "a  b" "from the venv" "c\$ ' é|script|export|1|0|" "a  b" "from the venv" | sort)
is "--venv_script: its environment, and --export over it" "$got" "$want"
is "--venv_script: what it prints is not the ranks' output" "$(grep -c noise err)" 0
echo 'unset DS_TEST_GONE' >venv/gone
is "--venv_script: what it unsets is gone" "$(DS_TEST_GONE=1 run --hosts local:1 --venv_script venv/gone sh -c 'echo "<$DS_TEST_GONE>"')" "<>"
is "--venv_script: a program of its PATH is found by the check" "$(run --hosts local:1 --venv_script venv/activate tool x 2>&1)" "from the venv x"
is "--venv_script: the ranks of every start have it" \
    "$(run --hosts local:1 --max-restarts 1 --venv_script venv/activate sh -c 'tool; exit $((1 - TORCHELASTIC_RESTART_COUNT))' 2>/dev/null | sort | uniq -c | tr -s ' ')" " 2 from the venv"
out=$(run --hosts local:2x1 --venv_script venv/none touch started 2>&1); rc=$?
is "--venv_script that is not there: status, nothing is started" "$rc $(ls started 2>/dev/null)" "2 "
like "--venv_script that is not there: hosts and file" "$out" "local[0-1]: --venv_script $here/venv/none can't be read"
echo 'echo so it is >&2; exit 7' >venv/bad
out=$(run --hosts local:1 --venv_script venv/bad true 2>&1); rc=$?
is "--venv_script that fails: status" $rc 2
like "--venv_script that fails: why" "$out" "ended with code 7: so it is"
echo 'exit 0' >venv/bad
like "--venv_script that ends the shell" "$(run --hosts local:1 --venv_script venv/bad true 2>&1)" "ended the shell"

# ---- the error file ----
cat >err.py <<'X'
import json, os, sys, time
if os.environ["RANK"] == "1":
    json.dump({"message": {"message": "ValueError: \u00e9 no such layer\nmore", "extraInfo": {"timestamp": "1"}}},
              open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
    sys.exit(3)
time.sleep(30)
X
run --hosts local:2 err.py 2>err; rc=$?
is "error file: the code is the rank's" $rc 3
like "error file: its message stands in the end" "$(cat err)" "ended with code 3: ValueError: é no such layer"
run --hosts local:1 sh -c 'echo "{\"message\": \"plain\"}" >$TORCHELASTIC_ERROR_FILE; exit 4' 2>err
like "error file: the plain form" "$(cat err)" "ended with code 4: plain"
run --hosts local:1 sh -c 'head -c 3000000 /dev/urandom >$TORCHELASTIC_ERROR_FILE; exit 5' 2>err; rc=$?
is "error file: what is no message is left out" "$rc $(grep -c 'ended with code 5$' err)" "5 1"

# ---- restarts ----
cat >again.sh <<'X'
echo "$RANK $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS $DS_EPOCH $MASTER_PORT"
sleep 300 &
if test "$RANK" = 1; then test "$TORCHELASTIC_RESTART_COUNT" -ge 2 || exit 9; touch done; exit 0; fi
trap '' TERM
while ! test -e done; do sleep 0.05; done
X
run --hosts local:2x2 --max-restarts 3 --prefix none sh again.sh >out 2>err; rc=$?
is "two failures and three restarts allowed: it ends well" $rc 0
is "every rank is started three times, with count and epoch" "$(cut -d' ' -f1-3 out | sort | tr '\n' ',')" \
    "0 0/3 1,0 1/3 2,0 2/3 3,1 0/3 1,1 1/3 2,1 2/3 3,2 0/3 1,2 1/3 2,2 2/3 3,3 0/3 1,3 1/3 2,3 2/3 3,"
is "each start has its own MASTER_PORT, the same for all" "$(cut -d' ' -f2,4 out | sort -u | wc -l | tr -d ' ') $(cut -d' ' -f4 out | sort -u | wc -l | tr -d ' ')" "3 3"
like "what failed is told" "$(cat err)" "ended with code 9; all ranks start again (2 of 3)"
ok "restarts: nothing is left" wait_for 5 nobody $mark
rm -f done
run --hosts local:2x1 --max-restarts 1 --grace 300ms --master_port 23457 sh again.sh >out 2>err; rc=$?
is "more failures than restarts: the code" $rc 9
like "more failures than restarts: how often" "$(cat err)" "started again 1 time"
is "a MASTER_PORT that was given stays" "$(cut -d' ' -f5 out | sort -u)" 23457
ok "more failures than restarts: nothing is left" wait_for 5 nobody $mark
run --hosts local:1 --max-restarts 5 no-such-program 2>err; rc=$?
is "a program that is not there is not tried again" "$rc $(grep -c again err)" "2 0"
run --hosts local:1x2 --max-restarts 2 sh -c 'seq 1 20000; kill -9 $$' >out 2>err; rc=$?
is "killed by a signal, again and again" $rc 137
is "no line of any attempt is lost" "$(sort out | uniq -c | awk '$1 != 3' | wc -l | tr -d ' ') $(wc -l <out | tr -d ' ')" "0 120000"
cat >slow.sh <<'X'
trap '' TERM INT
touch up.$TORCHELASTIC_RESTART_COUNT
if test "$RANK" = 1; then exit 3; fi
while :; do sleep 0.05; done
X
DS_TEST_MARK=$mark "$launch" --hosts local:2x1 --max-restarts 1000 --grace 300ms sh slow.sh </dev/null >out 2>err &
pid=$!
wait_for 10 test -e up.0
sleep 0.7
kill -TERM $pid
wait $pid
is "a signal between two starts ends the job" $? 143
ok "a signal between two starts: nothing is left" wait_for 5 nobody $mark

# ---- fewer hosts: --nnodes MIN:MAX ----
some="test %h != b && exec $top_builddir/ds-agent"
echo 'echo "$RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT"' >who.sh
run --hosts a,b,c --launcher exec --launcher_args "$some" --nnodes 2:3 --prefix none sh who.sh >out 2>err; rc=$?
is "a host that does not come is left out" "$rc $(sort out | tr '\n' ',')" "0 0/2 0/2 0,1/2 1/2 0,"
like "a host that does not come is named" "$(cat err)" "warning: b cannot take part"
run --hosts a,b,c --launcher exec --launcher_args "$some" --nnodes 3:3 sh who.sh >out 2>err; rc=$?
is "fewer hosts than MIN: the launch fails" "$rc $(cat out)" "1 "
run --hosts a,b,c --launcher exec --launcher_args "test %h = b && exec sleep 60; exec $top_builddir/ds-agent" --connect-timeout 1s \
    --nnodes 1:3 --prefix none sh who.sh >out 2>err; rc=$?
is "a host that does not answer in time is left out" "$rc $(sort out | tr '\n' ',')" "0 0/2 0/2 0,1/2 1/2 0,"
cat >lose.sh <<'X'
echo "$RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $DS_EPOCH"
test "$WORLD_SIZE" = 2 && exit 0
touch in.$RANK
sleep 300
X
lose() { # an agent is killed when all ranks run
    rm -f in.*
    DS_TEST_MARK=$mark "$launch" --hosts local:3x1 --nnodes 2:3 --prefix none --log-dir l6 "$@" sh lose.sh </dev/null >out 2>err &
    pid=$!
    wait_for 20 test -e in.0 -a -e in.1 -a -e in.2
    kill -KILL $(pgrep -P "$(pgrep -P "$(pgrep -P $pid | head -1)" -x ds-agent | sed -n 2p)" -x ds-agent)
    wait $pid
    rc=$?
}
lose --max-restarts 1
is "a host that is lost: all start again on the others" "$rc $(sort out | tr '\n' ',')" "0 0/2 1 2,0/3 0 1,1/2 1 2,1/3 0 1,2/3 0 1,"
like "a host that is lost is named" "$(cat err)" "all ranks start again on the 2 hosts left (--nnodes 2:3)"
is "a host that is lost: one folder of output" "$(cd l6/* && ls | tr '\n' ' ')" "attempt_0 attempt_1 "
ok "a host that is lost: nothing is left" wait_for 5 nobody $mark
lose
is "a host that is lost without --max-restarts: the launch fails" "$rc $(grep -c /2 out)" "1 0"
ok "a host that is lost without --max-restarts: nothing is left" wait_for 5 nobody $mark

# ---- files of output ----
cat >talk.sh <<'X'
echo "out $RANK"; echo "err $RANK" >&2
X
run --hosts local:2x2 --log-dir new/logs --rdzv-id a/b --prefix none sh talk.sh >out 2>err; rc=$?
is "--log-dir: what was shown is shown still" "$rc $(sort out | tr '\n' ' ')" "0 out 0 out 1 out 2 out 3 "
is "--log-dir: a file for each stream of each rank" \
    "$(cd new/logs/a_b_*/attempt_0 && for f in */*; do echo "$f $(cat $f)"; done | sort | tr '\n' ',')" \
    "0/stderr.log err 0,0/stdout.log out 0,1/stderr.log err 1,1/stdout.log out 1,2/stderr.log err 2,2/stdout.log out 2,3/stderr.log err 3,3/stdout.log out 3,"
is "--log-dir: for the user's eyes only" "$(stat -c %a new/logs/a_b_*/attempt_0/0/stdout.log)" 600
run --hosts local:2x2 --log-dir l2 -r 0:1,1:3 -t 1:2 --prefix none sh talk.sh >out 2>err
is "-r and -t by local rank: stdout that is shown" "$(sort out | tr '\n' ' ')" ""
is "-r and -t by local rank: stderr that is shown" "$(grep -v ds-launch err | sort | tr '\n' ' ')" "err 0 err 1 err 2 err 3 "
is "-r and -t by local rank: the files" "$(cd l2/*/attempt_0 && ls */* | tr '\n' ' ')" \
    "0/stdout.log 1/stderr.log 1/stdout.log 2/stdout.log 3/stderr.log 3/stdout.log "
TMPDIR=$here run --hosts local:1 --redirects 3 sh -c 'echo hello; exit 3' >out 2>err
is "--redirects without --log-dir: nothing is shown" "$(cat out)" ""
like "--redirects without --log-dir: a line says where" "$(cat err)" "its output is in $here/ds-launch_"
is "--redirects without --log-dir: the file" "$(cat ds-launch_*/attempt_0/0/stdout.log)" hello
is "--local-ranks-filter" "$(run --hosts local:2x3 --local-ranks-filter 0,2 --prefix none sh talk.sh 2>/dev/null | sort | tr '\n' ' ')" "out 0 out 2 out 3 out 5 "
run --hosts local:1x2 --max-restarts 1 --log-dir l3 sh -c 'echo $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))' >out 2>err
is "a folder for each attempt" "$(cat l3/*/attempt_0/0/stdout.log l3/*/attempt_1/1/stdout.log | tr '\n' ' ')" "0 1 "
L=$here/l6/ run --hosts local:1x2 --max-restarts 2 --log-dir l6 --export L sh -c 'echo x; test $TORCHELASTIC_RESTART_COUNT -lt 2 ||
    ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c "$L.*/attempt_0/"; exit $((TORCHELASTIC_RESTART_COUNT < 2))' >out 2>err
is "the files of an attempt that is over are closed" "$(grep '[0-9]$' out | sort | tr '\n' ' ')" "[0] 0 [1] 0 "
run --hosts local:1x2 --redirects 1 --log-dir l4 --enable_each_rank_log l5 sh -c 'seq 1 300000; seq 1 300000 >&2' >out 2>err
is "many lines into files: none is lost, and credit comes back" \
    "$(wc -l <out | tr -d ' ') $(grep -vc ds-launch err) $(cat l4/*/*/*/stdout.log | wc -l | tr -d ' ') $(cat l5/* | wc -l | tr -d ' ')" "0 600000 600000 1200000"
out=$(run --hosts local:1 --log-dir talk.sh/x touch started 2>&1); rc=$?
is "--log-dir that can't be made: status, nothing is started" "$rc $(ls started 2>/dev/null)" "2 "

# ---- --save_pid ----
DS_TEST_MARK=$mark "$launch" --hosts local:1 --save_pid sh -c 'sleep 0.3' </dev/null &
pid=$!
wait_for 10 test -s /tmp/$pid.deepspeed
is "--save_pid: the file holds ds-launch's number" "$(cat /tmp/$pid.deepspeed)" $pid
wait $pid
ok "--save_pid: the file is gone afterwards" test ! -e /tmp/$pid.deepspeed
finish
