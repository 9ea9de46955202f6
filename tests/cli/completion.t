#!/bin/bash
# bash completion: what it offers is what the option table has, wherever one stands on the line.
. "$top_srcdir/tests/cli/taplib.sh"
cd "$here" || exit 99
compopt() { :; } # there is no line being edited here
. "$top_srcdir/doc/completion/ds-launch"

# complete_words WORD...: what is offered for the last one
complete_words() {
    COMP_WORDS=("$launch" "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    _ds_launch
    offered=" $(printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ')"
}
table=$("$launch" --help | sed -n 's/^  \(-., \)\{0,1\}\(--[a-z-]*\).*/\2/p' | sort | tr '\n' ' ')

complete_words --
is "every option of the table is offered, and nothing else" "$offered" " $table"
complete_words --num_g
is "underscores as they are typed" "$offered" " --num_gpus "
complete_words --num-nodes 2 --hostf
is "behind another option and its value" "$offered" " --hostfile "
complete_words --num-nodes = 2 --hostf
is "behind an option with its value joined by =" "$offered" " --hostfile "
complete_words --launcher ''
is "the words an option takes" "$offered" " exec local openssh ssh "
complete_words --nproc_per_node = g
is "the words behind =" "$offered" " gpu "
: >hosts.txt
mkdir logs
complete_words -H hos
is "a file" "$offered" " hosts.txt "
complete_words --log-dir l
is "a folder" "$offered" " logs "
complete_words p
like "subcommands" "$offered" " plan "
for s in hosts info exec kill ps data ckpt sample lr; do
    complete_words "$s"
    like "subcommand $s" "$offered" " $s "
done
complete_words plan --bind-to s
is "options behind a subcommand" "$offered" " socket "
complete_words -q train.py --host
is "behind the program its own words only" "${offered// /}" ""
complete_words -q train.py hosts
is "behind the program: files" "$offered" " hosts.txt "
complete_words -- --host
unlike "-- ends the options" "$offered" " --"
finish
