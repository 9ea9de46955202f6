#!/bin/sh
# ds-launch exec: one command on every host of a list, each for itself.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
mark=m$$
run() { DS_TEST_MARK=$mark timeout 60 "$launch" exec "$@" </dev/null; }
rule=----------------

is "the same from all hosts stands once" "$(run --hosts local:3x2 -- echo hi 'a  b')" "$rule
local[0-2] (3)
$rule
hi a  b"
is "one host's output is untouched" "$(run --hosts local:1 printf 'a\nb' | od -c)" "$(printf 'a\nb' | od -c)"
is "one word with blanks is a line for sh" "$(run --hosts local:1 'echo a; echo $((1+1))' | tr '\n' ' ')" "a 2 "
is "several words arrive byte for byte" "$(run --hosts local:1 -- printf '%s|' 'a $HOME' '' '*' --hosts)" 'a $HOME||*|--hosts|'
is "--live: each line with its host" "$(run --hosts local:2x1 --live 'echo a; printf b' | sort | tr '\n' ' ')" "local0: a local0: b local1: a local1: b "
is "--export" "$(A='x y' run --hosts local:1 --export A 'echo "$A"')" "x y"

# hosts differ: %h of the template tells the agent's side who it is
differ="H=%h exec $top_builddir/ds-agent"
run --hosts 'n[1-4]' --launcher exec --launcher-args "$differ" 'case $H in n1) exit 3;; n2) exit 7;; n3) kill -9 $$;; esac; echo fine' >out 2>err
is "the worst exit code" $? 137
is "who did well" "$(cat out)" "$rule
n4
$rule
fine"
is "who ended how" "$(sort err | tr '\n' '/')" "ds-launch: n1: ended with code 3/ds-launch: n2: ended with code 7/ds-launch: n3: killed by signal 9 (Killed)/"
run --hosts 'n[1-3]' --launcher exec --launcher-args "test %h != n2 || exit 255; $differ" 'echo $H' >out 2>err
is "a host that cannot be reached: 255" $? 255
is "the others are not stopped by it" "$(grep -c '^n[13]$' out)" 4
is "it is named" "$(grep -c '^ds-launch: n2: ' err)" 1
run --hosts 'n[1-3]' --launcher exec --launcher-args "test %h != n2 || exec sleep 60; $differ" --connect-timeout 1s true >out 2>err
is "a host that does not answer: 255" $? 255
like "it is named, too" "$(cat err)" "n2: no answer within 1.0 s"
run --hosts 'n[1-3]' --launcher exec --launcher-args "$differ" --timeout 1s --grace 200ms 'test $H = n1 || exit 0; trap "" TERM; while :; do sleep 0.1; done' >out 2>err
is "--timeout: 124" $? 124
is "only who was late is named" "$(cat err)" "ds-launch: n1: ended after the time limit"
cat >rude.sh <<'E2' # an agent that begins with FAIL, whose text is the host's name and no more
printf '\r\n\001DS-AGENT-1\002\n\023\0\0\0\007\001\0\0\0\0\0\0\0\120\0\0\0\002\0\0\0n1'
exec cat >/dev/null
E2
run --hosts n1 --launcher exec --launcher-args "sh $here/rude.sh ds-agent" true 2>err
is "an agent that breaks the rules is lost, and named" "$?:$(cat err)" "255:ds-launch: n1: its agent does not greet first"
run --hosts local:2x1 no-such-program-here 2>err
is "a program that is not there: 127" "$?:$(grep -c 'local\[0-1\]: the program no-such-program-here' err)" "127:1"
run --hosts local:1 2>err
is "no command" "$?:$(grep -c 'give a command' err)" "2:1"

run --hosts local:2x1 'seq 300000' >out
is "much output arrives whole" "$(sed 1,3d out | md5sum)" "$(seq 300000 | md5sum)"
is "and live" "$(run --hosts local:2x1 --live 'seq 300000' | grep ^local1 | cut -d' ' -f2 | md5sum)" "$(seq 300000 | md5sum)"
run --hosts local:2x1 --live yes | head -2 >/dev/null
ok "a reader that leaves ends it" wait_for 20 nobody $mark
run --hosts local:2x1 'setsid sleep 300 & setsid setsid sleep 300 & echo $!' >out
ok "what it left behind is ended" wait_for 10 nobody $mark

DS_TEST_MARK=$mark python3 -c 'import os,signal,sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$launch" exec --hosts local:2x1 --grace 30s 'trap "" TERM INT; touch up.$$; while :; do sleep 0.1; done' </dev/null >out 2>err &
pid=$!
two() { test "$(ls up.* | wc -l)" = 2; }
wait_for 10 two
like "ps shows it" "$("$launch" ps | grep " exec ")" "trap \"\" TERM INT; touch up."
kill -INT $pid
sleep 0.3
kill -INT $pid
wait $pid
is "a second SIGINT kills at once" $? 130
ok "nothing is left" wait_for 10 nobody $mark
finish
