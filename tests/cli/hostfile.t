#!/bin/sh
# A bad hostfile is told whole, with places and remedies, before anything starts.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99

printf 'w1 slots = 4\nw2 slot=1\nw3 slots=4.5\nW1\nw1:2\n[::g]\n' >bad
out=$($launch -H bad touch started 2>&1)
is "status of a bad hostfile" $? 2
for place in bad:1:9 bad:2:4 bad:3:10 bad:5:1 bad:6:1; do
    like "an error at $place" "$out" "$place: "
done
is "one line for each error" "$(printf '%s\n' "$out" | grep -c 'bad:[0-9]*:[0-9]*: ')" 5
ok "nothing was started" test ! -e started

: >empty
for file in empty . missing; do
    out=$($launch -H "$file" touch started 2>&1)
    is "status of the hostfile '$file'" $? 2
    like "the sentence names '$file'" "$out" "$file"
done
head -c 4096 /dev/urandom >noise
$launch -H noise hosts >said 2>&1
is "status of random bytes" $? 2
ok "random bytes are told in bounded text" test "$(wc -c <said)" -lt 2048
printf 'n1 slots=2\n' >dos && sed 's/$/\r/' dos >crlf
is "CR LF" "$($launch hosts -H crlf --json)" "$($launch hosts -H dos --json)"
is "a pipe as hostfile" "$(printf 'p[1-3]\n' | $launch hosts -H /dev/stdin --list)" "p[1-3]"

like "an unknown host in a filter" "$($launch -H dos -i n2 hosts 2>&1)" "no host n2"
like "a slot that is not there" "$($launch -H dos -i n1:2 hosts 2>&1)" "no slot 2"
is "nothing is left" "$($launch -H dos -e n1 hosts >/dev/null 2>&1; echo $?)" 2
is "the example is read" "$($launch hosts -H "$top_srcdir/templates/hostfile.example" --list)" \
    "node[01-04],rack[1-2]n[01-02],[fd00::17]"
finish
