#!/bin/bash
# What others on the machine can see of a job: no file that they can read, no secret on a command line, no socket of the
# launcher that listens. umask 000, so that only what the programs ask for protects.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
umask 000
export HOME=$here/home TMPDIR=$here/tmp
mkdir home tmp
unset XDG_RUNTIME_DIR
readable() { find "$@" ! -type l -perm /077 ! -type s 2>/dev/null; } # files and folders that others reach
below() { # PID...: these and their descendants
    for p; do
        echo "$p"
        below $(pgrep -P "$p")
    done
}

# A program, with logs; its secret comes by the env file.
echo SECRET=hunter2 >home/.deepspeed_env
$launch --hosts local:2 --enable-each-rank-log logs sh -c 'test -n "$SECRET" && echo ready && while [ ! -e go ]; do sleep 0.1; done' >out 2>&1 &
job=$!
wait_for 20 sh -c '[ "$(grep -c ready out)" = 2 ]'
ok "a job runs" grep -q ready out
all=$(below $job)
args=$(for p in $all; do tr '\0' ' ' </proc/$p/cmdline; echo; done)
like "its processes are known" "$args" "ds-agent"
is "no secret on a command line" "$(grep -c hunter2 <<<"$args")" 0
is "no key on a command line" "$(grep -cE '[0-9a-f]{32}' <<<"$(sed 's#/[^ ]*##g' <<<"$args")")" 0
sockets=$(for p in $all; do readlink /proc/$p/fd/* 2>/dev/null; done | sed -n 's/^socket:.\(.*\)]$/\1/p' | sort -u)
ok "its sockets are known" test -n "$sockets"
is "nothing of it listens" "$(cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == "0A" {print $10}' | grep -cFx "$sockets")" 0
is "nor by UDP" "$(cat /proc/net/udp /proc/net/udp6 | awk '{print $10}' | grep -cFx "$sockets")" 0
is "others cannot read the environment" "$(for p in $all; do stat -c %a /proc/$p/environ; done | sort -u)" 400
is "log files and their folder are the user's alone" "$(readable logs)" ""
ok "and they are there" test -n "$(find logs -name '*rank*1.log' -size +0)"
is "nothing else is to be read" "$(readable tmp/* home/.[a-z]*/* | grep -v deepspeed_env)" ""
touch go
wait $job
is "it ends well" $? 0

# A job file: the run folder.
yes 'the quick brown fox jumps over the lazy dog' | head -3000 >text
cat >j.ini <<E2
[model]
form = gpt2
n_layer = 1
n_embd = 16
n_head = 1
vocab_size = 256
[data]
train = text
seq_len = 16
[run]
steps = 2
save_every = 1
[optimizer]
type = AdamW
E2
sed -i '/^steps/d' j.ini
$launch --hosts local:1 j.ini --set run.steps=2 --set train_micro_batch_size_per_gpu=1 --run-dir run >out 2>&1
is "a training job ends well" "$? $(grep -c error out)" "0 0"
is "the run folder is its user's alone" "$(stat -c %a run run/logs)" "700
700"
is "what ds-launch wrote there, too" "$(readable run/* | grep -v '^run/ckpt')" ""
ok "its checkpoints follow umask: chmod on the folder shares them" test -n "$(readable run/ckpt)"
is "nothing else was left to read" "$(readable tmp/* home/.[a-z]*/* | grep -v deepspeed_env)" ""
finish
