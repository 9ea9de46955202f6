#!/bin/bash
# Hosts that are hard to reach: late, silent, many at once, behind a bastion, with logins that libssh cannot do.
. "$(dirname "$0")/lib.sh"
up 3
home=$BOX/n0/home/root
known=$home/.ssh/known_hosts
cache() { echo "$BOX/n$1/home/root/.cache/ds-launch"; }
sshd() { # sshd I PORT LINE...: one more sshd on node I, with these settings
    local i=$1 port=$2
    shift 2
    { sed 's/^Port.*//' "$BOX/etc/sshd_config"; echo "Port $port"; printf '%s\n' "$@"; } >"$BOX/etc/sshd.$port"
    box on "$i" /usr/sbin/sshd -f "$BOX/etc/sshd.$port" -E "$BOX/n$i/sshd.$port.log"
    sed -n "s/^n$i,[^ ]* /[n$i]:$port /p" "$BOX/keys/known_hosts" >>"$known"
}
listener() { box ps "$1" | awk -v f="sshd.$2" '$0 ~ f && !/awk/ { print $1; exit }'; } # listener I PORT

# late: the port is closed, the name is not known yet
hosts "n1 port=2201" n2
background root -H "$BOX/shared/hosts" --connect-timeout 20s true
sleep 1.5
sshd 1 2201
finish
is "a port that opens later" $rc 0
like "a port that opens later: said meanwhile" "n1.*Connection refused.*trying on"
hosts "n1 port=2203" n2
launch root -H "$BOX/shared/hosts" --connect-timeout 8s true
is "a port where nothing listens: the slow host is named once" "$(grep -c 'waiting for n1' "$out")" 1
like "a port where nothing listens: the end has a remedy" "n1.*port 2203: Connection refused .*--ssh-port.*attempts in 8 s"
sed -n 's/^n1,[^ ]* /later /p' "$BOX/keys/known_hosts" >>"$known"
hosts later n2
background root -H "$BOX/shared/hosts" --connect-timeout 20s sh -c 'echo on $(hostname)'
sleep 1.5
echo "$(sed -n 's/^\([^ ]*\) n1$/\1/p' "$BOX/etc/hosts") later" >>"$BOX/etc/hosts"
finish
is "a name that is known later" $rc 0
like "a name that is known later: the rank is there" "on n1"

# silent: the kernel answers, sshd does not; a hundred names of it
printf 'Host s*\n HostName n1\n Port 2201\nHost b*\n HostName n3\n ProxyJump n2\n' >"$home/.ssh/config"
box on 1 kill -STOP "$(listener 1 2201)"
hosts s1 n2
launch root -H "$BOX/shared/hosts" --connect-timeout 2s true
is "a silent sshd: the job fails" "$((rc != 0))" 1
like "a silent sshd: host, address, port" "s1: n1 port 2201 does not answer in SSH within 2 s"
! grep -q 'n2:' "$out"; result $? "a silent sshd: nobody else is named"
hosts $(seq -f s%g 100)
background root -H "$BOX/shared/hosts" --connect-timeout 4s true
sleep 2
is "a hundred silent hosts: 64 connections at once" "$(box on 1 ss -Htn state established '( sport = :2201 )' | wc -l)" 64
finish
box on 1 kill -CONT "$(listener 1 2201)"

# behind a bastion: one login there for all
hosts $(seq -f b%g 5)
: >"$BOX/n2/sshd.log"
launch root -H "$BOX/shared/hosts" true
is "five hosts behind a bastion" $rc 0
is "one login on the bastion" "$(grep -c Accepted "$BOX/n2/sshd.log")" 1
rm "$home/.ssh/config"

# the agent in the cache
hosts n1
launch root -H "$BOX/shared/hosts" true
agent=$(ls "$(cache 1)"/agent-*)
printf '#!/bin/sh\ntouch %s/bad\n' "$BOX/shared" >"$agent"
launch root -H "$BOX/shared/hosts" true
is "an agent that was changed is copied anew" "$rc $(sha256sum <"$agent" | cut -c1-32)" "0 ${agent##*/agent-}"
[ ! -e "$BOX/shared/bad" ]; result $? "an agent that was changed is not run"

# passwords are never asked for, on a terminal neither
sshd 1 2202 'PasswordAuthentication yes' 'KbdInteractiveAuthentication yes' 'PubkeyAuthentication no'
hosts "n1 port=2202"
timeout 30 "$here/box" on 0 script -qec "$BOX/shared/bin/ds-launch -H $BOX/shared/hosts true" /dev/null >"$out" 2>&1 </dev/null
is "no password is asked for" "$? $(grep -ci 'password:' "$out")" "1 0"
like "what the server wants, and the way out" "the server takes no public keys.*would also take .*keyboard-interactive.*--launcher openssh"

# a login by certificate: not libssh's, but ssh's
ssh-keygen -q -t ed25519 -N '' -f "$BOX/keys/ca"
cp "$BOX/keys/ca.pub" "$BOX/etc/ca.pub"
ssh-keygen -q -t ed25519 -N '' -f "$home/.ssh/id_cert"
ssh-keygen -q -s "$BOX/keys/ca" -I box -n root "$home/.ssh/id_cert.pub"
rm "$BOX/keys/ca"*
sshd 1 2203 "TrustedUserCAKeys $BOX/etc/ca.pub" 'AuthorizedKeysFile none'
sed -i '/^AuthorizedKeysFile.*keys/d' "$BOX/etc/sshd.2203"
box on 1 kill "$(listener 1 2203)"; box on 1 /usr/sbin/sshd -f "$BOX/etc/sshd.2203" -E "$BOX/n1/sshd.2203.log"
printf 'IdentityFile ~/.ssh/id_cert\nIdentityFile ~/.ssh/id_ed25519\n' >"$home/.ssh/config"
hosts "n1 port=2203" n2
launch root -H "$BOX/shared/hosts" true
like "a certificate: what is lacking, and the way out" "n1: login as root refused .*certificates.*--launcher openssh"
rm -rf "$(cache 1)"
launch root -H "$BOX/shared/hosts" --launcher openssh sh -c 'echo rank=$RANK on $(hostname)'
is "--launcher openssh" $rc 0
like "--launcher openssh: both ranks" "rank=0 on n1" "rank=1 on n2"
is "--launcher openssh: the agent is copied" "$(ls "$(cache 1)" | wc -l)" 1
gone "--launcher openssh: nothing is left" 1 2
rm "$home/.ssh/config"
cp "$known" "$work/known"
: >"$known"
hosts n2
launch root -H "$BOX/shared/hosts" --launcher openssh touch "$BOX/shared/ran"
like "--launcher openssh: an unknown host key is refused" "n2: ssh to n2 ended with status 255" "Host key verification failed"
[ ! -e "$BOX/shared/ran" ]; result $? "--launcher openssh: nothing ran there"
cp "$work/known" "$known"
background root -H "$BOX/shared/hosts" --launcher openssh sleep 7777
running 2
box on 0 kill -9 $(box ps 0 | awk '/[d]s-launch/ {print $1}')
finish
gone "--launcher openssh, ds-launch killed: nothing is left there" 2
[ -z "$(box ps 0 | grep '[s]sh -T')" ]; result $? "nor here"
finished
