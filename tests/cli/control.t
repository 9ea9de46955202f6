#!/bin/sh
# A running job from outside: ds-launch ps and kill, the control socket, what a dead job leaves.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
mark=m$$
mkdir -m 700 run
XDG_RUNTIME_DIR=$here/run
export XDG_RUNTIME_DIR
up() { test -e up.0 && test -e up.1; }
# this user may have other jobs: ours are those in this folder
mine() { "$launch" ps --json | python3 -c 'import json, os, sys
for j in json.load(sys.stdin):
    if j["cwd"] == os.getcwd():
        print(eval(sys.argv[1]))' "${1-j[\"id\"]}" | tr '\n' ' '; }
ps() { "$launch" ps | grep "^$id"; }
plain=plain$$
cat >$plain.sh <<'X'
#!/bin/sh
touch up.$RANK
sleep 60 & wait
X
chmod +x $plain.sh
start() { # start ARGS...: in the background, pid in $pid, its id in $id
    rm -f up.*
    DS_TEST_MARK=$mark "$launch" --hosts local:2x1 "$@" </dev/null >out 2>err &
    pid=$!
    wait_for 20 up || echo "# it did not come up: $(cat err)"
    id=$("$launch" ps --json | sed -n 's/.*"pid":'$pid',.*"id":"\([0-9a-f]*\)".*/\1/p')
    test -n "$id" || echo "# ps does not show it"
}
is "ps without a job" "$(mine)" ""

start ./$plain.sh 'a b' "$(printf 'esc\033[31m')"
is "the socket lies in XDG_RUNTIME_DIR" "$(ls run/ds-launch)" "$id.sock"
is "its folder is the user's own" "$(stat -c %a run/ds-launch)" 700
like "ps: the job" "$(ps)" "$id running    local[0-1]"
is "ps: its ranks and command" "$(ps | tr -s ' ' | cut -d' ' -f4,6-)" "2 ./$plain.sh a b esc [31m"
is "ps: JSON" "$(mine 'j["state"], j["world"], j["nodes"], j["name"], j["command"][-8:]')" "('running', 2, 2, '$plain', 'esc\\x1b[31m') "
first=$id first_pid=$pid
rm -f up.*; start ./$plain.sh
is "ps: two jobs, the older one first" "$(mine)" "$first $id "
"$launch" kill nothing 2>err2; is "kill: no such job" "$?:$(grep -c 'no job nothing' err2)" "2:1"
"$launch" kill 2>err2; is "kill: without a job" "$?:$(grep -c 'name a job' err2)" "2:1"
"$launch" kill "$id" --signal STOP 2>err2; is "kill: a signal that no job takes" "$?:$(grep -c 'give one of TERM' err2)" "2:1"
"$launch" kill $plain 2>err2; is "kill: a name that two have" "$?:$(grep -c '2 jobs are called' err2)" "2:1"
"$launch" kill "$(echo "$id" | cut -c1-10)"
is "kill by the start of the id" $? 0
wait $pid
is "TERM ends it" $? 143
ok "the other one goes on" kill -0 $first_pid
is "and is the only one that ps shows" "$(mine)" "$first "
"$launch" kill --signal KILL "$first"
wait $first_pid
is "kill --signal KILL" $? 137
ok "nothing is left" wait_for 10 nobody $mark
is "no socket is left" "$(ls -A run/ds-launch)" ""

# a job of another host is told there, and a host that does not answer is not waited for without end
mkdir away bin
echo '{"host":"elsewhere","control":"/run/x/it.sock"}' >away/job.json
printf '#!/bin/sh\necho "$@"\n' >bin/ssh
chmod +x bin/ssh
like "kill of another host's job" "$(PATH=$here/bin:$PATH "$launch" kill away)" "-o BatchMode=yes -o ConnectTimeout=10 -T -- elsewhere '"
cat >usr.sh <<'X'
trap 'exit 0' USR2
touch up.$RANK
while :; do sleep 0.05; done
X
start sh usr.sh
"$launch" kill "$id" --signal USR2
wait $pid
is "kill --signal USR2 is passed on" $? 0

# a silent visitor and nonsense harm nobody
start ./$plain.sh
python3 - "$here/run/ds-launch/$id.sock" >got <<'X'
import socket, sys
def conn(b):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.sendall(b)
    return s
quiet = [conn(b"") for i in range(40)]
try:
    long = conn(b"x" * 200).recv(4096)
except ConnectionResetError:
    long = b""
print(long, conn(b"signal 9999\n").recv(4096).startswith(b'{"error"'), conn(b"info\n").recv(4096)[:6])
X
is "silent visitors, a long request, a wrong one" "$(cat got)" "b'' True b'{\"pid\"'"
if [ "$(id -u)" = 0 ] && [ -x /usr/bin/python3 ]; then
    chmod 711 "$here" run; chmod 777 run/ds-launch run/ds-launch/*
    is "another user gets no answer" "$(setpriv --reuid 65534 --clear-groups /usr/bin/python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    s.sendall(b"signal 9\n")
    print(s.recv(100))
except OSError:
    print(b"")' "$here/run/ds-launch/$id.sock")" "b''"
    chmod 700 run run/ds-launch
fi
ok "the job runs on" kill -0 $pid

kill -KILL $pid
wait $pid 2>/dev/null
ok "kill -9 of ds-launch: nothing is left" wait_for 20 nobody $mark
is "kill -9 of ds-launch: no socket is left" "$(ls -A run/ds-launch)" ""
start ./$plain.sh
inner=$(pgrep -P $pid | head -1)
kill -KILL "$inner"
wait $pid
is "kill -9 of its inner process: the status" $? 137
is "kill -9 of its inner process: no socket is left" "$(ls -A run/ds-launch)" ""
start ./$plain.sh
inner=$(pgrep -P $pid | head -1)
kill -KILL $pid "$inner"
ok "kill -9 of both: nothing is left" wait_for 20 nobody $mark
is "kill -9 of both: ps shows no job" "$(mine)" ""
is "kill -9 of both: and took the socket away" "$(ls -A run/ds-launch)" ""

# without XDG_RUNTIME_DIR, or with somebody's else folder there
unset XDG_RUNTIME_DIR
start ./$plain.sh
ok "the other place is in /tmp" test -S "/tmp/ds-launch-$(id -u)/$id.sock"
XDG_RUNTIME_DIR=$here/run "$launch" kill "$id"
wait $pid
is "and is found from a shell that has XDG_RUNTIME_DIR" $? 143
finish
