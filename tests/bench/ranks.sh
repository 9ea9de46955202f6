#!/bin/bash
# Two ranks of one thread against one rank of two threads, GPT-2 124M, the same global batch: median step time
# of each, taking turns.
#   tests/bench/ranks.sh BUILD-FOLDER [STEPS [STAGE]]      TYPES="fp32 bf16" LENGTHS="64 512"
set -u
build=$(realpath "${1:?usage: ranks.sh BUILD-FOLDER [STEPS [STAGE]]}") steps=${2:-8} stage=${3:-0}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
head -c 300000 /dev/urandom | base64 >"$tmp/text"

run() { # RANKS THREADS T DTYPE: step times in ms, the first two left out
    "$build/ds-launch" --hosts "local:$1" --run-dir "$tmp/run" --set run.threads="$2" \
        --set data.seq_len="$3" --set bf16.enabled="$4" "$tmp/job.ini" >"$tmp/out" 2>&1 ||
        { cat "$tmp/out" >&2; exit 1; }
    sed -n 's/.*"step":\([0-9]*\),.*"step_ms":\([0-9.]*\).*/\1 \2/p' "$tmp/run/metrics.jsonl" |
        awk '$1 > 2 { print $2 }'
    rm -rf "$tmp/run"
}
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

cat >"$tmp/job.ini" <<END
train_batch_size = 4
gradient_accumulation_steps = 1
[zero_optimization]
stage = $stage
[model]
vocab_size = 50257
n_positions = 1024
[data]
train = $tmp/text
valid_split = 0
[run]
steps = $steps
save_every = -1
END
printf 'ZeRO stage %s\n%-5s %-8s %18s %18s %8s\n' "$stage" type batch '1 rank x 2 [ms]' '2 ranks x 1 [ms]' ratio
for type in ${TYPES:-fp32 bf16}; do
    bf16=$([ "$type" = bf16 ] && echo true || echo false)
    for T in ${LENGTHS:-64 512}; do
        : >"$tmp/one"; : >"$tmp/two"
        for _ in 1 2; do
            run 1 2 "$T" "$bf16" >>"$tmp/one"
            run 2 1 "$T" "$bf16" >>"$tmp/two"
        done
        one=$(median <"$tmp/one") two=$(median <"$tmp/two")
        printf '%-5s 4 x %-4s %18.1f %18.1f %8.2f\n' "$type" "$T" \
            "$one" "$two" "$(awk -v a="$one" -v b="$two" 'BEGIN { print a / b }')"
    done
done
