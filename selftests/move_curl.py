# SPDX-License-Identifier: BSD-2-Clause
"""
Stock curl downloads a file while its server moves, and gets every octet in one connection.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; probe-http on A and on B
 2. curl --limit-rate 16M over IPv4 and over IPv6, at the same time
 3. every 2 seconds each server connection is moved to the other node, 5 times each
 4. both downloads end: sha256 as computed from the seed, connections counted by curl and on the
    wire, moves counted on the nodes' wires
"""
import hashlib
import json
import subprocess
import time

from fleet import HTTP_PORT, on_fleet
from net import BUILD, VIP, Failure, wait_for
from probe import http_server, percentiles, settle
from wire import ACK, FROM_SERVICE, SYN, Capture, Wires, closes, migrations

MOVES = 5
EVERY = 2.0
RATE = 16 << 20
SIZE = int(RATE * (EVERY * MOVES + 2))


class Download:
    def __init__(self, fleet, family, http):
        self.family = family
        self.seed = 1000 + family
        self.moves = []
        before = {e["unit"] for e in http["a"].events("offered")}
        host = VIP[4] if family == 4 else f"[{VIP[6]}]"
        self.out = f"{fleet.dir}/curl{family}"
        with open(f"{self.out}.stats", "wb") as stats:
            self.curl = fleet.start(
                "c", "curl", "-sS", "--limit-rate", "16M", "-o", self.out, "-w",
                "%{json}", f"http://{host}:{HTTP_PORT}/bytes/{SIZE}?seed={self.seed}",
                log=f"curl{family}.log", stdout=stats)
        self.unit = wait_for("curl's connection to be offered", lambda: [
            e["unit"] for e in http["a"].events("offered") if e["unit"] not in before])[0]

    def finish(self):
        if self.curl.wait(60):
            raise Failure(f"curl over IPv{self.family}: exit {self.curl.returncode}")
        with open(f"{self.out}.stats") as f:
            self.stats = json.load(f)
        got = hashlib.sha256()
        with open(self.out, "rb") as f:
            while chunk := f.read(1 << 20):
                got.update(chunk)
        self.sha256_ok = got.hexdigest() == expected(self.seed)


def expected(seed):
    """sha256 of the file as its definition gives it, with no network in between."""
    h = hashlib.sha256()
    with subprocess.Popen([f"{BUILD}/probe-http", "--print", str(SIZE), str(seed)],
                          stdout=subprocess.PIPE) as p:
        while chunk := p.stdout.read(1 << 20):
            h.update(chunk)
    return h.hexdigest()


def move_all(fleet, downloads):
    origin, to = "a", "b"
    for _ in range(MOVES):
        began = time.monotonic()
        for d in downloads:
            d.moves.append(fleet.move(d.unit, origin, to))
        origin, to = to, origin
        settle(max(0.0, EVERY - (time.monotonic() - began)))


def test(fleet):
    fleet.up()
    wires = Wires(fleet)
    handshakes = Capture(fleet, "c", "eth0", "(ip and tcp and tcp[13] & 2 != 0) or "
                         "(ip6 and ip6[6] = 6 and ip6[53] & 2 != 0)")
    client_wire = Capture(fleet, "c", "eth0", FROM_SERVICE)
    http = {host: http_server(fleet, host) for host in ("a", "b")}
    downloads = [Download(fleet, family, http) for family in (4, 6)]
    move_all(fleet, downloads)
    moved = time.time_ns()
    for d in downloads:
        d.finish()
    wires.stop()
    runs = wires.runs()
    handshakes = list(handshakes.stop().packets())
    syns = [sum(1 for p in handshakes if p.flags & (SYN | ACK) == SYN and len(p.src) == size)
            for size in (4, 16)]
    fin, rst = closes(client_wire.stop(), moved)
    for d in downloads:
        d.migrated = migrations(runs.get((6, d.stats["local_port"]), []), "a", len(d.moves))
    moves = [m for d in downloads for m in d.moves]
    result = {
        "moves": len(moves), "migrated": sum(d.migrated for d in downloads),
        "sha256_ok": all(d.sha256_ok for d in downloads),
        "connects": max(*(d.stats["num_connects"] for d in downloads), *syns),
        "bytes": sum(d.stats["size_download"] for d in downloads), "fin": fin, "rst": rst,
        "queued_bytes": {key: sum(m["queued_bytes"][key] for m in moves)
                         for key in ("recv", "sent", "unsent")},
        "freeze_us": percentiles([m["freeze_us"] for m in moves]),
    }
    result["ok"] = (result["migrated"] == result["moves"] == 2 * MOVES and result["sha256_ok"] and
                    result["connects"] == 1 and result["bytes"] == 2 * SIZE and not fin and not rst
                    and result["queued_bytes"]["unsent"] > 0)
    return result


def main():
    return on_fleet(test)
