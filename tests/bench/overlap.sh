#!/bin/sh
# Communication behind compute, over a loopback of RATE in a network namespace of its own. As root.
# usage: overlap.sh PROGRAM [RATE [NAP-US]]
program=${1:?usage: overlap.sh PROGRAM [RATE [NAP-US]]} rate=${2:-400mbit} nap=${3:-22000}
exec unshare -n sh -ec '
ip link set lo up
tc qdisc add dev lo root tbf rate "$2" burst 256kb latency 200ms
for stage in 2 3; do "$1" $stage "$3"; done' - "$program" "$rate" "$nap"
