#!/bin/bash
# Jobs over a real sshd: who runs where with which environment, the agent's copy, ways to log in.
. "$(dirname "$0")/lib.sh"
up 3
show='echo rank=$RANK world=$WORLD_SIZE local=$LOCAL_RANK node=$NODE_RANK host=$(hostname) user=$(id -un)'
cache() { echo "$BOX/n$1/home/$2/.cache/ds-launch"; }

hosts "n1 slots=2" "n2 slots=1"
for user in root hpc; do
    launch $user -H "$BOX/shared/hosts" sh -c "$show"
    is "$user: exit status" $rc 0
    like "$user: each rank where it belongs" \
        "rank=0 world=3 local=0 node=0 host=n1 user=$user" "rank=1 world=3 local=1 node=0 host=n1 user=$user" \
        "rank=2 world=3 local=0 node=1 host=n2 user=$user"
    is "$user: one agent lies on the node" "$(ls "$(cache 1 $user)" | grep -c '^agent-[0-9a-f]*$')" 1
    is "$user: nobody else can write it" "$(stat -c %A "$(cache 1 $user)"/agent-* | cut -c6,9)" "--"
    before=$(stat -c '%i %Y %Z' "$(cache 1 $user)"/agent-*)
    launch $user -H "$BOX/shared/hosts" true
    is "$user: the agent is used again" "$(stat -c '%i %Y %Z' "$(cache 1 $user)"/agent-*)" "$before"
done
gone "nothing is left" 1 2

launch root -H "$BOX/shared/hosts" sh -c 'exit $((RANK == 2 ? 7 : 0))'
is "a rank's exit status is ours" $rc 7

hosts "hpc@n1"
launch root -H "$BOX/shared/hosts" sh -c "$show"
like "user@host" "host=n1 user=hpc"

# another port, from the hostfile and from the command line
sed 's/^Port.*//; $aPort 2222' "$BOX/etc/sshd_config" >"$BOX/etc/sshd2"
box on 1 /usr/sbin/sshd -f "$BOX/etc/sshd2" -E "$BOX/n1/sshd2.log"
known=$BOX/n0/home/root/.ssh/known_hosts
sed -n 's/^n1,[^ ]* /[n1]:2222 /p' "$BOX/keys/known_hosts" >>"$known"
hosts "n1 port=2222"
launch root -H "$BOX/shared/hosts" sh -c "$show"
like "port in the hostfile" "rank=0 .*host=n1"
grep -q "Accepted publickey for root" "$BOX/n1/sshd2.log"; result $? "it was that port's sshd"
hosts "n1"
launch root -H "$BOX/shared/hosts" --ssh-port 2222 true
is "--ssh-port" "$rc $(grep -c 'Accepted publickey' "$BOX/n1/sshd2.log")" "0 2"

# ~/.ssh/config: another name, a bastion, a chain of two; n3's sshd then takes nobody but n1
cat >"$BOX/n0/home/root/.ssh/config" <<C
Host far
    HostName n3
    User hpc
    ProxyJump n2,n1
Host near
    HostName n3
    ProxyJump hpc@n1
Host *
    IdentityFile %d/.ssh/id_ed25519
C
hosts far near
: >"$BOX/n3/sshd.log"
launch root -H "$BOX/shared/hosts" sh -c "$show"
is "ProxyJump: exit status" $rc 0
like "ProxyJump: ranks at the end of it" "rank=0 .*host=n3 user=hpc" "rank=1 .*host=n3 user=root"
is "ProxyJump: both came from n1" "$(grep 'Accepted' "$BOX/n3/sshd.log" | grep -c 'from 10\.77\.0\.2 ')" 2
rm "$BOX/n0/home/root/.ssh/config"

# a shell that talks, and shells that are not sh
hosts n1 n2
echo 'echo welcome to this node; echo and mind the gap >&2; seq 5000' >"$BOX/n1/home/root/.bashrc"
launch root -H "$BOX/shared/hosts" sh -c "$show"
like "chatty start-up file: the job runs" "rank=0 .*host=n1" "rank=1 .*host=n2"
! grep -q welcome "$out"; result $? "chatty start-up file: its noise is dropped"
rm "$BOX/n1/home/root/.bashrc"
for shell in /bin/tcsh /bin/csh /usr/bin/fish /bin/dash; do
    if [ ! -x $shell ]; then skip "login shell $shell" "not installed"; continue; fi
    sed -i "s#^\(root:.*:\)[^:]*\$#\1$shell#" "$BOX/n1/passwd"
    rm -rf "$(cache 1 root)"
    launch root -H "$BOX/shared/hosts" sh -c "$show"
    like "login shell $shell" "rank=0 .*host=n1"
done
sed -i "s#^\(root:.*:\)[^:]*\$#\1/bin/bash#" "$BOX/n1/passwd"

# several jobs at once on a node without the agent
rm -rf "$(cache 1 root)" "$(cache 2 root)"
pids=
for j in 1 2 3 4; do
    timeout 60 "$here/box" as root 0 "$BOX/shared/bin/ds-launch" -H "$BOX/shared/hosts" true \
        >"$work/job$j" 2>&1 </dev/null &
    pids="$pids $!"
done
bad=0
for p in $pids; do wait "$p" || bad=1; done
result $bad "four jobs at once on nodes without the agent"
is "they left one agent" "$(ls "$(cache 1 root)")" "$(basename "$(ls "$(cache 1 root)"/agent-*)")"
finished
