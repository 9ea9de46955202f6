#!/bin/sh
# What becomes of the ranks' output: prefixes, broken lines, folding, colour, progress bars in a pipe and on a terminal,
# bytes in the logs, a reader that is slow; and who gets stdin.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
unset NO_COLOR CLICOLOR CLICOLOR_FORCE
run() { timeout 60 "$launch" "$@"; }
pty() { timeout 90 python3 "$top_srcdir/tests/cli/terminal.py" "$@" </dev/null; }
esc=$(printf '\033')

# ---- prefixes ----
got=$(run --hosts local:1x2 --prefix time,rank echo hi </dev/null | sed 's/^[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9][0-9][0-9] /T /' | sort | tr '\n' ' ')
is "--prefix time,rank" "$got" "T [0] hi T [1] hi "
is "--prefix host:rank" "$(run --hosts local:2x1 --prefix host:rank echo hi </dev/null | sort | tr '\n' ' ')" "local0:0: hi local1:1: hi "
out=$(run --hosts local:1x2 --prefix rank,host true </dev/null 2>&1); rc=$?
is "a prefix that cannot be" $rc 2
like "a prefix that cannot be: what can" "$out" "none, or rank, host:rank and time"

# ---- unfinished lines ----
cat >prompt.sh <<'X'
if [ $RANK = 0 ]; then printf 'name? '; sleep 1.2; echo yes; else sleep 0.7; echo mine; fi
X
is "a line that another breaks is marked" "$(run --hosts local:1x2 sh prompt.sh </dev/null)" "[0] name? ...
[1] mine
[0] ... yes"
is "a line that nobody breaks goes on" "$(run --hosts local:1x2 sh -c 'test $RANK = 1 || { printf "a "; sleep 0.6; echo b; }' </dev/null)" "[0] a b"
# a rank that writes in blocks which end within a line, held back by a slow reader: no line is given out in parts
cat >blocks.py <<'X'
import os
line = b"%02d " % int(os.environ["RANK"]) + b"x" * 76 + b"\n"
data = line * 20000
for i in range(0, len(data), 4096):
    os.write(1, data[i:i + 4096])
X
run --hosts local:1x4 --prefix none python3 blocks.py </dev/null | python3 -c 'import sys, time
f = sys.stdin.buffer
n = 0
while True:
    part = f.read(200000)
    sys.stdout.buffer.write(part)
    n += 1
    if n % 8 == 0: time.sleep(0.3)
    if not part: break' | sort | uniq -c | awk '{ print $1, $2, length($3) }' >got
is "lines of a throttled rank are whole" "$(cat got)" "20000 00 76
20000 01 76
20000 02 76
20000 03 76"

# ---- folding ----
# a line waits 250 ms for the other ranks, which on a busy machine start further apart: they wait for each other first
cat >meet.sh <<'X'
: >"$2.$RANK"
while [ "$(ls "$2".* | wc -l)" -lt "$WORLD_SIZE" ]; do sleep 0.05; done
eval "$1"
X
is "--fold: all say it" "$(run --hosts local:2x4 --fold sh meet.sh 'echo same' m1 </dev/null)" "[0-7] same"
got=$(run --hosts local:1x4 --fold sh meet.sh 'echo a; test $RANK = 2 && { sleep 0.3; echo two; }; echo b' m2 </dev/null | sort)
is "--fold: one says more" "$got" "[0-1,3] b
[0-3] a
[2] b
[2] two"
is "--fold --prefix none" "$(run --hosts local:1x4 --fold --prefix none echo x </dev/null)" "x"
is "--fold: stdout and stderr are two things" "$(run --hosts local:1x2 --fold sh -c 'echo o; echo e >&2' </dev/null 2>/dev/null)" "[0-1] o"

# ---- colour ----
unlike "no colour in a pipe" "$(run --hosts local:1x2 echo hi </dev/null)" "$esc"
like "--color always" "$(run --hosts local:1x2 --color always echo hi </dev/null)" "${esc}[33m[1]${esc}[0m hi"
like "CLICOLOR_FORCE" "$(CLICOLOR_FORCE=1 run --hosts local:1x2 echo hi </dev/null)" "$esc[3"
like "colour on a terminal" "$(pty 0 "$launch" --hosts local:1x2 echo hi)" "${esc}[33m[1]${esc}[0m hi"
unlike "NO_COLOR on a terminal" "$(NO_COLOR=1 pty 0 "$launch" --hosts local:1x2 echo hi)" "$esc[3"
unlike "--color never on a terminal" "$(pty 0 "$launch" --hosts local:1x2 --color never echo hi)" "$esc[3"

# ---- progress bars ----
cat >bar.py <<'X'
import os, sys, time
r = os.environ["RANK"]
for i in range(0, 101, 4):
    sys.stdout.write("\r%s%3d%%|%s" % ("x" * 0, i, "#" * (i // 10)))
    sys.stdout.flush()
    if r == "1" and i == 48:
        sys.stderr.write("a line of rank 1\n")
    time.sleep(0.1)
sys.stdout.write("\n")
X
run --hosts local:1x2 python3 -u bar.py </dev/null >out 2>&1
is "bars in a pipe: each line is one state of one rank" "$(grep -cv '^\[[01]\] *[0-9]*%|#*$' out)" 1
is "bars in a pipe: the other line is whole" "$(grep -c '^\[1\] a line of rank 1$' out)" 1
is "bars in a pipe: both ends" "$(grep -c '^\[[01]\] 100%|##########$' out)" 2
ok "bars in a pipe: not every state" test "$(wc -l <out)" -le 15
pty 0 "$launch" --hosts local:1x2 --color never --prefix rank python3 -u bar.py >out
python3 - >got <<'X'
# a terminal: carriage return, erase to the end of the line, newline
screen, line, states, col = [], "", set(), 0
data = open("out", "rb").read().decode()
i = 0
while i < len(data):
    if data.startswith("\x1b[K", i):
        line = line[:col]
        i += 3
        continue
    c = data[i]
    if c == "\r":
        states.add(line.strip())
        col = 0
    elif c == "\n":
        screen.append(line)
        line, col = "", 0
    else:
        line = line[:col] + c + line[col + 1:]
        col += 1
    i += 1
import re
bad = [s for s in screen if s.strip() and not re.fullmatch(r"\[[01]\] (100%\|##########|a line of rank 1)|status 0", s)]
live = {s for s in states if re.fullmatch(r"\[0\] +\d+%\|#*", s)}
print(len(bad), screen.count("[0] 100%|##########"), screen.count("[1] 100%|##########"), len(live) > 5)
for b in bad:
    print(repr(b))
X
is "bars on a terminal: one live line, nothing torn, both ends stay" "$(cat got)" "0 1 1 True"
is "a lone program's bar is its own" "$(run --hosts local:1x1 printf '\r1%%\r2%%\n' </dev/null | od -c)" "$(printf '\r1%%\r2%%\n' | od -c)"

# ---- bytes ----
python3 -c 'import os, sys; sys.stdout.buffer.write(os.urandom(300000) + bytes(range(256)) + b"\r\n\0\n\x1b[A")' >bytes
run --hosts local:1x2 --enable-each-rank-log logs cat "$here/bytes" </dev/null >/dev/null 2>&1
ok "a log holds every byte as it came" sh -c 'cmp bytes logs/*rank0.log && cmp bytes logs/*rank1.log'
is "a lone program's bytes" "$(run --hosts local:1x1 cat bytes </dev/null | md5sum)" "$(md5sum <bytes)"

# ---- a slow reader: the ranks wait, the front end's memory does not grow ----
cat >slow.py <<'X'
import os, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "--hosts", "sim:64x8", "lines", "100000"], stdout=subprocess.PIPE,
                     stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.read(p.stdout.fileno(), 1)
inner = int(subprocess.check_output(["pgrep", "-P", str(p.pid)]).split()[0])


def rss():
    return [int(l.split()[1]) for l in open("/proc/%d/status" % inner) if l.startswith("VmRSS")][0]


flat = False
for i in range(12): # what credit allows comes in the time that a busy machine needs for it; then nothing more does
    before = rss()
    time.sleep(2)
    flat = rss() < before + 1024
    if flat: break
print("flat" if flat else "grew", "small" if before < 100000 else "%d kB" % before)
p.send_signal(2)
p.stdout.read()
p.wait()
X
is "512 ranks against a reader that stands still" "$(timeout 60 python3 slow.py "$launch")" "flat small"

# empty lines, of which long prefixes make thirty times as much
cat >empty.py <<'X'
import os, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "--hosts", "local:4x4", "--prefix", "time,host:rank", "sh", "-c", "yes ''"],
                     stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.read(p.stdout.fileno(), 1)
time.sleep(3)
inner = int(subprocess.check_output(["pgrep", "-P", str(p.pid)]).split()[0])
rss = [int(l.split()[1]) for l in open("/proc/%d/status" % inner) if l.startswith("VmRSS")][0]
p.send_signal(2)
lines = p.stdout.read().split(b"\n")
print("small" if rss < 60000 else "%d kB" % rss, p.wait(), {l[12:19] for l in lines[1:-2]} == {b" local%d" % i for i in range(4)})
X
is "empty lines against a reader that stands still" "$(timeout 60 python3 empty.py "$launch")" "small 130 True"

# ---- stdin ----
is "--stdin all" "$(printf 'one\ntwo\n' | run --hosts local:2x2 --stdin all --fold cat)" "[0-3] one
[0-3] two"
is "--stdin none" "$(echo x | run --hosts local:2x1 --stdin none cat)" ""
python3 -c 'import sys; sys.stdout.write("line\n" * 400000)' >big
cat >readers.sh <<'X'
case $RANK in 1) sleep 0.3 ;; 2) exec true ;; 3) exec <&-; sleep 0.5; exit ;; esac
md5sum
X
is "--stdin all: a slow one, one that ends, one that closes it" "$(run --hosts local:2x2 --stdin all --fold sh readers.sh <big)" "[0-1] $(md5sum <big)"
finish
