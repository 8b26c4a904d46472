#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# tools/info fails above its bounds, and only there:
#  1. programs within them, with their figures
#  2. one whose stack is one word above 400 octets, and one within
#  3. one of more than 20,000 verified instructions
#  4. one that the verifier refuses
# Ends with one line of JSON.

set -euo pipefail
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0 cases=0

program() { # name, body
	cat >"$dir/$1.bpf.c" <<-END
		#include <linux/bpf.h>
		#include <bpf/bpf_helpers.h>
		SEC("xdp") int x(struct xdp_md *ctx)
		{
			$2
		}
		char _license[] SEC("license") = "GPL";
	END
	clang -g -O2 -target bpf -mcpu=v3 -I"/usr/include/$(gcc -print-multiarch)" \
		-c "$dir/$1.bpf.c" -o "$dir/$1.bpf.o"
}

# name, 0 or 1, what its output has
expect() {
	local code=0
	tools/info "$dir/$1.bpf.o" >"$dir/out" 2>&1 || code=$?
	cases=$((cases + 1))
	if [[ $code -ne $2 ]] || ! grep -q "$3" "$dir/out"; then
		echo "$1: exit $code, not $2 with '$3':"
		cat "$dir/out"
		failed=$((failed + 1))
	fi
}

stack() {
	echo "volatile __u64 a[$1]; for (int i = 0; i < $1; i++) a[i] = ctx->rx_queue_index;
		return a[$(($1 / 2))] & 1;"
}

program within "$(stack 50)"
program stack "$(stack 51)"
program long 'volatile __u32 a = 0; for (int i = 0; i < 6000; i++) a += ctx->rx_queue_index; return a & 1;'
program refused 'return *(volatile int *)(long)ctx->data;'
expect within 0 '"stack": 400'
expect stack 1 'more than 20,000 instructions or 400 octets'
expect long 1 'more than 20,000 instructions or 400 octets'
expect refused 1 'outside of the packet'
if compgen -G '/sys/fs/bpf/ferry-info-*' >/dev/null; then
	echo "pins are left"
	failed=$((failed + 1))
fi
echo "{\"name\": \"test_info\", \"ok\": $( ((failed)) && echo false || echo true), \"cases\": $cases}"
((failed == 0))
