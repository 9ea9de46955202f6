#!/bin/sh
# What a job says of its time, bytes and memory: every step in metrics.jsonl, all ranks in a table at the end.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
run() { timeout 120 "$launch" --hosts local:1x2 "$@" </dev/null >out 2>err; }
python3 -c 'open("t.txt","w").write("the quick brown fox jumps over the lazy dog. "*400)'
cat >a.ini <<'X'
train_batch_size = 4
[zero_optimization]
stage = 1
[model]
form = gpt2
vocab_size = 256
n_layer = 1
n_head = 2
n_embd = 32
[data]
train = t.txt
seq_len = 16
valid_split = 0.1
[run]
steps = 6
eval_every = 4
save_every = 2
threads = 1
X
cat >check.py <<'X'
import json, re

def rows(path):
    return [json.loads(line) for line in open(path)]

# GPT-2's form by hand: flats of embedding, positions, block, norm, each in two slices of whole 16s
P = sum(-(-n // 32) * 32 for n in (256 * 32, 16 * 32, 12 * 32 * 32 + 13 * 32, 2 * 32))
want = {"reduce_scatter": 2 * P, "all_gather": 2 * P + 8 * (4 + 1), "all_reduce": 8 * 3 + 8 * 2}
m = rows("r/metrics.jsonl")
steps = [x for x in m if "loss" in x]
evals = [x for x in m if "valid_loss" in x]
last = m[-1]["breakdown"]
text = open("out").read()
table = {}
for line in text[text.index("breakdown of 6 steps on 2 ranks"):].splitlines()[1:]:
    if not line.startswith("  "):
        break
    words = re.split(r"  +", line.strip())
    table[words[0]] = words[1:]
state = ("param", "grad", "optim")

def close(a, b, part):
    return abs(a - b) <= part * abs(b)

def shown(text):
    number, unit = text.split()
    return float(number) * {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]

def check(name, good):
    print("%s: %s" % (name, "yes" if good else "no"))

check("6 steps", len(steps) == 6 and last["steps"] == 6 and last["ranks"] == 2)
check("phases add up", all(close(sum(x["phase_ms"].values()), x["step_ms"], 1e-4) for x in steps))
check("evaluations have a time", len(evals) == 2 and all(x["eval_ms"] > 0 for x in evals))
check("a save has a time, in the step after it", [i for i, x in enumerate(steps) if x["save_ms"] > 0] == [2, 4])
check("bytes of a step", all(x["step_bytes"] == {"data": {k: {"sent": v, "received": v} for k, v in want.items()}} for x in steps))
check("bytes since the beginning grow by the step",
      all(b["sent_bytes"]["grad"] - a["sent_bytes"]["grad"] == 2 * P == b["received_bytes"]["grad"] - a["received_bytes"]["grad"]
          for a, b in zip(steps, steps[1:])))
check("memory at peak", all(x["memory_peak_bytes"][c] >= x["memory_bytes"][c] for x in steps for c in x["memory_bytes"]))
check("the image of a checkpoint", steps[0]["memory_bytes"]["snapshot"] == 0 and steps[3]["memory_bytes"]["snapshot"] > 12 * P / 2)
check("communication buffers", 2 ** 21 < steps[0]["memory_bytes"]["comm"] < 2 ** 21 + 2 ** 16)
check("record: bytes", all(last["step_bytes"]["data"][k][way][f] == v for k, v in want.items() for way in ("sent", "received")
                           for f in ("min", "mean", "max")))
check("record: phases of rank 0 lie between", all(
    last["phase_ms"][k]["min"] - 1e-6 <= sum(x["phase_ms"][k] for x in steps) / 6 <= last["phase_ms"][k]["max"] + 1e-6
    for k in steps[0]["phase_ms"]))
check("record: fp32 states, stage 1", all(close(last["memory_bytes"][c]["max"], n * P, 0.1) for c, n in zip(state, (4, 4, 4))))
check("record: resident", last["resident_bytes"]["min"] > last["memory_bytes"]["param"]["min"])
check("table: shares", close(sum(float(v[-1][:-1]) for k, v in table.items() if v and v[-1].endswith("%")), 100, 0.01))
check("table: bytes", all(close(shown(w), v, 0.01) for k, v in want.items() for w in table["data " + k]))
check("table: memory", all(close(shown(table[c][0]), last["memory_bytes"][c]["max"], 0.01) for c in state))
X
run a.ini --run-dir r --set wall_clock_breakdown=true --set memory_breakdown=true
is "a run with both tables" $? 0
is "no complaint about the settings" "$(cat err)" ""
python3 check.py >got 2>why || cat why >>got
while IFS= read -r line; do is "${line%: *}" "${line##*: }" yes; done <got
is "all of it was looked at" "$(wc -l <got)" 16

loss() { python3 -c 'import json,sys
print([json.loads(l)["loss"] for l in open(sys.argv[1]) if "\"loss\"" in l])' "$1"; }
run a.ini --run-dir plain
unlike "not asked for: no table" "$(cat out)" "breakdown of"
unlike "and no record" "$(cat plain/metrics.jsonl)" '"breakdown"'
is "the losses are the same" "$(loss plain/metrics.jsonl)" "$(loss r/metrics.jsonl)"
run a.ini --run-dir half --set memory_breakdown=true
like "memory alone" "$(cat out)" "resident"
unlike "memory alone: no times" "$(cat out)" "time, ms a step"
finish
