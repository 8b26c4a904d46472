# SPDX-License-Identifier: BSD-2-Clause
"""
An agent that is killed leaves the datapath as it was; a new one adopts what is pinned, and moves go
on.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; streams over IPv4 and IPv6, each
    moved A to B and back, so that every node holds entries
 2. a second agent of node A is refused: the first one holds the lock
 3. the agents of A, B and the ingress are killed; the streams go on by the pinned programs, and the
    commands that only read still work
 4. new agents adopt the pins (same maps, same seed); the applications' library connects to them
    and brings its units back; each unit moves A to B
 5. the ingress's agent is killed once more, the clients end; the ingress has missed that and holds
    its entries, until its next agent hears from the nodes what they know; then no node holds a
    unit or a flow any more
"""
from fleet import on_fleet
from net import run, wait_for
from probe import Client, server
from wire import FLAGGED, Capture, closes
import os
import time

STREAM = ("--rate", "200")
FRESH = 40


def map_ids(fleet):
    """The kernel's numbers of a node's pinned maps: adopted means that they stay."""
    rows = {}
    for host in ("a", "b", "i"):
        root = f"/sys/fs/bpf/ferry/{fleet.name(host)}"
        for name in sorted(os.listdir(root)):
            if not name.startswith("link_"):
                out = run("bpftool", "-j", "map", "show", "pinned", f"{root}/{name}").stdout
                rows[f"{host}/{name}"] = out.split('"id":')[1].split(",")[0]
    return rows


def second_agent_refused(fleet):
    p = fleet.at("a", *fleet.agent_argv("a"), "--node", fleet.name("a"), "--config", fleet.config,
                 "--socket", fleet.socket("x"), check=False)
    return p.returncode == 1 and "locked" in p.stderr


def last_units(servers, count):
    return [e["unit"] for e in servers["a"].wait("offered", count=count)[-2:]]


def nothing_left(fleet):
    left = {host: len(fleet.units(host)) + fleet.ferry(host, "flow", "list")["total"]
            for host in ("a", "b", "i")}
    return left if not any(left.values()) else None


def test(fleet):
    fleet.up()
    wire = Capture(fleet, "c", "eth0", FLAGGED)
    servers = {h: server(fleet, h, *STREAM) for h in ("a", "b")}
    clients = [Client(fleet, family, *STREAM) for family in (4, 6)]
    for unit in last_units(servers, 2):
        fleet.move(unit, "a", "b")
        fleet.move(unit, "b", "a")
    refused = second_agent_refused(fleet)
    before = map_ids(fleet)
    for host in ("a", "b", "i"):
        fleet.kill_agent(host)
    for client in clients:
        client.wait_for_more(FRESH)
    without = fleet.ferry("a", "status", check=False)
    read = len(fleet.units("a", "local"))
    for host in ("a", "b", "i"):
        fleet.start_agent(host)
    for host in ("a", "b", "i"):
        wait_for(f"agent {host}", lambda h=host: fleet.ready(h), 15)
    offers = len(servers["a"].events("offered"))
    units = last_units(servers, offers if offers > 2 else 4)
    wait_for("B's application to be back", lambda: len(servers["b"].events("registered")) > 1)
    moves = [fleet.move(unit, "a", "b") for unit in units]
    for client in clients:
        client.wait_for_more(FRESH)
    fleet.kill_agent("i")
    stopped = time.time_ns()
    reports = [c.finish() for c in clients]
    fin, rst = closes(wire.stop(), stopped)
    for host in ("a", "b"):
        fleet.stop(servers[host].process)
    wait_for("B to be empty", lambda: not fleet.units("b"), 90)
    missed = len(fleet.units("i", "remote"))
    fleet.start_agent("i")
    wait_for("every node to be empty", lambda: nothing_left(fleet), 20)
    result = {"second_refused": refused, "adopted": map_ids(fleet) == before,
              "maps": len(before), "verdict_without": without.get("verdict"),
              "units_read_without": read, "moves": len(moves), "missed": missed, "fin": fin, "rst": rst,
              "messages": sum(r["received"]["messages"] for r in reports),
              "lost": sum(r["lost"] for r in reports),
              "reconnects": sum(r["reconnects"] for r in reports)}
    result["ok"] = (refused and result["adopted"] and result["maps"] >= 30 and read == 2 and
                    str(without.get("verdict")).startswith("DEGRADED") and len(moves) == missed == 2 and
                    not fin and not rst and all(r["tcp_ok"] for r in reports) and
                    not result["lost"] and not result["reconnects"])
    return result


def main():
    return on_fleet(test)
