#!/bin/bash
# What dies under a running job, and that nothing of the job is left: ranks, agent, front end, sshd, a link,
# a whole node.
. "$(dirname "$0")/lib.sh"
up 2
hosts n1 n2
run() { background "$1" -H "$BOX/shared/hosts" --ping-limit 3s sleep 7777; running 1 2; }

run root || { result 1 "job is up"; finished; }
box on 2 kill -9 "$(pid_of 2 '[s]leep 7777')"
finish
is "a rank killed: exit status" $rc 137
like "a rank killed: rank, host, signal" "rank 1.*n2.*(SIGKILL|signal 9|Killed)"
gone "a rank killed: nothing is left" 1 2

run hpc
box on 0 kill -9 $(box ps 0 | awk '/[d]s-launch/ {print $1}')
finish
gone "ds-launch killed: nothing is left" 1 2

run root
box on 2 kill -9 $(box ps 2 | awk '/[/]agent-[0-9a-f]/ {print $1}')
finish
is "ds-agent killed: the job fails" "$((rc != 0))" 1
like "ds-agent killed: its host is named" "n2"
gone "ds-agent killed: nothing is left on the other node" 1

run root
box on 1 kill -9 $(box ps 1 | awk '/[s]shd: root/ {print $1}')
finish
is "sshd killed: the job fails" "$((rc != 0))" 1
like "sshd killed: its host is named" "n1.*(connection lost|lost)"
gone "sshd killed: nothing is left" 1 2

run hpc
box cut 2
finish
is "link cut: the job fails" "$((rc != 0))" 1
like "link cut: its host is named" "n2"
gone "link cut: nothing is left on the other node" 1
gone "link cut: nothing is left behind the cut" 2
box heal 2

run root
box kill 1
finish
is "power failure: the job fails" "$((rc != 0))" 1
like "power failure: its host is named" "n1"
gone "power failure: nothing is left on the other node" 2
box start 1
launch root -H "$BOX/shared/hosts" true
is "the node is back: jobs run again" $rc 0

# an sshd that turns most away: ten hosts that are one
sed 's/^Port.*//; $aPort 2222\nMaxStartups 2:100:2' "$BOX/etc/sshd_config" >"$BOX/etc/sshd2"
box on 1 /usr/sbin/sshd -f "$BOX/etc/sshd2" -E "$BOX/n1/sshd2.log"
sed -n 's/^n1,[^ ]* /[n1]:2222 /p' "$BOX/keys/known_hosts" >>"$BOX/n0/home/root/.ssh/known_hosts"
printf 'Host m*\n  HostName n1\n  Port 2222\n' >"$BOX/n0/home/root/.ssh/config"
hosts m1 m2 m3 m4 m5 m6 m7 m8 m9 m10
launch root -H "$BOX/shared/hosts" true
is "MaxStartups: tried again until all are in" $rc 0
grep -q MaxStartups "$BOX/n1/sshd2.log"; result $? "MaxStartups: some were turned away"
hosts n1 nowhere
launch root -H "$BOX/shared/hosts" --connect-timeout 3s true
like "a host that does not exist" "nowhere.*cannot (resolve|connect)"
is "a host that does not exist: exit status" "$((rc != 0))" 1
gone "a host that does not exist: nothing is left on the other" 1
finished
