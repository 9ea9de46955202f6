#!/bin/bash
# ZeRO stages on two ranks of this machine, GPT-2 124M: tokens a second of stages 1 to 3 as a share of stage 0's.
# The stages take turns in every round, so that the machine's moods meet all of them; the median of all steps but
# each run's first two is compared.
# usage: zero.sh BUILD [ROUNDS [STEPS [SHAPE...]]]     SHAPE: MICRO-BATCHxTOKENS
build=${1:?usage: zero.sh BUILD [ROUNDS [STEPS [SHAPE...]]]}
build=$(cd "$build" && pwd) || exit 1
rounds=${2:-3} steps=${3:-8}
shift $(($# < 3 ? $# : 3))
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
seq 1 400000 >numbers.txt

one() { # STAGE MICRO TOKENS: its steps' tokens a second
    cat >job.ini <<-EOF
	train_micro_batch_size_per_gpu = $2
	[bf16]
	enabled = ${BF16:-true}
	[zero_optimization]
	stage = $1
	[model]
	vocab_size = 50257
	n_positions = 1024
	[data]
	train = numbers.txt
	seq_len = $3
	valid_split = 0
	[run]
	steps = $steps
	save_every = -1
	EOF
    rm -rf run
    "$build/ds-launch" --hosts local:1x2 --run-dir run job.ini >out 2>&1 || { cat out >&2; exit 1; }
    sed -n 's/.*"step":\([0-9]*\),.*"tokens_per_s":\([0-9.]*\),.*/\1 \2/p' run/metrics.jsonl |
        awk '$1 > 2 { print $2 }' >>"stage-$1"
}

median() {
    sort -n "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

for shape in "${@:-4x512 4x64}"; do for s in $shape; do
    rm -f stage-*
    for ((i = 0; i < rounds; i++)); do
        for stage in 0 1 2 3; do one "$stage" "${s%x*}" "${s#*x}"; done
    done
    base=$(median stage-0)
    printf '%s: stage 0 %.0f tokens/s' "$s" "$base"
    for stage in 1 2 3; do
        printf ', stage %d %s' "$stage" "$(awk -v a="$(median stage-$stage)" -v b="$base" 'BEGIN { printf "%.3f", a / b }')"
    done
    echo
done; done
