#!/bin/sh
# Launchers exec and openssh: how the agent gets to a place, by whatever command leads there.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
run() { timeout 60 "$launch" --prefix none "$@" </dev/null 2>&1; }
cache() { ls "$1/.cache/ds-launch"; }

# as `kubectl exec -i POD -- WORD...`: no shell, another home, another environment
cat >"$here/into" <<'END'
#!/bin/sh
[ "$2" = -- ] || exit 9
cd "$1" || exit 8
shift 2
exec env -i PATH="$PATH" HOME="$PWD" "$@"
END
chmod +x "$here/into"
mkdir a b c d
to="$here/into %h --"
each='echo $RANK in ${HOME##*/}'

out=$(run --hosts 'a,b,c,d' --launcher exec --launcher-args "$to" sh -c "$each" | sort | tr '\n' ' ')
is "words are put behind the template, the agent is copied" "$out" "0 in a 1 in b 2 in c 3 in d "
is "one agent each" "$(cache a | wc -l) $(cache d | wc -l)" "1 1"
before=$(stat -c '%i %Y' a/.cache/ds-launch/*)
run --hosts a --launcher exec --launcher-args "$to" true >/dev/null
is "it is used again" "$(stat -c '%i %Y' a/.cache/ds-launch/*)" "$before"
printf '#!/bin/sh\ntouch %s/bad\n' "$here" >"$here/a/.cache/ds-launch/$(cache a)"
is "what was changed there is not run but copied anew" "$(run --hosts a --launcher exec --launcher-args "$to" sh -c "$each"; ls "$here/bad" 2>/dev/null)" "0 in a"
: >"b/.cache/ds-launch/$(cache b)"
is "nor what was cut short" "$(run --hosts b --launcher exec --launcher-args "$to" sh -c "$each")" "0 in b"

rm -r ./*/.cache
pids=
for i in 1 2 3 4; do
    run --hosts 'a,b' --launcher exec --launcher-args "$to" true >"out$i" &
    pids="$pids $!"
done
bad=0
for p in $pids; do wait "$p" || bad=1; done
is "four jobs at once copy the agent" "$bad $(cat out?) $(cache a | wc -l) $(cache b | wc -l)" "0  1 1"

is "%c is one word for a shell over there" "$(run --hosts a --launcher exec --launcher-args 'env HOME='"$here"'/%h sh -c %c' sh -c "$each")" "0 in a"
is "a status that gets lost on the way" "$(rm -r a/.cache; run --hosts a --launcher exec --launcher-args "f() { $here/into %h -- \"\$@\" || exit 1; }; f" sh -c "$each")" "0 in a"
like "a place without a shell" "$(run --hosts a --launcher exec --launcher-args 'f() { echo "exec: $1: not found" >&2; exit 127; }; f' true)" "ended with status 127 before it answered; it said: exec: /bin/sh: not found"
like "a place that cannot keep the agent" "$(run --hosts a --launcher exec --launcher-args 'ulimit -f 100; env HOME='"$here"'/c' true)" "a: copying the agent there: the command for a ended with status 4"
is "nothing is left of that" "$(cache c 2>/dev/null | wc -l)" 0
like "an unknown % is told" "$(run --hosts a --launcher exec --launcher-args 'x %z' true)" "%z is none of %h, %n, %c, %%"
is "a hundred places at once" "$(run --hosts 'a[1-100]' --launcher exec --launcher-args 'f() { HOME='"$here"'/a "$@"; }; f' sh -c 'echo here' | grep -c '^here')" 100

# the system's ssh is another program here, that runs the last word as the login shell over there would
mkdir bin
cat >bin/ssh <<END
#!/bin/sh
echo "\$@" >>"$here/ssh.args"
if [ -e "$here/refuse" ]; then
    rm "$here/refuse"
    echo "ssh: connect to host a port 22: Connection refused" >&2
    exit 255
fi
[ ! -e "$here/deny" ] || { echo "me@a: Permission denied (publickey,hostbased)." >&2; exit 255; }
for word; do :; done
HOME=$here/a exec sh -c "\$word"
END
chmod +x bin/ssh
PATH=$here/bin:$PATH
echo 'me@a slots=1 port=2200' >hosts
: >refuse
is "openssh, refused at first" "$(run -H hosts --launcher openssh sh -c "$each")" "0 in a"
like "in batch mode, as who, where" "$(tail -1 ssh.args)" "-p 2200 -l me -- a exec /bin/sh -c"
like "never an unknown key, never a question" "$(tail -1 ssh.args)" "BatchMode=yes -o StrictHostKeyChecking=yes"
: >deny; : >ssh.args
like "openssh, permission denied: said" "$(run -H hosts --launcher openssh true)" "Permission denied (publickey,hostbased)"
is "and not tried again" "$(grep -c BatchMode ssh.args)" 1

# An agent that breaks the rules is lost, by name; it is no bug of ours. Behind its greeting stands what argv[1] says.
cat >rude.py <<'X'
import os, struct, subprocess, sys
agent = subprocess.Popen([sys.argv[2]], stdin=0, stdout=subprocess.PIPE)
data = b""
while len(data) < 19 or len(data) < 19 + struct.unpack("<I", data[15:19])[0]:
    data += os.read(agent.stdout.fileno(), 1)
assert data.startswith(b"\r\n\1DS-AGENT-1\2\n")
kind, body = {"exit": (4, struct.pack("<IiidB", 0, 0, 0, 0, 0)), "started": (2, struct.pack("<II", 0, 1)),
              "checked": (12, struct.pack("<II", 0, 0)), "put": (9, struct.pack("<I", 1 << 31) + b"k")}[sys.argv[1]]
os.write(1, data + struct.pack("<IBI", 5 + len(body), kind, 1) + body)
while data:
    data = os.read(agent.stdout.fileno(), 65536)
    os.write(1, data)
X
for word in exit started checked put; do
    out=$(run --hosts n1,n2 --launcher exec \
        --launcher-args "test %h = n2 || exec python3 rude.py $word $top_builddir/ds-agent; sleep 0.5; exec $top_builddir/ds-agent" true 2>&1); rc=$?
    is "'$word' out of turn: its host is lost, and that is all" "$rc $(echo "$out" | sed -n 's/^\(ds-launch: n1: its agent \).*/\1/p; t; s/^/also: /p')" "1 ds-launch: n1: its agent "
done
finish
