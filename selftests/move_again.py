# SPDX-License-Identifier: BSD-2-Clause
"""
What comes up behind the fence after a socket was extracted is carried, too: the unit is extracted
and prepared once more, on the same lent sockets, and nothing is doubled.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three, those of A and B with the fault point
    that lets every first look before the flip find that something arrived
 2. streams both ways: TCP over IPv4, TCP over IPv6, and TCP + TCP + UDP of either kind
 3. each unit moves A-B-A-B; every answer says that it was extracted twice
 4. the clients end politely: every message of both directions is accounted for
"""
from fleet import on_fleet
from move_chain import FRESH, RMEM, ROWS, SERVER, Row
from probe import percentiles, server
from wire import Wires, migrations

LEGS = 3


def test(fleet):
    fleet.up()
    fleet.at("c", "sysctl", "-qw", f"net.ipv4.tcp_rmem={RMEM}")
    wires = Wires(fleet)
    servers = {host: server(fleet, host, *SERVER) for host in ("a", "b")}
    rows = [Row(fleet, name, family, argv, servers) for name, family, argv in ROWS]
    origin, to = "a", "b"
    for _ in range(LEGS):
        for row in rows:
            row.moves.append(fleet.move(row.unit, origin, to))
            row.client.wait_for_more(FRESH)
        origin, to = to, origin
    for row in rows:
        row.report = row.client.finish()
    wires.stop()
    runs = wires.runs()
    moves = [m for row in rows for m in row.moves]
    result = {"moves": len(moves),
              "migrated": sum(min(migrations(runs.get(port, []), "a", LEGS)
                                  for port in row.ports()) for row in rows),
              "extracted_twice": sum(m["extracted"] == 2 for m in moves),
              "queued_bytes": {key: sum(m["queued_bytes"][key] for m in moves)
                               for key in ("recv", "sent", "unsent")},
              "messages": sum(row.report["received"]["messages"] for row in rows),
              "freeze_us": percentiles([m["freeze_us"] for m in moves]),
              **{key: sum(row.report[key] for row in rows)
                 for key in ("lost", "duplicated", "reordered", "crc_errors", "reconnects")}}
    result["ok"] = (result["migrated"] == result["moves"] == result["extracted_twice"] ==
                    LEGS * len(ROWS) and any(result["queued_bytes"].values()) and
                    all(row.report["tcp_ok"] for row in rows))
    return result


def main():
    return on_fleet(test, faults={"a": "arrived-once", "b": "arrived-once"})
