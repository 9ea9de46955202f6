#!/bin/sh
# How a job ends on this machine: its last words, stopped ranks, signals while it is checked, Ctrl-Z and fg.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
mark=m$$
run() { DS_TEST_MARK=$mark timeout 60 "$launch" "$@" </dev/null; }

run --hosts local:1x2 sh -c 'test $RANK = 1 || exec sleep 60; i=0; while test $i -lt 30; do i=$((i+1)); echo line $i; done; exit 3' 2>err >out
is "the code of the rank that failed" $? 3
is "its last twenty lines are shown" "$(sed -n 's/^  | line //p' err | tr '\n' ' ')" "$(seq -s ' ' 11 30) "
run --hosts local:1x2 sh -c 'exec 1>&- 2>&-; sleep 0.3; exit 6'
is "a rank that closes its output is waited for" $? 6

# A stopped rank is woken, so that it can end by itself.
cat >stopped.sh <<'X'
trap 'echo woken; exit 0' TERM INT HUP
touch up.$RANK
kill -STOP $$
while :; do sleep 0.05; done
X
for s in TERM HUP; do
    rm -f up.*
    DS_TEST_MARK=$mark "$launch" --hosts local:2x1 --grace 30s sh stopped.sh </dev/null >out 2>err &
    pid=$!
    wait_for 20 test -e up.0 -a -e up.1
    sleep 0.1
    kill -$s $pid
    wait $pid
    is "$s to stopped ranks wakes them" "$(sort out | tr '\n' ' ')" "[0] woken [1] woken "
done

# While the nodes are checked: the rank program's check does not come to its end.
cat >slow.sh <<'X'
#!/bin/sh
touch checking
sleep 300
X
chmod +x slow.sh
echo text >t.txt
cat >a.ini <<X
train_batch_size = 4
[model]
form = gpt2
n_layer = 1
n_head = 1
n_embd = 16
[data]
train = t.txt
seq_len = 16
[run]
program = $here/slow.sh
steps = 5
X
for s in TERM HUP KILL; do
    rm -f checking
    DS_TEST_MARK=$mark "$launch" --hosts local:2x1 a.ini --run-dir r </dev/null >out 2>err &
    pid=$!
    wait_for 20 test -e checking
    kill -$s $pid
    wait $pid 2>/dev/null
    rc=$?
    case $s in TERM) want=143 ;; HUP) want=129 ;; KILL) want=137 ;; esac
    is "$s while nodes are checked" $rc $want
    ok "$s while nodes are checked: nothing is left" wait_for 20 nobody $mark
    ok "$s while nodes are checked: no run folder" test ! -e r
done

# While the ranks are started again and again.
for s in TERM KILL; do
    rm -f again.*
    DS_TEST_MARK=$mark "$launch" --hosts local:2x1 --max-restarts 1000 --grace 200ms sh -c ': >again.$$; sleep 0.05; exit 1' </dev/null >out 2>err &
    pid=$!
    wait_for 20 sh -c 'test $(ls again.* | wc -l) -ge 6'
    kill -$s $pid
    wait $pid 2>/dev/null
    rc=$?
    # 143, 137, or 1 when a rank had failed before
    ok "$s while ranks are started again: it ends" test $rc -ne 0
    ok "$s while ranks are started again: nothing is left" wait_for 20 nobody $mark
done

# A terminal, with a shell that has job control.
cat >term.py <<'X'
import os, pty, re, select, sys, time

pid, fd = pty.fork()
if pid == 0:
    os.environ.update(PS1="ready> ", DS_TEST_MARK=sys.argv[2])
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
text = ""

def until(pattern, limit=20):
    global text
    end = time.time() + limit
    while not re.search(pattern, text):
        if not select.select([fd], [], [], max(0, end - time.time()))[0]:
            return False
        try:
            text += os.read(fd, 65536).decode(errors="replace")
        except OSError:
            return False
    text = text[re.search(pattern, text).end():]
    return True

def send(s):
    os.write(fd, s.encode())

def step(name, good):
    print("yes" if good else "no: " + repr(text[-300:]), name)

until("ready> ")
send("%s --hosts local:1x2 --ping-limit 1s --prefix none sh -c 'test $RANK = 0 || exec sleep 300; "
     "echo be\"\"gun; read a; echo got:$a:; exec sleep 300'\n" % sys.argv[1])
step("it runs", until("begun"))
send("\x1a")
step("Ctrl-Z stops it", until("Stopped"))
time.sleep(2.5)
send("fg\n")
time.sleep(0.3)
send("hello\n")
step("fg: what is typed arrives", until("got:hello:"))
send("\x03")
step("Ctrl-C ends it", until("Interrupt: ending"))
until("ready> ")
send("echo st=$?\n")
step("status 130", until("st=130"))
os.close(fd)
X
if command -v bash >/dev/null; then
    timeout 90 python3 term.py "$launch" $mark >term
    is "Ctrl-Z, fg, input, Ctrl-C on a terminal" "$(cut -d' ' -f1 term | tr '\n' ' ')" "yes yes yes yes yes "
    grep -v ^yes term | sed 's/^/# /'
    ok "nothing is left" wait_for 10 nobody $mark
fi

# The front end is stopped, and killed as it stands.
DS_TEST_MARK=$mark "$launch" --hosts local:2x1 sleep 300 </dev/null >out 2>err &
pid=$!
wait_for 20 sh -c "pgrep -P $pid -x ds-launch >/dev/null"
sleep 0.5
kill -TSTP $pid
kill -KILL $pid
wait $pid 2>/dev/null
ok "kill -9 of a stopped front end: nothing is left" wait_for 20 nobody $mark
finish
