# SPDX-License-Identifier: BSD-2-Clause
"""
A live connection moves A-B-A-...-B under a two-way stream, and the client notices nothing but a
pause.

Steps:
 1. client, ingress, node A, node B; a real ferryd in the last three; probe-server on A and on B
 2. stock probe-clients stream both ways: one TCP over IPv4, one over IPv6, and units of
    TCP + TCP + UDP (bound port over IPv4, connected over IPv6); both sides pause reading, so that
    queues are not empty
 3. each unit is moved 11 times, ending on B; after each move its packets must be seen leaving the
    other node's wire
 4. node A's agent is killed, A's namespace deleted; every stream goes on
 5. the clients end politely: every message of both directions is accounted for
"""
from fleet import on_fleet
from net import Failure, wait_for
from probe import Client, percentiles, server, settle, stalls
from wire import FLAGGED, Capture, Wires, closes, counters, migrations
import time

LEGS = 11
# the single connections' clients pause for longer than their window lasts, so that the server's
# queue fills, its unsent part too
ROWS = (("v4", 4, ("--tcp", "1", "--rate", "200", "--pause-read", "150/250")),
        ("v6", 6, ("--tcp", "1", "--rate", "200", "--pause-read", "150/250")),
        ("set4", 4, ("--tcp", "2", "--rate", "200", "--pause-read", "30/170", "--udp",
                     "unconnected", "--udp-rate", "200")),
        ("set6", 6, ("--tcp", "2", "--rate", "200", "--pause-read", "30/170", "--udp",
                     "connected", "--udp-rate", "200")))
RMEM = "4096 32768 65536"  # of the client's host
FRESH = 60  # messages: more than its receive buffer holds
SERVER = ("--rate", "500", "--pause-read", "30/170")


class Row:
    """One unit and the client that streams through it."""

    def __init__(self, fleet, name, family, argv, servers):
        self.name = name
        before = {e["unit"] for e in servers["a"].events("offered")}
        self.client = Client(fleet, family, *argv, name=name)
        offered = wait_for(f"the unit of {name}", lambda: [
            e["unit"] for e in servers["a"].events("offered") if e["unit"] not in before])
        self.unit = offered[0]
        self.moves = []

    def ports(self):
        return {(6, int(c["local"].rsplit(":", 1)[1])) for c in self.report["connections"]}


def leg(fleet, row, origin, to):
    row.moves.append(fleet.move(row.unit, origin, to))
    row.client.wait_for_more(FRESH)


def figures(rows, wires):
    runs = wires.runs()
    moves = [m for row in rows for m in row.moves]
    for row in rows:
        row.migrated = min(migrations(runs.get(port, []), "a", len(row.moves))
                           for port in row.ports())
    total = {key: sum(row.report[key] for row in rows) for key in
             ("lost", "duplicated", "reordered", "crc_errors", "reconnects")}
    total["messages"] = sum(row.report["sent"]["messages"] + row.report["received"]["messages"]
                            for row in rows)
    return {
        "moves": len(moves), "migrated": sum(row.migrated for row in rows), **total,
        "queued_bytes": {key: sum(m["queued_bytes"][key] for m in moves)
                         for key in ("recv", "sent", "unsent")},
        "freeze_us": percentiles([m["freeze_us"] for m in moves]),
        "stall_ms": percentiles([s for row in rows for s in stalls(row.report, row.moves)]),
        "rows": {row.name: {"moves": len(row.moves), "migrated": row.migrated,
                            "ok": row.report["tcp_ok"],
                            "freeze_us": percentiles([m["freeze_us"] for m in row.moves]),
                            "stall_ms": percentiles(stalls(row.report, row.moves))}
                 for row in rows},
    }


def udp_figures(rows, frozen):
    """What is missing of UDP, less what the datapath counted as lost in a freeze."""
    missing = sum(row.report["udp"]["missing_total"] for row in rows)
    sent = sum(row.report["udp"]["sent"] for row in rows)
    return {"udp_sent": sent, "lost_in_freeze": min(missing, frozen),
            "udp_lost": max(0, missing - frozen)}


def delete_node_a(fleet, rows, servers):
    """The origin's host ends; what moved away does not care."""
    fleet.kill_agent("a")
    fleet.stop(servers["a"].process, seconds=5)
    fleet.delete("a")
    for row in rows:
        row.client.wait_for_more(FRESH)


def test(fleet):
    fleet.up()
    fleet.at("c", "sysctl", "-qw", f"net.ipv4.tcp_rmem={RMEM}")
    wires = Wires(fleet)
    client_wire = Capture(fleet, "c", "eth0", FLAGGED)
    servers = {host: server(fleet, host, *SERVER) for host in ("a", "b")}
    rows = [Row(fleet, name, family, argv, servers) for name, family, argv in ROWS]
    settle(0.5)
    origin, to = "a", "b"
    for _ in range(LEGS):
        for row in rows:
            leg(fleet, row, origin, to)
        settle(0.3)
        origin, to = to, origin
    frozen = sum(fleet.counter(host, "lost-in-freeze-udp") for host in ("a", "b", "i"))
    kernel = [counters(fleet, host) for host in ("a", "b", "c")]
    wires.captures["a"].stop(running=True)
    delete_node_a(fleet, rows, servers)
    stopped = time.time_ns()
    for row in rows:
        row.report = row.client.finish()
    wires.stop()
    fin, rst = closes(client_wire.stop(), stopped)
    result = figures(rows, wires)
    result.update(udp_figures(rows, frozen))
    result.update(fin=fin, rst=rst, retransmits=sum(k["retransmits"] for k in kernel),
                  rto=sum(k["rto"] for k in kernel),
                  no_route=sum(k["no_route"] for k in kernel[:2]))
    zeros = ("lost", "duplicated", "reordered", "crc_errors", "reconnects", "fin", "rst",
             "udp_lost", "no_route")
    result["ok"] = (result["migrated"] == result["moves"] >= 22 and
                    all(result[key] == 0 for key in zeros) and result["messages"] > 0 and
                    all(row.report["tcp_ok"] for row in rows) and
                    all(result["queued_bytes"].values()) and result["udp_sent"] > 0)
    return result


def main():
    return on_fleet(test)
