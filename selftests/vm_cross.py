# SPDX-License-Identifier: BSD-2-Clause
"""
A live connection moves from one kernel to another and back, under a two-way stream.

Steps:
 1. client, ingress and a switch in namespaces here; node A is a guest with Debian's 6.1, node B one
    with 6.12, on taps of the switch; a real ferryd in the ingress and in both guests
 2. stock probe-clients stream both ways over IPv4 and IPv6 to a probe-server in A
 3. each moves A-B-A, again and again; each move is seen on the wires of the switch
 4. the clients end politely: every message of both directions is accounted for; the guests' kernel
    logs have no complaint in them
 5. control: the same, but the application in A is killed with the connection at home: the client's
    wire sees its end, so that a zero above is a count

LONG=1: more legs; then the same between each of the two and a namespace here, on this machine's kernel.
"""
import os
import time

from guests import Guests, GuestServer
from net import ROOT, run, wait_for
from probe import Client, percentiles, server
from wire import FLAGGED, Capture, Wires, closes, migrations

PAIRS = ({"a": "6.1", "b": "6.12"}, {"a": "6.1"}, {"b": "6.12"})
LONG = bool(os.environ.get("LONG"))
LEGS = 40 if LONG else 6
FRESH = 40  # messages between two moves
STREAM = ("--rate", "200")


def serve(fleet, host):
    return (GuestServer if host in fleet.guests else server)(fleet, host, *STREAM)


def control(fleet, servers):
    """FIN and RST that the client sees when its server dies."""
    wire, client = Capture(fleet, "c", "eth0", FLAGGED), Client(fleet, 4, *STREAM)
    client.wait_for_more(FRESH)
    if "a" in fleet.guests:
        servers["a"].kill()
    else:
        servers["a"].process.kill()
    wait_for("the client's wire to see an end", lambda: any(closes(wire)), every=0.2)
    seen = sum(closes(wire))
    client.finish()
    wire.stop()
    return seen


def cross(fleet):
    fleet.up()
    wires, wire = Wires(fleet), Capture(fleet, "c", "eth0", FLAGGED)
    servers = {host: serve(fleet, host) for host in ("a", "b")}
    clients, units = [], []
    for family in (4, 6):
        clients.append(Client(fleet, family, *STREAM))
        units.append(servers["a"].wait("offered", count=len(clients))[-1]["unit"])
    moves = []
    for leg in range(LEGS):
        origin, to = ("a", "b") if leg % 2 == 0 else ("b", "a")
        for client, unit in zip(clients, units):
            moves.append(fleet.move(unit, origin, to))
            client.wait_for_more(FRESH)
    stopped = time.time_ns()
    reports = [c.finish() for c in clients]
    wires.stop()
    runs = wires.runs()
    fin, rst = closes(wire.stop(), stopped)
    migrated = [migrations(runs.get((6, int(c["local"].rsplit(":", 1)[1])), []), "a", LEGS)
                for r in reports for c in r["connections"]]
    result = {"moves": len(moves), "migrated": sum(migrated),
              "kernels": {h: fleet.guests[h].sh("uname -r").strip() if h in fleet.guests else
                          os.uname().release for h in ("a", "b")},
              "messages": sum(r["received"]["messages"] + r["sent"]["messages"] for r in reports),
              "mismatches": sum(r[k] for r in reports for k in
                                ("lost", "duplicated", "reordered", "crc_errors", "reconnects")),
              "fin": fin, "rst": rst,
              "freeze_us": percentiles([m["freeze_us"] for m in moves]),
              "stall_ms": percentiles([(to - since) / 1e6 for r in reports
                                       for _, since, to in r["gaps"]]),
              "control_closes": control(fleet, servers), "splats": fleet.splats()}
    result["ok"] = (result["moves"] == result["migrated"] == 2 * LEGS and result["messages"] > 0 and
                    not any(result[k] for k in ("mismatches", "fin", "rst", "splats")) and
                    result["control_closes"] > 0 and all(r["tcp_ok"] for r in reports))
    return result


def on(kernels):
    fleet = Guests(kernels)
    try:
        return cross(fleet)
    finally:
        fleet.close()


def main():
    run(os.path.join(ROOT, "tools/deps"), "vm", timeout=600)
    first, *others = [on(kernels) for kernels in (PAIRS if LONG else PAIRS[:1])]
    return {**first, "ok": first["ok"] and all(o["ok"] for o in others),
            **({"others": others} if LONG else {})}
