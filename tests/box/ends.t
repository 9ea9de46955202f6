#!/bin/bash
# However a job ends, nothing of it is left: signals to the front end and to the agents in every state, ranks that
# do all they can to stay. n1 lets root make a cgroup, n2 lets nobody.
. "$(dirname "$0")/lib.sh"
up 2
hosts n1 n2
all=$BOX/shared/hosts
box on 2 mount -t tmpfs tmpfs /sys/fs/cgroup
# a group of n1's own, so that agents of other tests on this machine find nothing of ours
for group in /sys/fs/cgroup/unified /sys/fs/cgroup; do [ -e $group/cgroup.procs ] && break; done
group=$group/box-$$
if mkdir "$group" 2>/dev/null; then
    trap 'box down; rmdir "$group" "$memory" 2>/dev/null; rm -rf "$work"' EXIT
    space=$(readlink "/proc/$(cat "$BOX/n1/pid")/ns/pid")
    for p in $(pgrep -f "$BOX/etc/sshd_config"); do
        [ "$(readlink "/proc/$p/ns/pid")" = "$space" ] && echo "$p" >"$group/cgroup.procs" && login=$p
    done
fi
groups_left() { find "$group" -maxdepth 1 -name 'ds-agent-*' 2>/dev/null; }
front() { pid_of 0 'bin/ds-launch'; }                       # the outer process, in the node
tell() { box on "$1" kill "-$2" $3; }                       # tell I SIGNAL PIDS
agents() { box ps "$1" | awk '/[/]agent-[0-9a-f]/ {print $1}'; } # keeper and worker, in this order
both() { for n in $(seq 100); do [ "$(box ps 1 | grep -c ' sleep 7777$')" = 2 ] && break; sleep 0.1; done; } # rank and grandchild
up_on() { running "$@" && [ -n "$(ours 0)" ] && [ -n "$(linked 1)" ]; }

# ---- signals to the front end
wanted() { case $1 in INT) echo 130 ;; TERM) echo 143 ;; HUP) echo 129 ;; *) echo 137 ;; esac }
cat >"$BOX/shared/deaf" <<'X'
trap '' TERM INT HUP
sleep 7777 & while :; do wait; done
X
user=root
for sig in INT TERM HUP KILL; do
    [ $user = root ] && user=hpc || user=root
    background $user -H "$all" sleep 7777
    up_on 1 2 || result 1 "$sig while running: the test sees a running job"
    tell 0 $sig "$(front)"
    finish
    [ $sig = KILL ] || is "$user: $sig while running: exit status" $rc "$(wanted $sig)"
    clean "$user: $sig while running: nothing is left" 0 1 2

    background $user -H "$all" --grace 1s sh "$BOX/shared/deaf"
    running 1 2
    tell 0 TERM "$(front)"
    sleep 0.3
    tell 0 $sig "$(front)"
    finish
    [ $sig = KILL ] || is "$user: $sig while ending: exit status" $rc 143
    clean "$user: $sig while ending: nothing is left" 0 1 2

    box cut 2
    background $user -H "$all" sleep 7777
    for n in $(seq 50); do [ -n "$(agents 1)" ] && break; sleep 0.1; done
    tell 0 $sig "$(front)"
    finish
    [ $sig = KILL ] || is "$user: $sig while connecting: exit status" $rc "$(wanted $sig)"
    box heal 2
    clean "$user: $sig while connecting: nothing is left" 0 1 2
done
# at any moment: every 30 ms from the first on
for sig in TERM KILL; do
    for ms in 00 03 06 09 12 15 18 21 24 30; do
        background hpc -H "$all" --grace 1s sleep 7777
        sleep 0.$ms
        pid=$(front)
        [ -z "$pid" ] || tell 0 $sig "$pid"
        finish
    done
    clean "hpc: $sig at ten moments of the start: nothing is left" 0 1 2
done

# ---- signals to an agent: to its keeper, its worker, both
for sig in TERM HUP KILL; do
    for which in 1 2 '1,2'; do
        background $user -H "$all" --grace 1s sh -c 'setsid sleep 7777 & exec sleep 7777'
        running 1 2
        both
        tell 1 $sig "$(agents 1 | sed -n "${which}p;" | tr '\n' ' ')"
        finish
        is "$user: $sig to an agent's process $which: the job fails" "$((rc != 0))" 1
        like "$user: $sig to an agent's process $which: its host is named" n1
        [ $sig = KILL ] && [ "$which" = 1,2 ] && break
        clean "$user: $sig to an agent's process $which: nothing is left" 0 1 2
        [ $user = root ] && user=hpc || user=root
    done
done
# keeper and worker killed at once: the rank died with them; what had left its session lives on
clean "KILL to both processes of an agent: nothing is left elsewhere" 0 2
[ -z "$(box ps 1 | grep '[/]agent-')" ]; result $? "KILL to both: no agent is left"
left=$(pid_of 1 ' sleep 7777$')
[ -z "$left" ] || tell 1 KILL "$left"
background root -H "$all" sh -c 'setsid sleep 7777 & exec sleep 7777'
running 1 2
both
if [ -n "$(groups_left)" ]; then
    both_of=$(agents 1 | tr '\n' ' ')
    tell 1 STOP "$both_of" # so that neither sees the other die
    tell 1 KILL "$both_of"
    finish
    [ -n "$(pid_of 1 ' sleep 7777$')" ]; result $? "both killed: what called setsid lives"
    launch root -H "$all" true
    like "until the next agent comes, which says so" "agent on n1.*had left processes here.*ended"
    is "and the new job is not disturbed" $rc 0
    clean "then nothing is left" 0 1 2
else
    skip "what two killed processes leave" "no cgroup can be made here"
    tell 0 TERM "$(front)"
    finish
fi

# ---- ranks that stay as long as they can
cat >"$BOX/shared/nasty" <<'X'
trap '' TERM INT HUP
for i in $(seq 250); do sleep 7777 & done
for i in $(seq 125); do setsid sleep 7777 & done
for i in $(seq 125); do (setsid bash -c 'trap "" TERM HUP INT; sleep 7777 & (sleep 7777 &) ; wait' &); done
chain() { sleep 0.02; setsid bash "$BASH_SOURCE" chain & exit; }
exec 1>&- 2>&-
touch "$DONE.$RANK"
[ "$RANK" = "$FAIL" ] && exit 9
kill -STOP $$
X
cat >"$BOX/shared/chain" <<'X'
trap '' TERM HUP INT
sleep 0.02
setsid bash "$0" sleep 7777 &
[ -n "$RANK" ] && [ "$1" = first ] && exec sleep 7777
X
export DONE=$BOX/shared/done FAIL
nasty() { # nasty USER: both ranks are there, with all their children
    rm -f "$DONE".*
    background "$1" -H "$all" --grace 500ms --export DONE --export FAIL bash "$BOX/shared/nasty"
    for n in $(seq 300); do [ -e "$DONE.0" ] && [ -e "$DONE.1" ] && return; sleep 0.1; done
    result 1 "the ranks came up"; said
}
for user in root hpc; do
    FAIL='' nasty $user
    many=$(box ps 1 | grep -c '[s]leep 7777')
    [ "$many" -ge 500 ]; result $? "$user: a rank with $many processes, stopped, its output closed"
    tell 0 TERM "$(front)"
    finish
    is "$user: TERM to such a job" $rc 143
    clean "$user: nothing is left of it" 0 1 2
done
FAIL=1 nasty hpc
finish
is "hpc: one of them fails: its code" $rc 9
clean "hpc: nothing is left of the other" 0 1 2
nasty root
tell 0 KILL "$(front)"
finish
clean "root: kill -9 of the front end of such a job: nothing is left" 0 1 2
for user in root hpc; do
    background $user -H "$all" --grace 200ms bash "$BOX/shared/chain" first
    running 1 2
    sleep 0.3
    tell 0 TERM "$(front)"
    finish
    clean "$user: a chain of processes that each start the next and end: nothing is left" 0 1 2
done

# ---- a rank that the kernel ends for want of memory
memory=/sys/fs/cgroup/memory/box-$$
if [ -n "$login" ] && mkdir "$memory" 2>/dev/null; then
    echo 100M >"$memory/memory.limit_in_bytes" && echo "$login" >"$memory/cgroup.procs"
else
    echo 100M 2>/dev/null >"$group/memory.max"
fi
if [ $? = 0 ]; then
    for user in root hpc; do
        launch $user -H "$all" sh -c 'test $RANK = 1 && exec sleep 7777; exec tail /dev/zero'
        is "$user: a rank out of memory: exit status" $rc 137
        like "$user: it is said so" "rank 0 on n1.*signal 9.*out of memory"
        clean "$user: a rank out of memory: nothing is left" 0 1 2
    done
    launch hpc exec -H "$all" 'test $(hostname) = n2 || exec tail /dev/zero'
    like "exec says it, too" "n1: killed by signal 9.*out of memory"
else
    skip "a rank out of memory" "memory cannot be limited here"
fi
launch hpc -H "$all" sh -c 'test $RANK = 1 && exec sleep 7777; kill -9 $$'
like "another SIGKILL is not taken for it" 'rank 0 on n1.*signal 9 \(Killed\)(;|$)'

# ---- two jobs on the same hosts
background hpc -H "$all" sh -c 'sleep 4; echo "fine $RANK"'
second=$job
background hpc -H "$all" sleep 7777
running 1 2
out=$work/first
limit=20 timeout 20 "$here/box" as hpc 0 env XDG_RUNTIME_DIR="$BOX/run/hpc" "$BOX/shared/bin/ds-launch" ps >"$work/ps" 2>&1
id=$(awk '/sleep 7777/ {print $1}' "$work/ps")
launch hpc kill "$id"
is "ds-launch kill of one of two jobs" $rc 0
finish
is "it ends" $rc 143
wait "$second"
is "the other one goes on to its end" $? 0
clean "and nothing is left" 0 1 2
[ -z "$(groups_left)" ]; result $? "no cgroup is left"
finished
