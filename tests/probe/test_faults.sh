#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The probe finds each kind of fault, counts it under its own kind and no other, and exits with 1;
# and it finds nothing where there is nothing, which exits with 0. In both directions, on IPv4 and
# on IPv6, over loopback; no privileges. The faults are made by probe-fault, a relay between the
# two, in the 20th message of a direction of one connection; a second connection stays intact.
#
# usage: tests/probe/test_faults.sh [DIRECTORY OF THE BINARIES]

set -u
# ports of its own, where it may have them
if [ "$(id -u)" = 0 ] && [ "${FERRY_NETNS:-}" != own ]; then
	FERRY_NETNS=own exec unshare -n sh -c 'ip link set lo up && exec "$0" "$@"' "$0" "$@"
fi
bin=${1:-build}
dir=$(mktemp -d)
port=$((20000 + $$ % 20000))
failed=0
pids=
trap 'kill $pids 2>/dev/null; rm -rf "$dir"' EXIT

# Waits for a line in a file.
wait_for() {
	n=0
	until grep -qs "$1" "$2"; do
		n=$((n + 1))
		[ "$n" -lt 100 ] || { echo "no $1 in $2"; exit 1; }
		sleep 0.05
	done
}

# The counts of the last report, in one line.
counts() {
	tail -n 1 "$1" | sed -n 's/.*"received":{[^}]*},"lost":\([0-9]*\),"duplicated":\([0-9]*\),'\
'"reordered":\([0-9]*\),"crc_errors":\([0-9]*\),"foreign":\([0-9]*\).*"broken":{"rst":\([0-9]*\),'\
'"fin":\([0-9]*\),"protocol":\([0-9]*\),"timeout":\([0-9]*\)}.*/\1 \2 \3 \4 \5 \6 \7 \8 \9/p'
}

# check ADDR DIRECTION FAULT STATUS "lost duplicated reordered crc foreign rst fin protocol timeout"
check() {
	rm -f "$dir"/* # an earlier "listening" is not this server's
	port=$((port + 2))
	"$bin/probe-server" --listen "$1" --port $port --no-agent >"$dir/server" &
	pids=$!
	wait_for listening "$dir/server"
	"$bin/probe-fault" "$1" $((port + 1)) $port "$2" "$3" 20 >"$dir/fault" &
	pids="$pids $!"
	wait_for listening "$dir/fault"
	"$bin/probe-client" --connect "$1" --port $((port + 1)) --tcp 2 --seconds 1 \
		--timeout 1500 </dev/null >"$dir/client"
	status=$?
	# shellcheck disable=SC2086
	kill $pids
	# shellcheck disable=SC2086
	wait $pids 2>/dev/null
	pids=
	got=$(counts "$dir/client")
	if [ "$status $got" = "$4 $5" ]; then
		echo "ok $1 $2 $3"
	else
		echo "FAILED $1 $2 $3: status and counts $status $got, not $4 $5"
		failed=1
	fi
}

for addr in 127.0.0.1 ::1; do
	for way in c2s s2c; do
		check $addr $way none         0 "0 0 0 0 0 0 0 0 0"
		check $addr $way lose         1 "1 0 0 0 0 0 0 0 0"
		check $addr $way double       1 "0 1 0 0 0 0 0 0 0"
		check $addr $way swap         1 "0 0 1 0 0 0 0 0 0"
		check $addr $way flip-header  1 "0 0 0 1 0 0 0 0 0"
		check $addr $way flip-length  1 "0 0 0 1 0 0 0 0 0"
		check $addr $way flip-payload 1 "0 0 0 1 0 0 0 0 0"
		check $addr $way drop-octet   1 "0 0 0 1 0 0 0 0 0"
		check $addr $way rst          1 "0 0 0 0 0 1 0 0 0"
		check $addr $way fin          1 "0 0 0 0 0 0 1 0 0"
	done
	# The other way is not silent: it shows by the END that never comes.
	check $addr s2c stall 1 "0 0 0 0 0 0 0 0 1"
	check $addr c2s stall 1 "0 0 0 0 0 0 0 0 1"
done
exit $failed
