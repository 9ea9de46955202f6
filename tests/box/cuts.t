#!/bin/bash
# Networks that break and come back, in both directions and in one, at the default limits; hosts that are not as they
# should be before a job starts; a host that goes while it starts.
. "$(dirname "$0")/lib.sh"
up 3
hosts n1 n2 n3
all=$BOX/shared/hosts

# One job sees them all at once: n1 is cut, n2 is not heard, n3 does not hear; for 1, 3 and 4 s.
cat >"$BOX/shared/count" <<'X'
for i in $(seq 300); do echo "$RANK $i"; sleep 0.1; done
X
background hpc -H "$all" --prefix none sh "$BOX/shared/count"
for n in $(seq 100); do grep -q '^2 5$' "$out" && break; sleep 0.1; done
for s in 1 3 4; do
    box cut 1; box mute 2; box deaf 3
    sleep $s
    for i in 1 2 3; do box heal $i; done
    sleep $((s + 4))
done
finish
is "cuts of 1, 3, 4 s in each direction are ridden out" $rc 0
is "no line is lost" "$(grep -Ec '^[012] [0-9]+$' "$out")" 900
clean "and nothing is left" 0 1 2 3

# For ever, each direction in a job of its own.
forever() { # forever HOW I: the job must end with an error that names n$I, and n$I must end its rank by itself
    hosts "n$2"
    out=$work/forever.$2
    background hpc -H "$all" --ping-limit 3s sleep 7777
    running "$2"
    box "$1" "$2"
    jobs_of[$2]=$job
}
declare -A jobs_of
forever cut 1; forever mute 2; forever deaf 3
for i in 1 2 3; do
    wait "${jobs_of[$i]}"; rc=$?
    out=$work/forever.$i
    is "n$i cut off for ever: the job fails" "$((rc != 0))" 1
    like "n$i cut off for ever: it is named" "n$i"
done
gone "cut off for ever: nothing runs behind the cut" 1 2 3
for i in 1 2 3; do box heal $i; done
out=$work/out
clean "cut off for ever: when the link is back, no socket is left" 0

# Before the start.
hosts n1 n2 n2
launch hpc -H "$all" true
is "a host named twice" $rc 2
like "a host named twice: file and line" "hosts:3.*n2"
printf 'Host n2\n  Port 2\n' >"$BOX/n0/home/hpc/.ssh/config"
chown 2000:2000 "$BOX/n0/home/hpc/.ssh/config"
hosts n1 n2
launch hpc -H "$all" --connect-timeout 3s sleep 7777
is "a host that refuses" $rc 1
like "a host that refuses is named" "n2.*refused"
clean "a host that refuses: nothing is left on the other" 0 1
rm "$BOX/n0/home/hpc/.ssh/config"
box cut 2
launch hpc -H "$all" --connect-timeout 3s sleep 7777
is "a host that does not answer" $rc 1
like "a host that does not answer is named" "n2"
clean "a host that does not answer: nothing is left on the other" 0 1
launch hpc exec -H "$all" --connect-timeout 3s 'echo hello from $(hostname)'
is "exec: a host that does not answer counts 255" $rc 255
like "exec: the others' output and who it was" "hello from n1" "n2: "
box heal 2
launch hpc exec -H "$all" uname -s
is "exec: equal outputs stand once" "$(tr '\n' '/' <"$out")" "----------------/n[1-2] (2)/----------------/Linux/"
sed -i.kept 's/^n2,\([^ ]*\) .*/n2,\1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4uPpDFWKxFOqhKKZ7gCYbfWvMmJ4y2tFPMv6EdKBpP/' "$BOX/n0/home/hpc/.ssh/known_hosts"
launch hpc -H "$all" sleep 7777
is "a wrong host key" $rc 1
like "a wrong host key: the host and the file are named" "n2.*known_hosts"
clean "a wrong host key: nothing is left on the other" 0 1
mv "$BOX/n0/home/hpc/.ssh/known_hosts.kept" "$BOX/n0/home/hpc/.ssh/known_hosts"

# While it starts: the node goes down at some moment of it.
hosts n1 n3
for ms in 0.02 0.1 0.2; do
    background root -H "$all" --ping-limit 3s --connect-timeout 5s sleep 7777
    sleep $ms
    box kill 3
    finish
    is "a node dies $ms s after the start: the job fails" "$((rc != 0))" 1
    like "a node dies $ms s after the start: it is named" "n3"
    clean "a node dies $ms s after the start: nothing is left" 0 1
    box start 3
done
finished
