#!/bin/sh
# What ds-launch says and prints without starting anything: help against the manual page, hosts, plan, errors.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
man=$top_srcdir/doc/ds-launch.1

$launch --help >help
missing=$(grep -o -- '--[a-z-]*' help | sort -u | while read -r f; do
    grep -q -- "$(printf '%s' "$f" | sed 's/-/\\\\-/g')" "$man" || echo "$f"
done)
is "every option of --help is in the manual page" "$missing" ""
unknown=$(sed -n '/^\.SH OPTIONS/,/^\.SS ds-launch data/p' "$man" | grep '^\.B' | grep -o '\\-\\-[a-z\\-]*' | sed 's/\\//g' | sort -u |
    while read -r f; do grep -q -- "$f" help || echo "$f"; done)
is "every option of the manual page is in --help" "$unknown" ""
takes() { $launch "$1" --help | sed -n 's/^  \(-., \)\{0,1\}\(--[a-z-]*\).*/\2/p' | tr '\n' ' '; }
is "kill --help" "$(takes kill)" "--log-level --quiet --signal --help "
is "ps --help" "$(takes ps)" "--log-level --quiet --json --help "
is "hosts --help" "$(takes hosts)" "--hostfile --hosts --include --exclude --num-nodes --num-gpus --num-accelerators \
--log-level --quiet --list --json --help --nnodes --nproc-per-node --standalone "
is "info --help" "$(takes info)" "--launcher --launcher-args --ssh-port --ssh-config --identity --connect-timeout \
--ping-limit --log-level --quiet --settings --help "
like "exec --help" "$(takes exec)" " --live "
unlike "exec --help has nothing that exec refuses" "$(takes exec)" "--run-dir"
like "plan --help" "$(takes plan)" " --topology "
unlike "plan --help has nothing that plan refuses" "$(takes plan)" "--live"
for word in hosts plan info exec ps kill; do
    like "$word --help: how it is typed" "$($launch $word --help | head -1)" "Usage: ds-launch $word "
done
is "--help is the only thing it does" "$($launch --help; echo $?)" "$(cat help; echo 0)"
like "--version" "$($launch --version)" "ds-launch "

printf 'w1 slots=2\nw2 slots=4 # big\n' >hf
is "hosts --list" "$($launch hosts -H hf --list)" "w[1-2]"
is "hosts with a filter in front" "$($launch -i w2:0-1 -H hf hosts --json)" \
    '{"hosts":[{"name":"w2","slots":[0,1],"devices":[0,1],"user":null,"port":null}]}'
like "hosts as a table" "$($launch hosts -H hf)" "w2"
out=$($launch -H nofile hosts 2>&1); rc=$?
is "a hostfile that is not there: status" $rc 2
like "a hostfile that is not there: its name" "$out" "nofile"
out=$($launch -H hf --num_nodes 3 hosts 2>&1); rc=$?
is "more nodes than there are" $rc 2
like "more nodes than there are: both numbers" "$out" "3"

is "few files: one sentence, nothing begins" "$( (ulimit -n 10; $launch --hosts local:1 true; echo $?) 2>&1)" \
    "ds-launch: no more than 10 files may be open here, and ds-launch needs 64 and more: raise the limit (ulimit -n)
2"
is "closed descriptors" "$( ($launch --hosts local:1x1 sh -c 'echo here >went' <&- >&- 2>&-); echo $? $(cat went))" "0 here"
rm -f went

out=$($launch -H hf plan prog -x y)
is "plan names every rank once" "$(printf '%s\n' "$out" | grep -c '^[0-5]  *w[12] ')" 6
like "plan prints the command" "$out" "prog -x y"
out=$($launch plan --hosts sim:3x2 --json prog | python3 -c 'import json,sys
d=json.load(sys.stdin); print(d["world"], [(r["node"],r["local_rank"]) for r in d["ranks"]])')
is "plan of invented hosts" "$out" "6 [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]"
like "plan runs a .py file under python3" "$($launch plan --hosts local:1 a.py)" "python3 -u a.py"
like "info lists the launchers" "$($launch info)" "ssh"

bad() {
    name=$1 want=$2
    shift 2
    out=$($launch "$@" 2>&1)
    rc=$?
    is "$name: status" $rc 2
    like "$name: says why" "$out" "$want"
    is "$name: one line" "$(printf '%s\n' "$out" | wc -l | tr -d ' ')" 1
}
bad "a word behind info" "'foo' is one word too many" info foo
bad "a word behind info --settings" "'foo' is one word too many" info --settings foo
bad "nothing to run" "nothing to run"
bad "an option in front of ds-rank's words" "put ckpt first" -q ckpt inspect run
bad "an unknown option" "did you mean --hostfile" --hostfil x y
bad "a job that is not there" "no.ini" --hosts local:1 no.ini
printf '[run]\nsteps = 3\nstepz = 4\n' >j.ini
bad "a job with an unknown key" "steps" --hosts local:1 j.ini
printf '[modle]\nform = gpt2\nlayers = 3\n[run]\nsteps = 3\n' >j.ini
bad "a section misspelt: told once" "j.ini:2: unknown section [modle]; did you mean [model]?" --hosts local:1 j.ini
bad "a file for --hosts" "a file of hosts is given by --hostfile" --hosts ./a.sh true
bad "a job that is not there: what to do" "give the path of a file" --hosts local:1 no.ini
printf '[run]\nsteps = 3\nstepz = 4\nstepy = 4\n' >j.ini
is "two wrong keys: each line begins alike" "$($launch --hosts local:1 j.ini 2>&1 | grep -c '^ds-launch: j.ini:[34]: ')" 2
printf '[run]\nsteps = 3\nstepz = 4\n' >j.ini
bad "words behind a job" "takes no arguments" --hosts local:1 j.ini more
printf '[run]\nsteps = 3\n' >j.ini
bad "a bad override" "run.steps" --hosts local:1 j.ini --set run.steps=many
bad "--max-restarts for a job" "--resume auto" --hosts local:1 --max-restarts 2 j.ini
bad "--set for a program" "belongs to a job file" --hosts local:1 --set run.steps=1 true
# every flag of deepspeed and torchrun is known: it is taken, or refused with the reason
unknown=
for f in H=hf hostfile=hf i=w1 include=w1 e=w1 exclude=w1 num_nodes=1 num_gpus=1 num_accelerators=1 min_elastic_nodes=1 \
    max_elastic_nodes=1 master_port=1 master_addr=h node_rank=0 launcher=pdsh launcher_args=x module no_python \
    no_local_rank no_ssh no_ssh_check force_multi save_pid enable_each_rank_log=d autotuning=run elastic_training \
    bind_cores_to_rank bind_core_list=0 ssh_port=1 venv_script=v log_level=critical q quiet \
    nnodes=1 nproc-per-node=1 rdzv-backend=c10d rdzv-endpoint=h rdzv-id=x rdzv-conf=join_timeout=1 standalone \
    max-restarts=1 monitor-interval=1 start-method=fork event-log-handler=x role=r m no-python run-path log-dir=d \
    redirects=1 tee=1 r=1 t=1 local-ranks-filter=0 node-rank=0 master-addr=h master-port=1 local-addr=1 logs-specs=x \
    numa-binding=node signals-to-handle=x virtual-local-rank use-env; do
    case $f in ?=*) set -- "-${f%%=*}" "${f#*=}" ;; *=*) set -- "--${f%%=*}" "${f#*=}" ;; ?) set -- "-$f" ;; *) set -- "--$f" ;; esac
    out=$($launch "$@" --version 2>&1) && continue
    case $out in *"unknown option"* | "") unknown="$unknown $*" ;; esac
done
is "every flag of deepspeed and torchrun is known" "$unknown" ""

printf 'oops\n' >.deepspeed_env
bad "a bad line in .deepspeed_env" ".deepspeed_env:1" --hosts local:1 true
is "nothing was left behind" "$(LC_ALL=C ls -A | tr "\n" " ")" ".deepspeed_env help hf j.ini "
finish
