#!/bin/sh
# Every job file of templates/ trains: its own settings, but for the size of the work, on a text of this test.
. "$top_srcdir/tests/cli/taplib.sh"
export DS_TEMPLATES=$top_srcdir/templates # wherever the build is
cd "$here" || exit 99
awk 'BEGIN { for (i = 0; i < 400; i++) print i ". the quick brown fox jumps over the lazy dog" }' >t.txt
steps() { sed -n 's/.*"step":\([0-9]*\),.*"loss":\([0-9.]*\),.*/\1 \2/p' run/metrics.jsonl; }

# train NAME HOSTS PATH=VALUE...: two steps
train() {
    name=$1 hosts=$2
    shift 2
    rm -rf run
    for set; do
        set -- "$@" --set "$set"
        shift
    done
    timeout 120 "$launch" --hosts "$hosts" --run-dir run "$@" --set data.train="$here/t.txt" --set run.steps=2 \
        --set run.save_every=-1 "$top_srcdir/templates/$name" >out 2>err </dev/null
    is "$name trains" "$? $(cat err)" "0 "
    is "$name: as many steps as it was given" "$(steps | awk '{ printf "%s ", $1 }')" "1 2 "
}
near() { # NAME LOSS OF STEP ONE MUST LIE BETWEEN $2 AND $3
    ok "$1" awk -v x="$(steps | awk 'NR == 1 { print $2 }')" -v a="$2" -v b="$3" 'BEGIN { exit !(x >= a && x <= b) }'
}

train quickstart.ini local:2x1
near "quickstart.ini: bytes to begin with, a wide start" 5.545 7
# An untrained model knows nothing: the loss of a guess over V tokens is ln V.
train llama-small.ini local:2x1 train_batch_size=4 train_micro_batch_size_per_gpu=2 data.seq_len=64
near "llama-small.ini: ln 256 to begin with" 5.3 5.8
train gpt2-124m.ini local train_batch_size=1 train_micro_batch_size_per_gpu=1 data.seq_len=32 \
    data.valid="$here/t.txt" run.eval_samples=1
near "gpt2-124m.ini: ln 50257 to begin with" 10.6 11.1
is "every job file of templates/ is in this test" "$(cd "$top_srcdir/templates" && echo *.ini)" \
    "gpt2-124m.ini llama-small.ini quickstart.ini"
"$launch" hosts -H "$top_srcdir/templates/hostfile.example" --list >out 2>&1
like "the example of a hostfile is read" "$(cat out)" "node[01-04],rack[1-2]n[01-02],[fd00::17]"

# README.md's own hostfile and job file, and the commands that it gives for them
awk '/^    # hostfile/ { on = 1; next } on && !/^    / { exit } on' "$top_srcdir/README.md" >both
cut -c5-38 both | sed 's/ *$//; /^$/d' >hostfile
cut -c39- both >job.ini
mkdir text && cp t.txt text/a.txt && echo 'print(1)' >train.py
is "README.md: the hostfile" "$("$launch" hosts -H hostfile --list)" "n[01-04],gpu7"
is "README.md: the job is right for it" "$("$launch" -H hostfile --launcher exec --launcher-args "exec $top_builddir/ds-agent" \
    --dry-run --network-interface 127.0.0.0/8 --set data.valid_split=0.05 job.ini >out 2>&1; echo $?; grep -v '^ ' out | grep -i 'error\|batch')" 0
like "README.md: the torchrun line" "$("$launch" plan --nnodes 2:4 --nproc-per-node 2 --max-restarts 3 -H hostfile train.py 2>&1)" \
    "8 ranks on 4 nodes"
like "README.md: a filter" "$("$launch" hosts -H hostfile -i 'n[01-02]')" "n02"
ok "README.md: data" "$launch" data tokens.bin text/*.txt
is "README.md: that torchrun line is the one tested here" "$(grep -c -- '--nnodes 2:4 --nproc-per-node 2 --max-restarts 3 -H hostfile train.py' "$top_srcdir/README.md")" 1
finish
