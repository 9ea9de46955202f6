#!/bin/sh
# MASTER_PORT is the job's from the start to the end, also while its ranks are not listening yet: two jobs at once and a
# storm of bind(0), in a network of their own with few ports, so that the storm takes every one that can be had.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
if [ "$1" != inside ]; then
    tool="unshare -n"
    $tool true 2>/dev/null || tool="unshare -rn"
    if ! $tool true 2>/dev/null; then
        if [ "$CI" = true ]; then echo "Bail out! unshare -n is needed"; else echo "1..0 # SKIP no network namespace here"; fi
        exit 0
    fi
    $tool "$top_srcdir/tests/cli/ports.t" inside
    exit $?
fi
ip link set lo up
echo 40000 40059 >/proc/sys/net/ipv4/ip_local_port_range

cat >rank.py <<'E2'
import os, socket, sys, time
name, port = sys.argv[1], int(os.environ["MASTER_PORT"])
with open(name + ".tmp", "w") as f: f.write(str(port))
os.rename(name + ".tmp", name)                  # still importing
end = time.time() + 30
while not os.path.exists("go") and time.time() < end: time.sleep(0.05)
for family, host in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind((host, port)); s.listen(8); s.close()
print("listened", name)
E2
cat >storm.py <<'E2'
import socket, sys
held, ports = [], set()
for reuse in (0, 1):                            # with SO_REUSEADDR the kernel gives more away
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")):
        for i in range(2000):
            s = socket.socket(family)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            try: s.bind((host, 0))
            except OSError: s.close(); break
            ports.add(s.getsockname()[1]); held.append(s)
print(*sorted(ports)); sys.stdout.flush(); sys.stdin.read()
E2
$launch --hosts local:1 python3 rank.py a >a.out 2>&1 & a=$!
$launch --hosts local:1 python3 rank.py b >b.out 2>&1 & b=$!
wait_for 20 test -e a && wait_for 20 test -e b
ok "two jobs run" test -e a -a -e b
pa=$(cat a) pb=$(cat b)
ok "each has a port of its own ($pa, $pb)" test "$pa" != "$pb"
mkfifo hold
python3 storm.py <hold >taken 2>storm.err & storm=$!
exec 9>hold
wait_for 30 test -s taken
ok "the storm took what there is" test "$(wc -w <taken)" -ge 50
is "the storm was given neither" "$(tr ' ' '\n' <taken | grep -cx -e "$pa" -e "$pb")" 0
out=$($launch --hosts local:1 touch started 2>&1); rc=$?
like "no port is left: said before a rank starts" "$rc $out" "1 ds-launch: host localhost has no free TCP port for MASTER_PORT"
out=$($launch --hosts local:1 --master_port "$pa" touch started 2>&1); rc=$?
like "the other job's port is refused" "$rc $out" "MASTER_PORT $pa can't be had here: another job"
ok "neither started a rank" test ! -e started
touch go
wait $a; ra=$?
wait $b; rb=$?
is "both ranks could listen at their ports, IPv6 and IPv4" "$ra $rb $(cat a.out b.out | tr '\n' ' ')" "0 0 listened a listened b "
exec 9>&-
wait $storm
rm -f go
out=$($launch --hosts local:1 --master_port "$pa" sh -c 'echo $MASTER_PORT' 2>&1)
is "the port is free again" "$out" "$pa"
# each start of the ranks has another port, and gives the one before back: there are fewer than starts
echo 40000 40003 >/proc/sys/net/ipv4/ip_local_port_range
$launch --hosts local:1 --max-restarts 6 sh -c 'echo $MASTER_PORT; exit $((TORCHELASTIC_RESTART_COUNT < 6))' >again 2>again.err; rc=$?
echo 40000 40059 >/proc/sys/net/ipv4/ip_local_port_range
is "seven starts with four ports" "$rc $(wc -l <again)" "0 7"
is "two in a row differ" "$(uniq again | wc -l)" 7
python3 -c 'import socket,sys
s = socket.socket(); s.bind(("127.0.0.1", 40001)); s.listen(1); open("listens", "w"); sys.stdin.read()' <hold & l=$!
exec 9>hold
wait_for 20 test -e listens
out=$($launch --hosts local:1 --master_port 40001 true 2>&1); rc=$?
like "a port where something listens is refused" "$rc $out" "2 ds-launch: localhost: MASTER_PORT 40001 can't be had here"
exec 9>&-
wait $l
finish
