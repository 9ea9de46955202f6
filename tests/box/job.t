#!/bin/bash
# A job file over SSH: the same training as on this machine, resumed; and what a node may lack or lose.
. "$(dirname "$0")/lib.sh"
up 2
cp "$build/ds-rank" "$BOX/shared/bin/"
hosts n1 n2
run=$BOX/shared/r
data=$BOX/shared/t.txt
for i in $(seq 400); do printf 'the quick brown fox jumps over the lazy dog. '; done >"$data"
job() { # job RANK-PROGRAM: the job file
    cat >"$BOX/shared/a.ini" <<X
train_batch_size = 4
[model]
form = gpt2
n_layer = 1
n_head = 1
n_embd = 16
[data]
train = $data
seq_len = 16
[run]
${1:+program = $1}
steps = 5
X
}
train() { launch "$1" "${@:2}" "$BOX/shared/a.ini" --ping-limit 3s; }
losses() { sed -n 's/.*"loss":\([-+.0-9e]*\).*/\1/p' "$1/metrics.jsonl"; }
same() { # same NAME FOLDER FOLDER: as many losses, each within 1e-5
    paste <(losses "$2") <(losses "$3") |
        awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-10 {bad = 1} END {exit bad || !NR}'
    result $? "$1"
}
job ''

for user in root hpc; do
    train $user -H "$BOX/shared/hosts" --run-dir "$run.$user"
    is "$user: a job on two nodes ends well" $rc 0
    [ $rc = 0 ] || said
    train $user --hosts local:2x1 --run-dir "$run.$user.local"
    same "$user: its losses are those of the same job on one machine" "$run.$user" "$run.$user.local"
done
train hpc -H "$BOX/shared/hosts" --run-dir "$run.hpc" --resume auto --set run.steps=8
is "--resume auto ends well" $rc 0
train hpc --hosts local:2x1 --run-dir "$run.whole" --set run.steps=8
same "and its losses are those of a run without a break" "$run.hpc" "$run.whole"

launch root plan -H "$BOX/shared/hosts" "$BOX/shared/a.ini"
like "plan names both nodes" n1 n2
launch root hosts -H "$BOX/shared/hosts" --list
like "hosts --list" '^n\[1-2\]'
gone "plan and hosts start nothing" 1 2

# what a node lacks
libexec=$(grep -aoE "/[^[:cntrl:]; ]*/libexec/ds-launch" "$build/ds-agent" | head -1)
if [ ! -e "$libexec/ds-rank" ]; then
    mv "$BOX/shared/bin/ds-rank" "$BOX/shared/moved"
    train root -H "$BOX/shared/hosts" --run-dir "$run.bare"
    is "no ds-rank is installed on the nodes: the job fails" "$((rc != 0))" 1
    like "no ds-rank is installed: the nodes, the folders and the remedy are named" \
        "n\\[?1.*ds-rank.*libexec.*DS_RANK=.*run.program="
    DS_RANK=$BOX/shared/moved train root -H "$BOX/shared/hosts" --run-dir "$run.elsewhere"
    is "DS_RANK names it: the job ends well" $rc 0
    DS_RANK=$BOX/shared/nowhere train root -H "$BOX/shared/hosts" --run-dir "$run.nowhere"
    like "DS_RANK names what is not there: hosts and path are named" "n\\[?1.*$BOX/shared/nowhere is not there"
    mv "$BOX/shared/moved" "$BOX/shared/bin/ds-rank"
fi
job "$BOX/shared/bin/ds-rank"
box on 2 mount -t tmpfs tmpfs "$BOX/shared/bin"
train root -H "$BOX/shared/hosts" --run-dir "$run.norank"
is "the rank's program is missing on a node: the job fails" "$((rc != 0))" 1
like "the rank's program is missing: host and file are named" "n2.*ds-rank"
box on 2 umount "$BOX/shared/bin"
[ ! -e "$run.norank" ]; result $? "and nothing was started: there is no run folder"
mkdir "$BOX/shared/data" && mv "$data" "$BOX/shared/data/" && data=$BOX/shared/data/t.txt && job "$BOX/shared/bin/ds-rank"
box on 2 mount -t tmpfs tmpfs "$BOX/shared/data"
train root -H "$BOX/shared/hosts" --run-dir "$run.nodata"
is "the text is missing on a node: the job fails" "$((rc != 0))" 1
like "the text is missing: host and file are named" "n2.*t\.txt"
box on 2 umount "$BOX/shared/data"
[ ! -e "$run.nodata" ]; result $? "and nothing was started: there is no run folder"

# what a node loses while it trains
endless() { background "$1" -H "$BOX/shared/hosts" --ping-limit 3s --run-dir "$run.$2" --set run.steps=100000000 \
    --set run.save_every=100000000 "$BOX/shared/a.ini"
    for n in $(seq 200); do grep -qs '"loss"' "$run.$2/metrics.jsonl" && return; sleep 0.1; done
    result 1 "$2: the job trains"; said; }
endless root killed
box on 2 kill -9 "$(pid_of 2 '[d]s-rank')"
finish
is "a rank killed: exit status" $rc 137
like "a rank killed: rank, host, signal" "rank 1.*n2.*(SIGKILL|signal 9|Killed)"
gone "a rank killed: nothing is left" 1 2
endless hpc front
box on 0 kill -9 $(box ps 0 | awk '/[d]s-launch/ {print $1}')
finish
gone "ds-launch killed: nothing is left" 0 1 2
endless hpc told
box as hpc 1 "$BOX/shared/bin/ds-launch" kill "$run.told" >"$work/kill" 2>&1 </dev/null
is "ds-launch kill RUN-FOLDER on another node" $? 0
finish
is "ends the job, which saves and says how to go on" "$rc:$(grep -c -- '--resume auto' "$out")" 143:1
gone "ds-launch kill from another node: nothing is left" 0 1 2
endless root cut
box cut 2
finish
is "link cut: the job fails" "$((rc != 0))" 1
like "link cut: its host is named" n2
gone "link cut: nothing is left" 1 2
box heal 2
endless hpc off
box kill 1
finish
is "power failure: the job fails" "$((rc != 0))" 1
like "power failure: its host is named" n1
gone "power failure: nothing is left on the other node" 2
finished
