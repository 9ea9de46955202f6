#!/bin/bash
# Activation checkpointing on one rank of this machine, GPT-2 124M: time of a step and memory of activations against
# keeping all. The ways take turns in every round; the median of all steps but each run's first is compared.
# usage: recompute.sh BUILD [ROUNDS [STEPS [MICRO-BATCHxTOKENS]]]
build=${1:?usage: recompute.sh BUILD [ROUNDS [STEPS [MICRO-BATCHxTOKENS]]]}
build=$(cd "$build" && pwd) || exit 1
rounds=${2:-3} steps=${3:-4} shape=${4:-4x512}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
seq 1 400000 >numbers.txt
ways=("interval = 0" "selective = true" "interval = 1" "interval = 4")

one() { # WAY: its steps' milliseconds
    cat >job.ini <<-EOJ
	train_micro_batch_size_per_gpu = ${shape%x*}
	[bf16]
	enabled = ${BF16:-true}
	[activation_checkpointing]
	${ways[$1]}
	[model]
	vocab_size = 50257
	n_positions = 1024
	[data]
	train = numbers.txt
	seq_len = ${shape#*x}
	valid_split = 0
	[run]
	steps = $steps
	save_every = -1
	EOJ
    rm -rf run
    "$build/ds-launch" --hosts local:1x1 --run-dir run job.ini >out 2>&1 || { cat out >&2; exit 1; }
    sed -n 's/.*"step":\([0-9]*\),.*"step_ms":\([0-9.]*\),.*/\1 \2/p' run/metrics.jsonl | awk '$1 > 1 { print $2 }' >>"way-$1"
    "$build/ds-rank" check job.ini | sed -n 's/.*activations \([^,]*\).*/\1/p' >"memory-$1"
}

for ((i = 0; i < rounds; i++)); do
    for w in "${!ways[@]}"; do one "$w"; done
done
for w in "${!ways[@]}"; do
    printf '%-16s %s: step %.0f ms, activations %s\n' "${ways[$w]}" "$shape" \
        "$(sort -n "way-$w" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }')" "$(cat "memory-$w")"
done
