# SPDX-License-Identifier: BSD-2-Clause
"""
An agent is killed in a move, and the application whose sockets it needs to finish is killed before
the next agent comes: that one finds out from the kernel, and what can live lives on.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; an application on A and on B
 2. for each row: a client's unit on A, a move to B, in which an agent is killed at the place that
    the row names, then that node's application, then a new agent and a new application:
      origin, fenced only            the sockets close as a dead server's do: the client sees it
      origin, frozen or prepared     nowhere: GONE, and the destination hears "no" and lets go
      origin, flipped                the unit lives on B
      destination, not yet prepared  the unit lives on A
      destination, from PREPARED on  nowhere, as the sockets are gone: the origin hears of it
 3. where it must live on, the stream goes on without a loss; where it must not, no node serves it
 4. in the end no node holds a unit, a flow or an address of any of them, and the applications that
    were not killed hold no descriptor more than before
"""
from fleet import on_fleet
from net import Failure, wait_for
from probe import Client, server
import os
import signal
import threading

STREAM = ("--rate", "200")
FRESH = 20
ROWS = (("origin fenced", "a", "die-origin=5", "closed"),
        ("origin frozen", "a", "die-origin=6", "nowhere"),
        ("origin prepared", "a", "die-origin=8", "nowhere"),
        ("origin flipped", "a", "die-origin=9", "b"),
        ("destination filling", "b", "die-destination=4", "a"),
        ("destination whole", "b", "die-destination=5", "a"),
        ("destination prepared", "b", "die-destination=6", "nowhere"),
        ("destination opening", "b", "die-destination=8", "nowhere"))


def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def restart_agent(fleet, host, faults=None):
    if host in fleet.agents:
        fleet.kill_agent(host)
    fleet.faults = {host: faults} if faults else {}
    fleet.start_agent(host)
    for h in ("a", "b"):
        wait_for(f"agent {h}: {fleet.log(h)[-300:]}", lambda h=h: fleet.ready(h), 15)


def kill_application(fleet, servers, host):
    fleet.stop(servers[host].process, signal.SIGKILL)


def start_application(fleet, servers, host, n):
    servers[host] = server(fleet, host, *STREAM, name=f"server-{host}-{n}")


def state(fleet, host, unit):
    rows = [u["state"] for u in fleet.units(host) if u["unit"] == unit]
    return rows[0] if rows else "none"


def where(fleet, unit):
    return {h: state(fleet, h, unit) for h in ("a", "b")}


def ended(client):
    return client.process.poll() is not None or client.interim()["reconnects"] > 0


def arrived_at(fleet, unit, expected):
    """Whether the unit is where the row says, and nowhere else."""
    at = where(fleet, unit)
    if expected in ("a", "b"):
        return at[expected] == "local" and at["b" if expected == "a" else "a"] != "local"
    return not any(s in ("local", "fenced", "prepared", "opening") for s in at.values())


def row(fleet, servers, n, name, host, faults, expected):
    restart_agent(fleet, host, faults)
    other = "b" if host == "a" else "a"
    wait_for("applications to be registered", lambda: all(
        servers[h].events("registered") for h in ("a", "b")))
    offers = len(servers["a"].events("offered"))
    client = Client(fleet, 4 if n % 2 else 6, *STREAM, name=f"client-{n}")
    unit = servers["a"].wait("offered", count=offers + 1)[-1]["unit"]
    client.wait_for_more(FRESH)
    before = descriptors(servers[other].process)
    died = fleet.agents[host]
    # once flipped it waits for the new agent
    mover = threading.Thread(target=fleet.move, args=(unit, "a", "b", False))
    mover.start()
    wait_for(f"{name}: {faults}", lambda: died.poll() is not None)
    kill_application(fleet, servers, host)
    restart_agent(fleet, host)
    mover.join()
    start_application(fleet, servers, host, n)
    try:
        wait_for("", lambda: arrived_at(fleet, unit, expected), 20)
    except Failure:
        raise Failure(f"{name}: {expected} was expected: {where(fleet, unit)}, a: "
                      f" {fleet.log('a')[-800:]} b: {fleet.log('b')[-800:]}")
    result = {"row": name, "at": expected, "lost": 0}
    if expected in ("a", "b"):
        client.wait_for_more(FRESH)
        report = client.finish()
        result["lost"] = report["lost"] + report["duplicated"] + (not report["tcp_ok"])
    else:
        if expected == "closed":
            wait_for(f"{name}: the client to see it", lambda: ended(client), 20)
        fleet.stop(client.process, signal.SIGKILL)
    wait_for(f"{name}: the other application to let go",
             lambda: descriptors(servers[other].process) <= before, 20)
    return result


def empty(fleet):
    left = {h: len(fleet.units(h)) + fleet.ferry(h, "flow", "list")["total"]
            for h in ("a", "b", "i")}
    left["addresses"] = fleet.at("b", "ip", "addr", "show", "dev", "lo").stdout.count("global")
    return not any(left.values())


def test(fleet):
    fleet.up()
    servers = {}
    for host in ("a", "b"):
        start_application(fleet, servers, host, "first")
    rows = [row(fleet, servers, n, *r) for n, r in enumerate(ROWS)]
    for s in servers.values():
        fleet.stop(s.process)
    fleet.at("a", "ss", "-K", "state", "time-wait")  # else it were a minute
    wait_for("every node to be empty", lambda: empty(fleet), 30)
    return {"rows": len(rows), "lived": sum(r["at"] in ("a", "b") for r in rows),
            "nowhere": sum(r["at"] == "nowhere" for r in rows),
            "lost": sum(r["lost"] for r in rows),
            "ok": len(rows) == len(ROWS) and not any(r["lost"] for r in rows)}


def main():
    return on_fleet(test)
