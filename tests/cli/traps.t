#!/bin/bash
# Traps that other launchers fell into, on this machine: each case names whose trap it was.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
for f in "$top_builddir"/{ds-agent,libexec/ds-launch/ds-agent}; do [ -x "$f" ] && agent=$f; done

# pdsh: with a multiplexing ssh it waits for ever, because the master keeps the pipes open.
timeout 60 $launch --hosts a,b --launcher exec --launcher-args "sh -c '(setsid sleep 7771 & echo \$! >>held); exec $agent'" echo hi >out 2>&1
is "a process that keeps the channel's pipes open does not hold the job" "$? $(grep -c hi out)" "0 2"
kill $(cat held) 2>/dev/null # beside the agent, so not the job's

# libssh, OpenSSH: a background child that holds stdout keeps the channel open after the exit status.
DS_TEST_MARK=$$traps timeout 60 $launch --hosts local:2 sh -c 'sleep 7772 & echo from $RANK; exit 3' >out 2>&1
is "a background child that holds a rank's stdout does not hold the job" "$? $(grep -c '^.[01]. from [01]' out)" "3 2"
ok "it is ended with the job" wait_for 10 nobody $$traps

# Flux: the last words of the task that fails are lost when its failure ends the job.
timeout 60 $launch --hosts local:2 --prefix none sh -c '
    if [ $RANK = 0 ]; then exec sleep 7773; fi
    i=0; while [ $i -lt 3000 ]; do echo "line $i of what went wrong" >&2; i=$((i + 1)); done; kill -9 $$' >out 2>err
rc=$?
is "every line of a rank that dies arrives" "$rc $(grep -c '^line [0-9]* of what went wrong$' err)" "137 3000"

# PRRTE, horovod: environment and arguments on a command line meet its limit, and every user of the node reads them.
big=$(head -c 90000 /dev/urandom | od -An -tx1 | tr -d ' \n' | head -c 120000)
BIG=$big timeout 60 $launch --hosts local:1 --export BIG sh -c 'printf "%s%s" "$BIG" "$1" | cksum' sh "$big" >out 2>&1
is "120,000 bytes in a variable and in an argument" "$(cat out)" "$(printf '%s%s' "$big" "$big" | cksum)"

# Shells start background jobs with SIGINT ignored; ranks that inherit it cannot be interrupted.
(trap '' INT HUP; timeout 60 $launch --hosts local:1 sh -c 'kill -INT $$; echo survived' >out 2>&1)
is "a rank has default signals, whatever the shell ignored" "$? $(grep -c survived out)" "130 0"

# pdsh: a bracket of more than 16,384 hosts is refused; ClusterShell: large lists cost the square.
is "20,000 hosts in one bracket" "$($launch hosts --hosts 'n[00001-20000]' | grep -c 'n[0-9]')" 20000
is "and back into one" "$($launch hosts --hosts 'n[00001-20000]' --list)" "n[00001-20000]"

# horovod: a blank line in the hostfile is an error. DeepSpeed: `slots = 4` and friends crash it.
printf '\n\n# a comment\n  w1 slots=2  # four\r\n\n[::1] slots=1\n' >hf
is "blank lines, comments, CR, IPv6" "$($launch hosts -H hf --json | python3 -c 'import json, sys
print([(h["name"], len(h["slots"])) for h in json.load(sys.stdin)["hosts"]])')" "[('w1', 2), ('::1', 1)]"

# DeepSpeed: LOCAL_RANK is RANK modulo the ranks of the node, so that with uneven slots it names the wrong device.
printf 'a slots=2\nb slots=4\n' >hf
is "LOCAL_RANK with uneven slots" "$(timeout 60 $launch -H hf --launcher exec --launcher-args "$agent" --prefix none \
    sh -c 'echo $RANK:$LOCAL_RANK/$LOCAL_WORLD_SIZE' | sort | tr '\n' ' ')" "0:0/2 1:1/2 2:0/4 3:1/4 4:2/4 5:3/4 "

# DeepSpeed: --num_gpus beyond what there is starts ranks that have no device; --num_nodes takes silently fewer.
out=$($launch -H hf --num_nodes 3 true 2>&1)
is "more nodes than there are" "$?" 2
# DeepSpeed: a hostfile that is not there is a run on this machine.
out=$($launch -H nothere sh -c 'touch started' 2>&1)
is "a hostfile that is not there" "$? $(test -e started; echo $?)" "2 1"
finish
