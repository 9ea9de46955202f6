#!/bin/bash
# What users of deepspeed and torchrun rely on, over a real sshd and with uneven slots: the variables that a rendezvous
# needs, restarts of the whole group, the script that makes the environment, limits and umask of the shell.
. "${top_srcdir:-.}/tests/box/lib.sh"
up 2
hosts 'n1 slots=1' 'n2 slots=3'
shared=$BOX/shared

# As init_method="env://" does it: rank 0 listens at MASTER_ADDR:MASTER_PORT, the others come and say who they are.
cat >"$shared/meet.py" <<'E2'
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
me = " ".join(os.environ[k] for k in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"))
if rank:
    for _ in range(200):
        try:
            s = socket.create_connection(place, 5)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    s.sendall(me.encode())
    s.close()
else:
    time.sleep(0.5)  # as long as an import may take: the port stays ours
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(place)
    s.listen()
    said = [me]
    for _ in range(world - 1):
        c, _ = s.accept()
        said.append(c.makefile().read())
    print("met:", ", ".join(sorted(said)))
E2
for user in root hpc; do
    launch $user -H "$shared/hosts" --nnodes 2 "$shared/meet.py"
    like "$user: all ranks meet, each in its place" "met: 0 0 1 0 2, 1 0 3 1 2, 2 1 3 1 2, 3 2 3 1 2$"
done

# A rank that is killed: everything starts again, in a new epoch, and nothing of the old one is left.
cat >"$shared/again.sh" <<'E2'
echo "up $RANK $TORCHELASTIC_RESTART_COUNT $MASTER_PORT"
setsid sh -c 'sleep 7777 & wait' &
exec sleep 7777
E2
sleeps() { box ps "$1" | grep -c '[s]leep 7777$'; }
came() { # came ATTEMPT: all four ranks of it are up
    for n in $(seq 200); do [ "$(grep -c "up [0-3] $1 " "$out")" = 4 ] && return; sleep 0.1; done
    said
}
for user in root hpc; do
    background $user -H "$shared/hosts" --max-restarts 2 sh "$shared/again.sh"
    came 0
    box on 2 kill -KILL "$(pid_of 2 '^ *[0-9]+ .*[s]leep 7777$')"
    came 1
    for n in $(seq 100); do [ "$(sleeps 1) $(sleeps 2)" = "2 6" ] && break; sleep 0.1; done
    is "$user: a killed rank: all start again, once" "$(sleeps 1) $(sleeps 2)" "2 6"
    like "$user: what was killed is said" "rank [123] on n2 .* was killed by signal 9 .*all ranks start again \(1 of 2\)"
    is "$user: each start has its MASTER_PORT" "$(sed -n 's/.*up [0-3] \([01] [0-9]*\)$/\1/p' "$out" | sort -u | wc -l)" 2
    box on 0 kill -KILL "$(pid_of 0 'bin/ds-launch -H')"
    finish 2>/dev/null
    gone "$user: kill -9 of ds-launch after a restart: nothing is left" 1 2
done

# A host that is lost is no matter of a restart.
background hpc -H "$shared/hosts" --max-restarts 2 --ping-limit 2s sh "$shared/again.sh"
came 0
box cut 2
finish
like "a lost host is named, and nothing starts again" "host n2 was lost"
is "a lost host: the status" "$rc $(grep -c 'start again' "$out")" "1 0"
box heal 2
gone "a lost host: nothing is left" 1 2

# Unless fewer hosts are allowed.
background hpc -H "$shared/hosts" --nnodes 1:2 --max-restarts 2 --ping-limit 2s sh "$shared/again.sh"
came 0
box cut 2
for n in $(seq 200); do grep -q 'up 0 1 ' "$out" && break; sleep 0.1; done
like "--nnodes 1:2: a host is lost, the ranks start again on the other" "n2 was lost: .* on the 1 host left" "up 0 1 "
for n in $(seq 100); do [ "$(sleeps 1)" = 2 ] && break; sleep 0.1; done
is "--nnodes 1:2: one rank runs" "$(sleeps 1) $(grep -c 'up [0-9]* 1 ' "$out")" "2 1"
kill -INT "$job"
finish
box heal 2
gone "--nnodes 1:2: nothing is left" 1 2

# --venv_script is read on the nodes, where the ranks are.
venv=/dev/shm/activate # a folder that each node has for itself
for i in 1 2; do box on $i sh -c "echo 'export WHERE=\"made on n$i\"' >$venv; chmod 644 $venv"; done
hosts n1 n2
launch hpc -H "$shared/hosts" --venv_script "$venv" sh -c 'echo "$RANK $WHERE"'
like "--venv_script: each node's own" "0 made on n1" "1 made on n2"
box on 2 rm $venv
launch hpc -H "$shared/hosts" --venv_script "$venv" sh -c 'echo started'
is "--venv_script that one node lacks: nothing starts" "$rc $(grep -c started "$out")" "2 0"
like "--venv_script that one node lacks: which" "n2: --venv_script .* can't be read"

# Limits, umask and folder are the shell's, not the login's.
mkdir "$shared/in here"
timeout 60 "$here/box" as hpc 0 bash -c "cd '$shared/in here' && ulimit -S -c 0 && umask 027 && exec '$shared/bin/ds-launch' -H '$shared/hosts' \
    sh -c 'echo \$RANK \$(ulimit -S -c) \$(umask) \$PWD; test \$(ulimit -S -n) = \$(ulimit -H -n) && echo files \$RANK'" >"$out" 2>&1 </dev/null
like "core limit, umask, folder" "0 0 0027 .*/in here" "1 0 0027 .*/in here"
like "open files" "files 0" "files 1"
finished
