#!/bin/sh
# A run whose file system fills up: it trains on, the older checkpoints stay whole, and it says so; one that ends
# without its last checkpoint does not end well.
if [ -z "${DS_TEST_MOUNTS:-}" ]; then
    # a file system of our own, in a mount namespace of our own
    for how in "unshare -m" "unshare -rm"; do
        if $how true 2>/dev/null; then DS_TEST_MOUNTS=1 exec $how sh "$0"; fi
    done
    echo "1..0 # SKIP no mount namespace can be made here, not even an own one"
    exit 0
fi
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" && mkdir small && mount -t tmpfs -o size=700k none small || exit 99
awk 'BEGIN { for (i = 0; i < 400; i++) print i ". the quick brown fox jumps over the lazy dog" }' >t.txt
cat >a.ini <<'X2'
train_batch_size = 4
[model]
form = gpt2
n_layer = 1
n_head = 1
n_embd = 16
[data]
train = t.txt
seq_len = 16
[run]
save_every = 2
keep = 0
X2
run() { timeout 60 "$launch" --hosts local:2x1 --run-dir small/run "$@" a.ini >out 2>err </dev/null; }

# A checkpoint takes 115 kB: there is room for one and not for two.
dd if=/dev/zero of=small/fill bs=1k count=500 2>/dev/null
run --set run.steps=5
is "a run whose last checkpoint fails does not end well" $? 1
like "it goes to its end all the same" "$(cat small/run/metrics.jsonl)" '"step":5,'
like "the failed save is told, with the way out" "$(cat out)" "No space left on device; the older one of step 2 is whole; make room there"
like "and that the last one is missing" "$(cat err)" "without its last checkpoint"
"$launch" ckpt verify small/run >out 2>&1
like "the older checkpoint is whole" "$? $(cat out)" "0 small/run/ckpt/step-2: whole"
is "nothing half-written is left" "$(ls -A small/run/ckpt | tr '\n' ' ')" "latest step-2 "
rm small/fill
run --set run.steps=6 --resume auto
is "with room again it goes on from there and ends well" $? 0
like "from the older checkpoint" "$(cat out)" "at step 2"
is "up to the last" "$(cat small/run/ckpt/latest)" "step-6"

# Our own output goes to a file there: the job goes on without it, and its end says so.
dd if=/dev/zero of=small/fill bs=1k 2>/dev/null
rm -rf big
timeout 60 "$launch" --hosts local:2x1 --run-dir big --set run.steps=5 a.ini >small/out 2>err </dev/null
is "a full disk under our output: the status says so" $? 1
like "the training goes to its end" "$(cat big/metrics.jsonl)" '"step":5,'
is "it is said once" "$(grep -c "cannot write standard output: No space left on device" err)" 1
like "and at the end" "$(tail -n 1 err)" "ended well, but not all of its output could be written"
timeout 60 "$launch" exec --hosts local:2x1 "echo hi; touch $here/went.\$\$" >small/out 2>err </dev/null
is "exec: the status says so" "$?: $(ls went.* | wc -l)" "1: 2"
is "with a sentence" "$(cat err)" "ds-launch: not all of the output could be written: No space left on device"
umount small
finish
