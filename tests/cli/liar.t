#!/bin/sh
# Agents that lie: one costs its host, with a sentence that names it, and no more than bounded memory.
. "$top_srcdir/tests/cli/taplib.sh"
liar=$(realpath "$top_srcdir/tests/cli/liar.py")
agent=$top_builddir/ds-agent
cd "$here" || exit 99
run() { # WHAT PROGRAM...: two hosts, of which b lies
    what=$1
    shift
    timeout 60 "$launch" --hosts a,b --launcher exec \
        --launcher-args "if [ %h = b ]; then exec python3 $liar $what $agent; fi; exec $agent" "$@" </dev/null >"${to:-out}" 2>err
}
slow() { # a terminal that takes nothing until the launcher has said something
    rm -f err
    (n=0; until [ -s err ] || [ $((n += 1)) -gt 300 ]; do sleep 0.1; done; cat >/dev/null) <pipe &
}

mkfifo pipe
slow
to=pipe run credit sleep 30; is "more output than credit ends the job" $? 1
like "and says whose" "$(cat err)" "host b was lost: its agent sends more output than it was given credit for"
run epoch sleep 30; is "an epoch that there is not ends it" $? 1
like "and says which" "$(cat err)" "host b was lost: its agent speaks of epoch 8, and this is epoch 1"
run old true; is "a frame of an epoch that is over is dropped" $? 0
run fence sleep 30; is "fences without end end it" $? 1
like "and say what" "$(cat err)" "host b was lost: the ranks put more than 256 MiB into the key space"
run stdin sleep 30; is "more of stdin than a rank has room for ends it" $? 1
like "and says whose" "$(cat err)" "host b was lost: its agent asks for more of stdin than rank 1 has room for"
run metric true; is "a metric that is none is nothing" $? 0
slow
timeout 60 "$launch" exec --live --hosts a --launcher exec --launcher-args "python3 $liar credit $agent" sleep 30 \
    </dev/null >pipe 2>err
is "exec: more output than credit" $? 255
like "and says whose" "$(cat err)" "a: its agent sends more output than it was given credit for"
alone() { # WHAT: exec on one host that lies
    timeout 60 "$launch" exec --hosts a --launcher exec --launcher-args "python3 $liar $1 $agent" sleep 30 \
        </dev/null >out 2>err
    echo "$?: $(cat err)"
}
for what in short code long; do
    run $what sleep 30; is "an EXIT that is none ($what)" $? 1
    like "and whose" "$(cat err)" "host b was lost: its agent sends a malformed frame"
    is "exec: an EXIT that is none ($what)" "$(alone $what)" \
        "255: ds-launch: a: its agent sends a malformed frame: is its memory sound?"
done
is "exec: the EXIT of another's rank" "$(alone whose)" \
    "255: ds-launch: a: its agent speaks of rank 9, which is none of its own"
finish
