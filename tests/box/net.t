#!/bin/bash
# The right network without a flag: nodes with two networks in common, one that each has alone, a docker0 with the same
# address everywhere and a hostname that maps to 127.0.1.1; sockets and secrets of a running job.
. "${top_srcdir:-.}/tests/box/lib.sh"
up 2
box wire 1 ib0 10.88.0    # a second network of all nodes
for i in 1 2; do
    box on $i ip link add docker0 type bridge
    box on $i ip addr add 172.17.0.1/16 dev docker0
    box on $i ip link set docker0 up
    box on $i ip link add aaa0 type veth peer name aab0 # alone with its network; first in the order of names
    box on $i ip link set aab0 up
    box on $i ip addr add 10.9$i.0.1/24 dev aaa0
    box on $i ip link set aaa0 up
    sed "s/^10.*n$i\$/127.0.1.1 n$i/" "$BOX/etc/hosts" >"$BOX/n$i/hosts"
    box on $i mount --bind "$BOX/n$i/hosts" /etc/hosts
done
hosts n1 n2
is "n1 takes itself for 127.0.1.1" "$(box on 1 getent hosts n1 | cut -d' ' -f1)" 127.0.1.1

# Meets as PyTorch's store does: rank 0 listens late at MASTER_PORT, the others connect to MASTER_ADDR.
cat >"$BOX/shared/meet.py" <<'E2'
import os, socket, time
e = os.environ; at = (e["MASTER_ADDR"], int(e["MASTER_PORT"]))
names = " ".join(e.get(n, "-") for n in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "UCX_NET_DEVICES"))
if e["RANK"] == "0":
    time.sleep(1)
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(at); s.listen(); s.settimeout(20)
    c, peer = s.accept(); print("met", peer[0], "at", at[0], names); c.close()
else:
    for i in range(200):
        try: socket.create_connection(at, 5).close(); break
        except OSError: time.sleep(0.1)
    print("rank 1", names)
E2
launch root -H "$BOX/shared/hosts" python3 "$BOX/shared/meet.py"
like "the network towards the front end, no flag" "met 10\.77\.0\.3 at 10\.77\.0\.2 eth0 eth0 =eth0 eth0" "rank 1 eth0"
launch hpc -H "$BOX/shared/hosts" --network_interface ib0 python3 "$BOX/shared/meet.py"
like "--network-interface NAME" "met 10\.88\.0\.3 at 10\.88\.0\.2 ib0 ib0 =ib0 ib0"
launch root -H "$BOX/shared/hosts" --network-interface 10.88.0.0/24 --export NCCL_SOCKET_IFNAME=mine --export UCX_NET_DEVICES=all \
    python3 "$BOX/shared/meet.py"
like "--network-interface CIDR; what the user sets stays" "met 10\.88\.0\.3 at 10\.88\.0\.2 ib0 ib0 mine all"
launch root -H "$BOX/shared/hosts" --network-interface docker0 python3 "$BOX/shared/meet.py"
like "an address that both have is refused" "172\.17\.0\.1 of host n1 is another host.s too"
is "before anything starts" "$rc" 2
launch root -H "$BOX/shared/hosts" --network-interface aaa0 --dry-run true
like "--dry-run prints what a name chooses" "MASTER_ADDR +10\.91\.0\.1" "n2 by aaa0"
launch root -H "$BOX/shared/hosts" --network-interface eth7 true
like "an interface that is not there" "n1.*eth7"
launch root -H "$BOX/shared/hosts" --dry-run true
like "--dry-run prints the choice" "MASTER_ADDR +10\.77\.0\.2" "network +n1 by eth0"
for i in 1 2; do box on $i ip addr del 10.77.0.$((i + 1))/24 dev eth0; box on $i ip addr add 10.77.0.$((i + 1))/32 dev eth0
    box on $i ip route add 10.77.0.0/24 dev eth0; box on $i ip link set ib0 down; done
launch root -H "$BOX/shared/hosts" python3 "$BOX/shared/meet.py"
like "addresses of /32, as some clouds give them" "met 10\.77\.0\.3 at 10\.77\.0\.2 eth0"

# Nothing listens but sshd, nothing secret is to be seen.
before=$(box on 1 ss -Hltn | wc -l)
echo TOKEN=s3cr3t >"$BOX/n0/home/hpc/.deepspeed_env"
background hpc -H "$BOX/shared/hosts" sh -c 'test -n "$TOKEN" && sleep 7777'
running 1 2
is "a running job: no socket that listens on a node" "$(box on 1 ss -Hltn | wc -l)" "$before"
is "nor on the head node" "$(box on 0 ss -Hltn | grep -vc ':22 ')" 0
is "nor UDP" "$(for i in 0 1 2; do box on $i ss -Hlun; done | wc -l)" 0
is "no secret on a command line" "$(for i in 0 1 2; do box on $i ps -e -o args; done | grep -v grep | grep -c s3cr3t)" 0
is "the agent's copy is the user's alone" "$(box on 1 find "$BOX/n1/home/hpc/.cache/ds-launch" -type f -perm /077 | wc -l)" 0
# (/tmp is the machine's, and other boxes may be there: what ds-launch makes in it has the user's number)
is "no file of the job that others can read" \
    "$(for i in 0 1 2; do box on $i find "$BOX/n$i/home/hpc" /dev/shm /tmp/ds-launch-2000 -user hpc -newer "$BOX/shared/meet.py" \
        -perm /044 -type f 2>/dev/null; done)" ""
kill -INT "$job"
finish
gone "all gone" 1 2
is "no socket is left" "$(for i in 1 2; do box on $i ss -Htn state established | grep -v ':22 '; done | wc -l)" 0
finished
