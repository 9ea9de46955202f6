#!/bin/bash
# Traps that other launchers fell into, over a real sshd: each case names the trap.
. "${top_srcdir:-.}/tests/box/lib.sh"
up 2
hosts n1:12 n2

# OpenSSH: the 11th channel of a connection is refused (MaxSessions 10), and some sites allow fewer.
on2() { box on "$1" /usr/sbin/sshd -f "$BOX/etc/sshd_config" -o MaxSessions=2 -o Port=2222 -E "$BOX/n$1/sshd2.log"; }
on2 1; on2 2
launch hpc -H "$BOX/shared/hosts" --ssh-port 2222 sh -c 'echo rank $RANK on $(hostname)'
is "MaxSessions 2, 12 ranks on a host, the agent not there yet" "$rc $(grep -c 'rank [0-9]* on n' "$out")" "0 13"

# OpenSSH: variables are dropped unless AcceptEnv allows them; a shell in between eats quotes. A non-interactive
# shell has no PATH and no LD_LIBRARY_PATH of the user's.
cat >"$BOX/shared/env.sh" <<'E2'
[ "$TRICKY" = "$(printf 'a "b" $c \\ d\n  e=`f`;')" ] && [ "$1" = "$(printf 'x "y"\n $z')" ] && echo "exact $RANK"
case $PATH in /opt/mine:*) echo "path $RANK";; esac
[ "$LD_LIBRARY_PATH" = /opt/lib ] && echo "lib $RANK"
E2
hosts n1 n2
timeout 60 "$here/box" as root 0 env PATH="/opt/mine:$PATH" LD_LIBRARY_PATH=/opt/lib TRICKY="$(printf 'a "b" $c \\ d\n  e=`f`;')" \
    "$BOX/shared/bin/ds-launch" -H "$BOX/shared/hosts" --export TRICKY sh "$BOX/shared/env.sh" "$(printf 'x "y"\n $z')" >"$out" 2>&1
like "variables and arguments, byte for byte" "exact 0" "exact 1"
like "PATH and LD_LIBRARY_PATH" "path 0" "path 1" "lib 0" "lib 1"

# OpenSSH 9.2 ignores a signal request for root logins: signals have to come another way.
for user in root hpc; do
    background $user -H "$BOX/shared/hosts" sh -c 'trap "echo got $RANK" USR1; echo up $RANK; sleep 7777 & wait; wait'
    running 1 2
    for i in $(seq 100); do [ "$(grep -c 'up [01]' "$out")" = 2 ] && break; sleep 0.1; done
    box on 0 kill -USR1 "$(pid_of 0 'bin/ds-launch -H')"
    for i in $(seq 100); do [ "$(grep -c 'got [01]' "$out")" = 2 ] && break; sleep 0.1; done
    like "$user: a signal reaches every rank" "got 0" "got 1"
    kill -INT "$job"
    finish
    gone "$user: nothing is left" 1 2
done

# DeepSpeed: a hostfile with one remote host is a run on this machine; only the first host is tried beforehand.
hosts n2
launch root -H "$BOX/shared/hosts" hostname
is "one remote host is that host" "$(cat "$out")" n2
hosts n1 nowhere1 n2 nowhere2
launch root -H "$BOX/shared/hosts" --connect-timeout 3s touch "$BOX/shared/started"
like "all hosts are tried, all that fail are named" "nowhere1" "nowhere2"
is "and nothing was started" "$(ls "$BOX/shared" | grep -c started)" 0

# libssh tries the first address of a name only.
for i in 1 2; do echo "10.77.0.$((i + 1)) two$i" >>"$BOX/etc/hosts"; done
sed -i '/two1/d' "$BOX/etc/hosts"
printf '10.77.0.99 two1\n10.77.0.2 two1\n' >>"$BOX/etc/hosts"
for u in root hpc; do sed "s/^n1,/two1,n1,/; s/^n2,/two2,n2,/" "$BOX/keys/known_hosts" >"$BOX/n0/home/$u/.ssh/known_hosts"; done
hosts two1 two2
launch root -H "$BOX/shared/hosts" --connect-timeout 20s hostname
is "a name whose first address is dead" "$rc" 0

# horovod's parser refuses IPv6; names with a user and a scope are taken apart wrongly.
for i in 0 1 2; do
    box on $i sh -c 'echo 0 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6' 2>/dev/null
    box on $i ip -6 addr add "fd77::$((i + 1))/64" dev eth0 nodad
done
for u in root hpc; do
    for i in 1 2; do echo "fd77::$((i + 1)) $(cut -d' ' -f1,2 "$BOX/etc/hostkey.pub")"; done >>"$BOX/n0/home/$u/.ssh/known_hosts"
done
hosts '[fd77::2]' 'hpc@[fd77::3] slots=2'
launch root -H "$BOX/shared/hosts" sh -c 'echo $RANK $LOCAL_RANK $(id -un) $(hostname) $MASTER_ADDR'
like "IPv6 addresses as hosts" "0 0 root n1" "1 0 hpc n2" "2 1 hpc n2"

# PRRTE's tree: passwordless login from every node to every node. Here only the head node logs in anywhere.
is "no login between nodes" "$(cat "$BOX"/n[12]/sshd*.log | grep Accepted | grep -vcE 'from (10\.77\.0\.1|fd77::1) ')" 0
finished
