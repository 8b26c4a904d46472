# SPDX-License-Identifier: BSD-2-Clause
"""
A guard is of a port in a network namespace: it keeps what is queued there, and touches nothing of
the same server's other ports, nor of the same port in another namespace.

Steps, with nginx on three ports, IPv4 and IPv6, in two network namespaces:
 1. in the first it is started by `ferry guard` for two of the ports, in the second without: two
    ports are listed, two addresses each; SO_REUSEPORT is on for these four listeners and for no
    other
 2. all nginx are stopped, clients queue at each of the twelve listeners, SIGKILL: what was queued
    at the two ports is held, all others are reset (the controls)
 3. nginx is started again in the first: all held are answered, of both ports
 4. `off --port` from the second namespace finds nothing (exit 3); from the first it ends one guard
    of two: after the next SIGKILL the clients of this port are reset, those of the other one are
    answered
 5. --pid without a port: all three ports, on both addresses
 6. another agent (--socket) is refused all of them; its program would take the first one's place.
    Under load nobody is refused or reset for that, and the first still guards
"""
import os
import signal
import socket

from clients import Clients, lost
from guard import ANY, HOST, LOCAL, alive, children, listeners, mine, on_guard, stop
from net import wait_for
import servers

OTHER = "h"  # the second namespace
PORTS = (8080, 8081, 8082)
GUARDED = PORTS[:2]
CLIENTS = 10  # at each listener


def reuse(pid):
    """Ports of listeners that have SO_REUSEPORT, one entry a listener."""
    return sorted(s.getsockname()[1] for s in listeners(pid)
                  if s.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))


def argv(g, host):
    return servers.nginx(g, ANY.values(), PORTS, name=f"nginx-{host}")


def listed(g):
    return sorted(r["port"] for r in g.list()["guards"])


def wait_members(g, pid, ports):
    for port in ports:
        g.wait_member(pid, port=port, addresses=2)


def dies_with_queues(g, host, p):
    """Clients by port."""
    g.wait_listening(PORTS[-1], 2, host)
    wait_for("its workers", lambda: len(children(p.pid)) == 2)
    pids = [p.pid, *children(p.pid)]
    for pid in pids:
        stop(pid)
    crowds = {port: [Clients(g.ns(host), LOCAL[f], port, CLIENTS) for f in (4, 6)]
              for port in PORTS}
    for port, pair in crowds.items():
        for c in pair:
            c.wait_sent()
        g.wait_queued(2 * CLIENTS, port, host)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for("nginx to end", lambda: not any(map(alive, pids)))
    g.stop(p)
    return crowds


def ends(crowds, ports):
    """[answered, reset], of these ports."""
    figures = [c.finish() for port in ports for c in crowds[port]]
    return [sum(f[k] for f in figures) for k in ("answered", "resets")]


def second_agent(g, pid):
    """What another agent is answered, and what clients meet meanwhile."""
    load = [Clients(g.ns(HOST), LOCAL[f], PORTS[0], CLIENTS, again=True) for f in (4, 6)]
    first, g.path = g.path, os.path.join(g.dir, "second.sock")
    for c in load:
        c.wait_answered(100)
    code, answer = g.ferry("--pid", pid, check=False)
    wait_for("the other agent to end", lambda: not mine(g.path), 10)
    g.path = first
    for c in load:
        c.wait_answered(200)
    met = sum(lost(c.finish()) for c in load)
    return [code, answer["error"], "another ferry-guard" in answer["text"], met]


def test(g):
    g.host(OTHER)
    r = {}
    p = g.guarded(*argv(g, HOST), port=GUARDED)
    wait_members(g, p.pid, GUARDED)
    q = g.start(OTHER, *argv(g, OTHER))
    g.wait_listening(PORTS[-1], 2, OTHER)
    r["listed"], r["reuse"] = listed(g), [reuse(p.pid), reuse(q.pid)]
    mine, theirs = dies_with_queues(g, HOST, p), dies_with_queues(g, OTHER, q)
    for port in GUARDED:
        g.wait_held(2 * CLIENTS, port)
    r["control"] = [ends(mine, PORTS[2:]), ends(theirs, PORTS)]
    p = g.unguarded(*argv(g, HOST))
    r["guarded"] = ends(mine, GUARDED)
    wait_members(g, p.pid, GUARDED)

    r["from_other"] = g.ferry("off", "--port", GUARDED[0], check=False, host=OTHER)[0]
    r["off"] = g.off("--port", GUARDED[0])["off"]
    r["then_listed"] = listed(g)
    mine = dies_with_queues(g, HOST, p)
    g.wait_held(2 * CLIENTS, GUARDED[1])
    r["one_off"] = ends(mine, (GUARDED[0], PORTS[2]))
    p = g.unguarded(*argv(g, HOST))
    r["still_guarded"] = ends(mine, GUARDED[1:])
    wait_members(g, p.pid, GUARDED[1:])

    g.wait_listening(PORTS[-1], 2)
    g.attach(p.pid)
    r["by_pid"] = listed(g)
    r["second"] = second_agent(g, p.pid)
    r["all_off"] = g.all_off()["off"]
    many = 2 * CLIENTS
    checks = {
        "listed": r["listed"] == sorted(2 * GUARDED) and r["then_listed"] == 2 * [GUARDED[1]],
        "reuse": r["reuse"] == [sorted(2 * GUARDED), []],
        "guarded": r["guarded"] == [2 * many, 0] and r["still_guarded"] == [many, 0],
        "control": r["control"] == [[0, many], [0, 3 * many]] and r["one_off"] == [0, 2 * many],
        "off": r["from_other"] == 3 and r["off"] == 1 and r["all_off"] == len(PORTS),
        "by_pid": r["by_pid"] == sorted(2 * PORTS),
        "second": r["second"] == [1, "refused", True, 0]}
    return {"ok": all(checks.values()), "wrong": [k for k, ok in checks.items() if not ok], **r}


def main():
    return on_guard(test)
