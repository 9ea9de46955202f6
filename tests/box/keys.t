#!/bin/bash
# Who is trusted: host keys that are unknown, changed, revoked or hashed; keys of ours that do not fit.
. "$(dirname "$0")/lib.sh"
up 2
ssh=$BOX/n0/home/root/.ssh
known=$ssh/known_hosts
cp "$known" "$work/known"
print=$(ssh-keygen -l -f "$BOX/etc/hostkey.pub" | cut -d' ' -f2)
print=${print//+/.} # in a regular expression
hosts n1 n2

: >"$known"
launch root -H "$BOX/shared/hosts" touch "$BOX/shared/ran"
is "unknown host key: refused" "$((rc != 0))" 1
like "unknown host key: host, key, command" "n1.*not on record.*ssh-ed25519 $print.*ssh-keyscan -p 22 n1 >> $known" \
    "n2.*ssh-keyscan -p 22 n2 >> $known"
[ ! -e "$BOX/shared/ran" ]; result $? "unknown host key: nothing ran"
grep -Eo "ssh-keyscan .*" "$out" | sort -u | while read -r command; do box on 0 sh -c "$command" 2>/dev/null </dev/null; done
launch root -H "$BOX/shared/hosts" true
is "the commands it gave make it work" $rc 0
ssh-keygen -q -H -f "$known" 2>/dev/null >&2; rm -f "$known.old"
launch root -H "$BOX/shared/hosts" true
is "hashed names" $rc 0

# a server with two keys, of which the one on record is not the one it is asked for at first
ssh-keygen -q -t ecdsa -N '' -f "$work/second"
sed "s#^HostKey .*#&\nHostKey $work/second\nPort 2222#" "$BOX/etc/sshd_config" >"$BOX/etc/sshd2"
box on 1 /usr/sbin/sshd -f "$BOX/etc/sshd2" -E "$BOX/n1/sshd2.log"
{ echo "[n1]:2222 $(cut -d' ' -f1,2 "$work/second.pub")"; grep ^n2 "$work/known"; } >"$known"
ssh-keygen -q -H -f "$known" 2>/dev/null >&2; rm -f "$known.old"
hosts "n1 port=2222"
launch root -H "$BOX/shared/hosts" true
is "two host keys, the other one under a hashed name" $rc 0
hosts n1 n2

ssh-keygen -q -t ed25519 -N '' -f "$work/other"
{ echo "# one"; echo "n1 $(cut -d' ' -f1,2 "$work/other.pub")"; grep ^n2 "$work/known"; } >"$known"
printf 'Host *\n  StrictHostKeyChecking no\n' >"$ssh/config"
launch root -H "$BOX/shared/hosts" touch "$BOX/shared/ran"
is "changed host key: refused, StrictHostKeyChecking no or not" "$((rc != 0))" 1
like "changed host key: file and line" "n1.*HAS CHANGED.*$print.*$known:2"
like "StrictHostKeyChecking no: said" "$ssh/config:2: StrictHostKeyChecking no is taken as yes"
[ ! -e "$BOX/shared/ran" ]; result $? "changed host key: nothing ran"
gone "changed host key: no agent is left on the good node" 2
rm "$ssh/config"

{ cat "$work/known"; echo "@revoked * $(cut -d' ' -f1,2 "$BOX/etc/hostkey.pub")"; } >"$known"
launch root -H "$BOX/shared/hosts" true
like "revoked host key: file and line" "@revoked in $known:4"
cp "$work/known" "$known"

ssh-keygen -q -t ecdsa -N '' -f "$work/ecdsa"
echo "n1 $(cut -d' ' -f1,2 "$work/ecdsa.pub")" >"$known"
launch root -H "$BOX/shared/hosts" true
like "a host key of another type than on record" "n1.*HAS CHANGED.*$known:1"
cp "$work/known" "$known"

cp "$ssh/id_ed25519" "$ssh/open"
ssh-keygen -q -p -P '' -N secret -f "$ssh/id_ed25519" >/dev/null
launch root -H "$BOX/shared/hosts" true
like "a key with a passphrase, no agent: said" "n1: login as root refused .*passphrase.*$ssh/id_ed25519"
launch root -H "$BOX/shared/hosts" --identity "$ssh/open" true
is "--identity" $rc 0
timeout 60 "$here/box" on 0 bash -c "eval \$(ssh-agent) >/dev/null; ssh-add -q $ssh/open </dev/null
    $BOX/shared/bin/ds-launch -H $BOX/shared/hosts true; rc=\$?; ssh-agent -k >/dev/null; exit \$rc" >"$out" 2>&1 </dev/null
is "a key with a passphrase, held by the agent" $? 0
printf 'IdentitiesOnly yes\nIdentityFile ~/.ssh/id_ed25519\n' >"$ssh/config"; chmod 600 "$ssh/config"
timeout 60 "$here/box" on 0 bash -c "eval \$(ssh-agent) >/dev/null; ssh-add -q $ssh/open </dev/null
    $BOX/shared/bin/ds-launch -H $BOX/shared/hosts true; rc=\$?; ssh-agent -k >/dev/null; exit \$rc" >"$out" 2>&1 </dev/null
is "the same with IdentitiesOnly" $? 0
cp "$work/other" "$ssh/id_ed25519"
timeout 60 "$here/box" on 0 bash -c "eval \$(ssh-agent) >/dev/null; ssh-add -q $ssh/open </dev/null
    $BOX/shared/bin/ds-launch -H $BOX/shared/hosts true; ssh-agent -k >/dev/null" >"$out" 2>&1 </dev/null
like "IdentitiesOnly keeps the agent's other keys back" "ssh-agent left out .IdentitiesOnly."
rm "$ssh/config"
launch root -H "$BOX/shared/hosts" true
like "a key that nobody knows" "n1: login as root refused .*tried .*id_ed25519"
launch root -H "$BOX/shared/hosts" --identity "$ssh/none" true
is "--identity that is not there" $rc 2
chmod 666 "$ssh/open"; cp "$ssh/open" "$ssh/id_ed25519"
echo 'User root' >"$ssh/config"; chmod 666 "$ssh/config"
launch root -H "$BOX/shared/hosts" true
like "a config that others can write" "$ssh/config: others may write it"
echo 'Port nine' >"$ssh/config"; chmod 600 "$ssh/config"
launch root -H "$BOX/shared/hosts" true
like "a config with an error: file and line" "$ssh/config:1: Port nine"
finished
