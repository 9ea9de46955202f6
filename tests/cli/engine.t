#!/bin/bash
# The words that run ds-rank: lr, check, sample, ckpt, data; a tiny model trained on two pretended nodes.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99

for _ in $(seq 600); do printf 'the king said unto the people of the land, '; done >text
cat >job.ini <<'END'
train_micro_batch_size_per_gpu = 2
[optimizer.params]
lr = 2
[scheduler]
type = WarmupDecayLR
[scheduler.params]
warmup_type = linear
warmup_num_steps = 2
[model]
form = llama
n_layer = 1
n_head = 2
n_embd = 16
[data]
train = text
seq_len = 16
[run]
steps = 6
END

sed 's/^n_layer/n_layers/' job.ini >wrong.ini

# min + (max - min) i/N, then (T - i)/(T - N): worked by hand for T = 6, N = 2, lr 2
is "lr prints the schedule" "$("$launch" lr job.ini | tr '\t\n' '  ')" \
    "1 0 2 1 3 2 4 1.5 5 1 6 0.5 "
is "-n gives the number of steps" "$("$launch" lr job.ini -n 2 | wc -l)" 2
for word in lr sample ckpt "ckpt inspect" data; do
    is "$word --help is its usage, on stdout" "$("$launch" $word --help 2>&1 >out; echo "$?$(grep -ci usage out)")" 01
done
is "lr prints the momentum that cycles" "$(sed 's/^type = Warm.*/type = OneCycle/; s/^warmup_type.*/cycle_max_lr = 4/
    s/^warmup_num.*/cycle_first_step_size = 2/' job.ini >cycle.ini; "$launch" lr cycle.ini | tr '\t\n' '  ')" \
    "1 2 0.85 2 4 0.8 3 2 0.85 4 0 0.9 5 0 0.9 6 0 0.9 "
is "check prints the start table" "$("$launch" --dry-run --hosts local:2x1 job.ini >out 2>&1; echo $?)" 0

echo '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1}' >ds.json
like "a DeepSpeed file counts over the job file" \
    "$("$launch" --hosts local:2x1 --run-dir ds --set run.steps=1 --deepspeed-config ds.json job.ini 2>&1)" "micro-batch 1 x accumulation 4 x 2"
bad_start() { # NAME WANT ARGS...: refused with WANT before anything starts
    local name=$1 want=$2
    shift 2
    like "$name" "$("$launch" --hosts local:2x1 --run-dir never "$@" 2>&1; echo "rc $?")" "$want"
    ok "$name: nothing was made" test ! -e never
}
bad_start "a DeepSpeed file beside a program" "--deepspeed-config is for a job file" --deepspeed-config ds.json true
bad_start "two beginnings" "a run begins at one of them" --set run.resume=a --set run.init_from=b job.ini
bad_start "a checkpoint that is not there" "No such file or directory; give a run folder" --resume nowhere job.ini

sed -i 's/^lr = 2/lr = 0.01/' job.ini
ok "a tiny model trains" "$launch" --hosts local:2x1 --run-dir run job.ini
ok "its checkpoint is whole" "$launch" ckpt verify run
a=$("$launch" sample run --prompt "the king" --tokens 40 --seed 7)
b=$("$launch" sample run --prompt "the king" --tokens 40 --seed 7)
c=$("$launch" sample run --prompt "the king" --tokens 40 --seed 8)
is "a sample is a function of the seed" "$a" "$b"
is "another seed writes something else" "$([ "$a" != "$c" ] && echo other)" other
like "the sample begins with the prompt" "$a" "the king"
g=$("$launch" sample run --prompt "the king" --tokens 60 --temperature 0 | tail -c 20)
k=$("$launch" sample run --prompt "the king" --tokens 60 --top-k 1 --seed 5 | tail -c 20)
is "top-k 1 is temperature 0" "$g" "$k"
# 15 of seq_len 16 bytes: the first is still before the model when it chooses; a low temperature shows little things
differs=0
for seed in 1 2 3 4 5 6 7 8; do
    x=$("$launch" sample run --prompt "xhe king said o" --tokens 2 --temperature 0.1 --seed $seed | tail -c +2)
    y=$("$launch" sample run --prompt "the king said o" --tokens 2 --temperature 0.1 --seed $seed | tail -c +2)
    [ "$x" = "$y" ] || differs=$((differs + 1))
done
is "a prompt that fits is read from its first byte" "$((differs > 0))" 1

cp -r run broken
rm broken/ckpt/step-6/rank-1.safetensors
mkdir -p broken/ckpt/step-3 && cp run/ckpt/step-6/* broken/ckpt/step-3
like "sample of it says so" "$("$launch" sample broken --tokens 1 2>&1 >/dev/null)" "the text is of broken/ckpt/step-3"
out=$("$launch" ckpt verify broken 2>&1)
is "verify of a run whose newest checkpoint is broken: status" $? 2
like "verify of a run whose newest checkpoint is broken: says which" "$out" "step-6/rank-1.safetensors"
like "verify of a run whose newest checkpoint is broken: and what would be taken" "$out" "would begin at broken/ckpt/step-3"

for word in "sample run --tokens x" "sample run --tokens 0"; do
    is "$word: the range" "$("$launch" $word 2>&1)" "ds-launch: --tokens ${word##* }: give a whole number from 1 to 1073741824"
done
is "sample run --temperature -1: the range" "$("$launch" sample run --temperature -1 2>&1)" \
    "ds-launch: --temperature -1: give a number from 0"
is "lr -n 0: the range" "$("$launch" lr job.ini -n 0 2>&1)" "ds-launch: -n 0: give a whole number from 1"
like "lr of no file" "$("$launch" lr nofile 2>&1)" "ds-launch: nofile: cannot be opened: No such file or directory; give the path"
# every option that a word has is in the manual page
for word in sample ckpt lr data; do
    is "$word --help and the manual page agree" "$("$launch" $word --help | grep -o '^  -[-a-z]*' | grep -v help | while read -r f; do
        sed -n "/^.SS ds-launch $word/,/^.S[SH]/p" "$top_srcdir/doc/ds-launch.1" | sed 's/\\-/-/g' | grep -qe "$f" || echo "$f"; done)" ""
done
like "sample --help" "$("$launch" sample --help)" "--temperature"
like "ckpt --help" "$("$launch" ckpt --help)" "inspect|verify"
"$launch" ckpt inspect run >inspected
like "ckpt inspect lists tensors" "$(cat inspected)" "block.attn.qkv.q"
is "ckpt inspect: a tensor has one row, of its weights and moments" \
    "$(awk '$2 ~ "^[wmv/]+$" { n[$1]++; rows++; if (n[$1] > 1 || $2 != "w/m/v") print } END { if (!rows) print "no row" }' inspected)" ""
# 3 x 4 bytes for each of 12.3 k parameters, on two ranks, and headers
like "ckpt inspect: sizes for people" "$(grep '^file' inspected)" " kB, "
like "a finished run says so" "$("$launch" --hosts local:2x1 --run-dir run --resume auto job.ini 2>&1)" "already at step 6 of 6"
like "a run of numbers that are none counts its steps" \
    "$("$launch" --hosts local:1 --run-dir nan --set optimizer.params.lr=1e30 --set scheduler.type=none --set run.on_nan=skip job.ini 2>&1)" \
    "5 steps skipped (not finite)"

refused() { # NAME PATTERN COMMAND...
    local name=$1 pattern=$2 said
    shift 2
    if said=$("$@" 2>&1); then fail "$name" "it returned 0: $said"; else like "$name" "$said" "$pattern"; fi
}
refused "sample of a checkpoint that is not there" "nowhere" "$launch" sample nowhere
refused "an empty prompt" "--prompt" "$launch" sample run --prompt ""
refused "a prompt without its value" "--prompt" "$launch" sample run --prompt
for _ in $(seq 60); do printf '0123456789'; done >digits
ok "a token file without letters" "$launch" data digits.bin digits
cat digits digits digits >long # 1,800 tokens: a file of 1,000 and one of 800, 2 bytes a token behind a header of 1,024
is "--shard-tokens takes a suffix" "$("$launch" data --shard-tokens 1k long.bin long >/dev/null; wc -c <long_000001.bin)" 2624
ok "a model of digits trains" "$launch" --hosts local:1 --run-dir digits.run --set data.train=digits.bin \
    --set data.valid_split=0.1 job.ini
is "--resume auto without a run folder" \
    "$("$launch" --hosts local:1 --resume auto job.ini 2>&1; echo $?; ls -d ds-runs 2>&1)" \
    "ds-launch: run.resume = auto goes on in a run folder, and none is named: name it with --run-dir DIR or run.dir, or the \
checkpoint with --resume DIR
2
ls: cannot access 'ds-runs': No such file or directory"
# other settings: found before anything is started, said once, every setting named
for place in "--run-dir other --resume run" "--run-dir run --resume auto"; do
    out=$("$launch" --hosts local:2x1 $place --set run.steps=9 --set model.n_layer=2 --set model.n_embd=32 --set optimizer.params.lr=7 job.ini 2>&1)
    is "$place with other settings: one line" "$(printf '%s\n' "$out" | wc -l)" 1
    for want in "optimizer.params.lr (0.01 there, 7 here)" "model.n_layer (1 there, 2 here)" "model.n_embd (16 there, 32 here)"; do
        like "$place with other settings: $want" "$out" "$want"
    done
done
ok "and no run folder is left" test ! -e other
out=$("$launch" --hosts local:2x1 --run-dir more --resume run --set run.steps=8 --set run.eval_every=7 job.ini 2>&1)
is "a validation loss stands with the step that it is of" "$(printf '%s\n' "$out" | grep '^step.*valid' |
    sed 's/  valid [0-9.]*$//' | tr '\n' ' ')" "step 7/8 step 8/8 "
cp -r run longer
out=$("$launch" --hosts local:2x1 --run-dir longer --resume auto --set run.steps=8 job.ini 2>&1)
like "a resumed run: what is left" "$out" "8 steps, 6 of them done: 2 = 128 tokens, "
like "and in its history where it went on" "$(cat longer/events.jsonl)" '"ev":"restore","step":6,"from":"disk"'
like "a resumed run: what was done" "$out" "8 steps, 2 in this run, loss "
refused "a prompt of bytes the model has not" "vocabulary ends at 57" "$launch" sample digits.run --prompt "1z"
printf 'X' | dd of=run/ckpt/step-6/rank-0.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
refused "a changed byte is found" "rank-0.safetensors" "$launch" ckpt verify run
truncate -s 100 run/ckpt/step-6/rank-1.safetensors
refused "a file cut short is found" "rank-1.safetensors" "$launch" sample run
: >empty
refused "an empty text" "empty" "$launch" --hosts local:1 --run-dir r2 --set data.train=empty job.ini
refused "a text that is not there" "nowhere.txt" "$launch" --hosts local:1 --run-dir r2 --set data.train=nowhere.txt job.ini
refused "a text shorter than a sample" "seq_len" "$launch" --hosts local:1 --run-dir r2 --set data.seq_len=30000 job.ini
refused "heads that do not divide" "n_head" "$launch" --hosts local:1 --run-dir r2 --set model.n_head=3 job.ini
refused "a batch that does not hold" "train_batch_size" "$launch" --hosts local:2x1 --run-dir r2 --set train_batch_size=7 job.ini
refused "a micro-batch beyond all counting" "lower the one and raise gradient_accumulation_steps" \
    "$launch" --hosts local:1 --run-dir r2 --set train_micro_batch_size_per_gpu=1000000000 job.ini
refused "a step beyond all counting" "train_batch_size 100000000000000000 x data.seq_len 16" "$launch" --hosts local:1 \
    --run-dir r2 --set train_micro_batch_size_per_gpu=100000000 --set gradient_accumulation_steps=1000000000 job.ini
refused "activations that no machine holds" "GB of memory" "$launch" --hosts local:1 --run-dir r2 \
    --set train_micro_batch_size_per_gpu=100000000 --set model.n_embd=4096 job.ini
refused "a model that no machine holds" "GB of memory" "$launch" --hosts local:1 --run-dir r2 \
    --set model.n_embd=1048576 --set model.n_layer=1000 job.ini
refused "near ranks that do not divide" "= 3 does not divide the 4 data ranks; 2 and 4 do" "$launch" --hosts local:1x4 \
    --run-dir r2 --set zero_optimization.stage=3 --set zero_optimization.zero_hpz_partition_size=3 job.ini
refused "a run without an end" "run.steps" "$launch" --hosts local:1 --run-dir r2 --set run.steps=0 job.ini
refused "a wrong [model] key has the job file's own line" "wrong.ini:11: unknown setting model.n_layers" \
    "$launch" --hosts local:2x1 --run-dir r2 wrong.ini
refused "a data folder that is not there" "no file matches nofolder/*.txt" "$launch" --hosts local:1 --run-dir r2 --set 'data.train=nofolder/*.txt' job.ini
{ cat job.ini; printf '[launch]\ninclude = elsewhere\n'; } >filter.ini
refused "a filter of the job file has its line" "filter.ini:20: launch.include" "$launch" --hosts local:1 --run-dir r2 filter.ini
said=$("$launch" --hosts local:2x1 --run-dir r2 --resume nowhere job.ini 2>&1)
is "a checkpoint to resume that is not there is told once" "$(printf '%s\n' "$said" | grep -c nowhere)" 1
is "none of them left a run folder" "$([ -e r2 ] && echo there)" ""
finish
