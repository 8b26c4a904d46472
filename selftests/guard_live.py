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
 4. a server that sets no SO_REUSEADDR and has a connection: refused, with what to do instead, and left
    as it was: no agent, SO_REUSEPORT off, the connection served; control: without the connection it is
    guarded
"""
import concurrent.futures
import os
import signal
import socket
import time

from clients import Clients, sums
from guard import ANY, HOST, LOCAL, PORT, children, mine, on_guard, reset_at_once, reuse
from net import enter, wait_for
import servers

TIMES = 3
GAP_S = 0.2  # between a death and the next start: the scenario, not a wait
SERVERS = {
    "nginx": (lambda g: servers.nginx(g, ANY.values(), PORT), (4, 6)),
    "python_v4": (lambda g: servers.stock_python(g, LOCAL[4], PORT), (4,)),
    "python_v6": (lambda g: servers.stock_python(g, LOCAL[6], PORT), (6,))}


# answers each line, and sets nothing
PLAIN = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen(9)
while True:
    c = s.accept()[0]
    while c.send(c.recv(1) or b""):
        pass
"""


def load(g, families):
    return [Clients(g.ns(HOST), LOCAL[f], PORT, 8 // len(families), again=True) for f in families]


def wait_answered(clients, count):
    for c in clients:
        c.wait_answered(count)


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
    before, wire = g.ended(), g.ends()
    for _ in range(TIMES):
        crash(g, p)
        p = g.unguarded(*argv)
        g.wait_member(p.pid, addresses=len(families))
        wait_answered(clients, 100)
    result.update(sums(clients), reset_at_once=reset_at_once(wire))
    why = {k: n - before[k] for k, n in g.ended().items()}
    result.update(aborted=why["TCPAbortOnClose"], why=why)
    g.all_off()
    kill(g, p)
    return result


def sum_now(clients):
    rows = [c.figures() for c in clients]
    return {k: sum(r[k] for r in rows) for k in ("refused", "resets", "cut", "wrong")}


def without_reuseaddr(g, family, port, connected):
    """Whether it is guarded; what is said, SO_REUSEPORT, whether the connection is served on."""
    p = g.unguarded("/usr/bin/python3", "-c", PLAIN, LOCAL[family], str(port))
    g.wait_listening(port)
    found = {"served": True}
    if connected:
        with concurrent.futures.ThreadPoolExecutor(1, initializer=enter,
                                                   initargs=(f"/run/netns/{g.ns(HOST)}",)) as there:
            client = there.submit(socket.create_connection, (LOCAL[family], port)).result()
        client.sendall(b"1")
        client.recv(1)
    code, said = g.ferry("--pid", p.pid, check=False)
    found.update(guarded=not code, said=said.get("text", ""), reuse=reuse(p.pid))
    if connected:
        client.sendall(b"2")
        found["served"] = client.recv(1) == b"2"
        client.close()
    if code:
        wait_for("no agent to be left", lambda: not mine(g.path))
    else:
        g.all_off()
    g.stop(p)
    wait_for("its connections to be gone", lambda: not g.queues(port))
    return found


def is_left(r):
    return (not r["guarded"] and "SO_REUSEADDR" in r["said"] and "-- COMMAND" in r["said"] and
            r["reuse"] == [0] and r["served"])


def is_right(families, r):
    """Who had sent something that the server did not read is reset, and the kernel counts him; who
    had sent nothing is cut, and reset if he sends then. Of eight clients eight at most can be
    accepted as a server ends."""
    others = {k: n for k, n in r.items() if k in ("refused", "wrong", "waiting") or k.isupper()}
    return (r["reuse"] == [[0] * len(families), [1] * len(families)] and
            not any(r["attached"].values()) and not any(others.values()) and
            r["reset_at_once"] == r["aborted"] and not r["why"]["lost"] and
            r["resets"] + r["cut"] <= 8 * TIMES)


def test(g):
    rows, wrong, controls = {}, [], {}
    for name, (argv, families) in SERVERS.items():
        controls[name] = control(g, argv(g), families)["refused"]
        rows[name] = live(g, argv(g), families)
        if not is_right(families, rows[name]) or not controls[name]:
            wrong.append(name)
    left = [without_reuseaddr(g, f, PORT + f, True) for f in (4, 6)]
    apart = [without_reuseaddr(g, f, PORT + 10 + f, False)["guarded"] for f in (4, 6)]
    if not all(map(is_left, left)) or apart != [True, True]:
        wrong.append("without_reuseaddr")
    total = {k: sum(r[k] for r in rows.values()) for k in
             ("answered", "refused", "resets", "aborted", "cut")}
    return {"ok": not wrong, "wrong": wrong, "crashes": TIMES * len(rows), **total,
            "control_refused": list(controls.values()), "rows": rows,
            "without_reuseaddr": left, "without_a_connection": apart}


def main():
    return on_guard(test)
