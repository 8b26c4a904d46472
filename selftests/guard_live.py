# SPDX-License-Identifier: BSD-2-Clause
"""
A server that runs already is guarded under load, without a restart, and from then on a crash of it
refuses nobody and resets only whom it had accepted.

Steps, for nginx without `reuseport` (IPv4 and IPv6), and for `python3 -m http.server` (one after
the other), each three times under eight clients with a new connection a request:
 1. control, not guarded: SIGKILL, and the usual command 200 ms later: refused more than 0
 2. running, under load: `ferry guard --pid`; SO_REUSEPORT is on, which the server has not set;
    clients meet nothing of it
 3. SIGKILL, and the usual command 200 ms later: refused 0, all are answered on; as many resets as
    the kernel says that the server's end has aborted after it had accepted them
"""
import os
import signal
import time

from clients import Clients
from guard import ANY, HOST, LOCAL, PORT, children, on_guard, reuse, reset_at_once
from net import wait_for
import servers

TIMES = 3
GAP_S = 0.2  # between a death and the next start: the scenario, not a wait
SERVERS = {
    "nginx": (lambda g: servers.nginx(g, ANY.values(), PORT), (4, 6)),
    "python_v4": (lambda g: servers.stock_python(g, LOCAL[4], PORT), (4,)),
    "python_v6": (lambda g: servers.stock_python(g, LOCAL[6], PORT), (6,))}


def load(g, families):
    return [Clients(g.ns(HOST), LOCAL[f], PORT, 8 // len(families), again=True) for f in families]


def wait_answered(clients, count):
    for c in clients:
        c.wait_answered(count)


def sums(clients):
    rows = [c.finish() for c in clients]
    return {k: sum(r.get(k, 0) for r in rows) for k in {k for r in rows for k in r}}


def crash(g, p):
    for pid in [*children(p.pid), p.pid]:  # nginx: a worker alone would be started again
        os.kill(pid, signal.SIGSTOP)
    for pid in [*children(p.pid), p.pid]:
        os.kill(pid, signal.SIGKILL)
    g.stop(p)
    time.sleep(GAP_S)


def control(g, argv, families):
    p = g.unguarded(*argv)
    g.wait_listening(count=len(families))
    clients = load(g, families)
    wait_answered(clients, 100)
    crash(g, p)
    p = g.unguarded(*argv)
    wait_answered(clients, 100)
    figures = sums(clients)
    kill(g, p)
    return figures


def kill(g, p):
    crash(g, p)
    wait_for("the server to be gone", lambda: not g.queues())


def live(g, argv, families):
    p = g.unguarded(*argv)
    g.wait_listening(count=len(families))
    clients = load(g, families)
    wait_answered(clients, 100)
    plain = reuse(p.pid)
    g.attach(p.pid)
    g.wait_member(p.pid, addresses=len(families))
    wait_answered(clients, 300)
    attached = sum_now(clients)
    result = {"reuse": [plain, reuse(p.pid)], "attached": attached}
    aborted, wire = g.kernel("TCPAbortOnClose"), g.ends()
    for _ in range(TIMES):
        crash(g, p)
        p = g.unguarded(*argv)
        g.wait_member(p.pid, addresses=len(families))
        wait_answered(clients, 100)
    result.update(sums(clients), aborted=g.kernel("TCPAbortOnClose") - aborted,
                  reset_at_once=reset_at_once(wire))
    found = g.objects()
    g.off()
    g.wait_gone(found)
    g.agents.clear()
    kill(g, p)
    return result


def sum_now(clients):
    rows = [c.figures() for c in clients]
    return {k: sum(r[k] for r in rows) for k in ("refused", "resets", "cut", "wrong")}


def is_right(families, r):
    """Who had sent something that the server did not read is reset, and the kernel counts him; who
    had sent nothing is cut, and reset if he sends then. Of eight clients eight at most can be
    accepted as a server ends."""
    others = {k: n for k, n in r.items() if k in ("refused", "wrong", "waiting") or k.isupper()}
    return (r["reuse"] == [[0] * len(families), [1] * len(families)] and
            not any(r["attached"].values()) and not any(others.values()) and
            r["reset_at_once"] == r["aborted"] and r["resets"] + r["cut"] <= 8 * TIMES)


def test(g):
    rows, wrong, controls = {}, [], {}
    for name, (argv, families) in SERVERS.items():
        controls[name] = control(g, argv(g), families)["refused"]
        rows[name] = live(g, argv(g), families)
        if not is_right(families, rows[name]) or not controls[name]:
            wrong.append(name)
    total = {k: sum(r[k] for r in rows.values()) for k in
             ("answered", "refused", "resets", "aborted", "cut")}
    return {"ok": not wrong, "wrong": wrong, "crashes": TIMES * len(rows), **total,
            "control_refused": list(controls.values()), "rows": rows}


def main():
    return on_guard(test)
