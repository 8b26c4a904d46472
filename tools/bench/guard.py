#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
make bench-guard: what a guard costs, beside what stands between client and server elsewhere. A JSON
line a row.

 - throughput: nginx, a new connection a request, by wrk: plain, guarded, behind systemd-socket-proxyd,
   behind HAProxy (TCP mode); rounds in turn, medians; ratio to plain in the same round
 - hand-over: tools/bench/handover.c
"""
import json
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "selftests/lib")]
sys.dont_write_bytecode = True

import servers  # noqa: E402
from guard import HOST, LOCAL, PORT, on_guard  # noqa: E402
from net import Failure, run  # noqa: E402

ROUNDS = 5
SECONDS = 3
PROXY, HAPROXY, PLAIN = PORT + 1, PORT + 2, PORT + 3


def bracketed(family):
    return f"[{LOCAL[family]}]" if family == 6 else LOCAL[family]


def rate(g, family, port):
    """Requests a second, each on a connection of its own."""
    out = g.at(HOST, "wrk", "-t1", "-c32", f"-d{SECONDS}s", "-H", "Connection: close",
               f"http://{bracketed(family)}:{port}/", timeout=60).stdout
    if "Socket errors" in out or "Non-2xx" in out:
        raise Failure(f"port {port}: {out}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))


def haproxy(g, at):
    path = os.path.join(g.dir, "bench.cfg")
    with open(path, "w") as f:
        f.write("global\n  nbthread 1\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 30s\n"
                f"  timeout server 30s\nlisten l\n  bind {at}:{HAPROXY}\n  server s {at}:{PLAIN}\n")
    g.start(HOST, "haproxy", "-db", "-f", path)


def throughput(g, family):
    at = bracketed(family)
    g.unguarded(*servers.nginx(g, [LOCAL[family]], PLAIN, workers=1, name="plain"))
    g.guarded(*servers.nginx(g, [LOCAL[family]], PORT, workers=1))
    g.start(HOST, "systemd-socket-activate", "-l", f"{at}:{PROXY}",
            # it takes an address without brackets
            "/lib/systemd/systemd-socket-proxyd", f"{LOCAL[family]}:{PLAIN}")
    haproxy(g, at)
    ways = {"plain": PLAIN, "guarded": PORT, "systemd_socket_proxyd": PROXY, "haproxy_tcp": HAPROXY}
    for port in ways.values():
        g.wait_listening(port)
        rate(g, family, port)
    rows = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, port in ways.items():
            rows[way].append(rate(g, family, port))
    ratios = {way: statistics.median(v / p for v, p in zip(rows[way], rows["plain"]))
              for way in ways}
    for way in ways:
        print(json.dumps({"name": f"requests_{way}_v{family}", "value": round(statistics.median(rows[way])),
                          "unit": "1/s", "ratio": round(ratios[way], 3)}), flush=True)


def main():
    run(os.path.join(ROOT, "tools/deps"), "guard", timeout=600)
    for family in (4, 6):
        on_guard(lambda g, f=family: throughput(g, f))
    for line in subprocess.run([os.path.join(ROOT, "build/bench-handover")], check=True,
                               capture_output=True, text=True).stdout.splitlines():
        print(line)


if __name__ == "__main__":
    main()
