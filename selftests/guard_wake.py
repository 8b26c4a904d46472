# SPDX-License-Identifier: BSD-2-Clause
"""
Where the kernel does not wake who is given a connection (here a fault point says so), ferry does: by
a connection of its own to each listener that was given one. selftests/vm_wake has a kernel that
forgets.

Steps, by an agent that takes this kernel for one that forgets:
 1. for each address (any, loopback's, another; IPv4, IPv6, one socket for both): a server dies with
    20 clients queued; the next one stands still once it listens: it is given the 20, and one more,
    which has said nothing, is ferry's; let go on, it answers all 20
 2. four workers, with a backlog of 5 each, that stand still: each has 6 in its queue, of which the
    program gives it 5: the sixth is ferry's, one for each; let go on, all four answer, all 100 are
 3. python3 -m http.server, with its backlog of 5, while 100 are held: all are answered
 4. of two servers the newer one dies with 500 queued, which move while ferry looks: the older one,
    which has stood still, finds one of ferry's after the last of them
 5. a server with a backlog of 0 answers two who come, and two who were held
 6. a server with weight 0 and a backlog of 5 or 1024, while 20 are held: `ferry guard off` gives it
    all of them, and one of ferry's after the last; its backlog is as before
 7. 20 move while no port is free for ferry to come from: it comes when one is
 8. control, by an agent without the fault: the 20 are given and answered, and none is ferry's
"""
import os
import signal

from clients import Clients
from guard import ANY, HOST, LOCAL, PORT, children, on_guard, state, stop
from net import BUILD, wait_for
import servers

CLIENTS = 20
WORKERS = 4
SHORT = 5  # servers.python's "short"
MANY = 100
MOVING = 500
TAKEN = 9000
RANGE = "net.ipv4.ip_local_port_range"
OTHER = {4: "192.0.2.1", 6: "2001:db8::1"}
FAULT = "FERRY_FAULT"
# Answers one after the other; says after how many somebody came who said nothing.
ONE_BY_ONE = """
import socket, sys
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
backlog = int(sys.argv[3])
server, n = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family, backlog=backlog), 0
while True:
    client, _ = server.accept()
    if client.recv(1000):
        n += 1
        client.send(b'HTTP/1.0 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nfile\\n')
    else:
        print(n, flush=True)
    client.close()
"""


def rows():
    """A name, where the server listens, and where its clients come from and to."""
    for f in (4, 6):
        yield f"any_v{f}", ANY[f], ("v6only",), LOCAL[f]
        yield f"loopback_v{f}", LOCAL[f], ("v6only",), LOCAL[f]
        yield f"other_v{f}", OTHER[f], ("v6only",), OTHER[f]
    yield "both_by_v4", ANY[6], (), LOCAL[4]


def words(address, options):
    return options if ":" in address else ()


def given(g, pid):
    """What is queued at a member, by the kernel, as the guard has read it."""
    return sum(m["queued"] for m in g.one()["members"] if m["pid"] == pid)


def still(g, *argv):
    """A server that has stopped itself once it listens, and is guarded."""
    p = g.unguarded(*argv)
    wait_for("the server to stand still", lambda: state(p.pid) == "T")
    g.wait_member(p.pid)
    return p


def one(g, address, options, to):
    """What the next server was given, what ferry has sent, what became of the clients."""
    argv = servers.python(address, PORT, *words(address, options))
    p = g.guarded(*argv)
    g.wait_member(p.pid)
    crowd = g.dies_with_a_queue(p, to, CLIENTS)
    g.wait_held(CLIENTS)
    p = still(g, *argv, "stops")
    wait_for("the held ones to move", lambda: not g.one()["held"])
    result = {"given": given(g, p.pid), "kicked": g.one()["counts"]["kicked"],
              "wakes": g.list()["wakes"]}
    p.send_signal(signal.SIGCONT)
    result["answered"] = crowd.finish()["answered"]
    g.all_off()
    g.stop(p, signal.SIGKILL)
    return result


def workers(g):
    p = g.guarded(*servers.python("::", PORT))
    g.wait_member(p.pid)
    stop(p.pid)
    crowds = [Clients(g.ns(HOST), LOCAL[f], PORT, MANY // 2) for f in (4, 6)]
    for c in crowds:
        c.wait_sent()
    g.wait_queued(MANY)
    g.stop(p, signal.SIGKILL)
    g.wait_held(MANY)
    p = g.unguarded(*servers.python("::", PORT, "reuseport", "fork", "short", "stops"))
    wait_for("four members", lambda: len(g.one()["members"]) == WORKERS, 15, 0.02)
    pids = [p.pid, *children(p.pid)]
    wait_for("each to be full", lambda: all(given(g, pid) == SHORT + 1 for pid in pids), 15, 0.02)
    result = {"queues": [given(g, pid) for pid in pids], "kicked": g.one()["counts"]["kicked"]}
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    figures = [c.finish() for c in crowds]
    result |= {"answered": sum(f["answered"] for f in figures),
               "by": len({pid for c in crowds for pid in c.by if pid in pids})}
    g.all_off()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    g.stop(p, signal.SIGKILL)
    return result


def stock(g, f):
    """More are held than its backlog takes."""
    argv = servers.python(LOCAL[f], PORT)
    p = g.guarded(*argv)
    g.wait_member(p.pid)
    crowd = g.dies_with_a_queue(p, LOCAL[f], MANY)
    g.wait_held(MANY)
    p = g.unguarded(*servers.stock_python(g, LOCAL[f], PORT))
    answered = crowd.finish()["answered"]
    g.all_off()
    g.stop(p, signal.SIGKILL)
    return answered


def one_by_one(f, backlog):
    return ["/usr/bin/python3", "-c", ONE_BY_ONE, LOCAL[f], str(PORT), str(backlog)]


def none(g, f):
    """A backlog of 0: how many were answered who came, and who were held."""
    p = g.guarded(*one_by_one(f, 0))
    g.wait_member(p.pid)
    came = Clients(g.ns(HOST), LOCAL[f], PORT, 2).finish(10)["answered"]
    stop(p.pid)
    crowd = Clients(g.ns(HOST), LOCAL[f], PORT, 2)
    g.wait_queued(2)
    g.stop(p, signal.SIGKILL)
    g.wait_held(2)
    p = g.unguarded(*one_by_one(f, 0))
    held = crowd.finish(10)["answered"]
    g.all_off()
    g.stop(p, signal.SIGKILL)
    return [came, held]


def told(path):
    """After how many of the server's clients one of ferry's came."""
    with open(path) as said:
        return [int(n) for n in said.read().split()]


def off(g, f, backlog):
    """What was queued after it, what the backlog was then; what the server has told, and answered."""
    path = os.path.join(g.dir, "order")
    with open(path, "wb") as order:
        p = g.start(HOST, *one_by_one(f, backlog), stdout=order)
    g.wait_listening()
    g.attach(p.pid)
    g.at(HOST, f"{BUILD}/ferry", "--socket", g.path, "listener", "policy", "--port", str(PORT), "--pid",
         str(p.pid), "--weight", "0")
    crowd = Clients(g.ns(HOST), LOCAL[f], PORT, CLIENTS)
    crowd.wait_sent()
    g.wait_held(CLIENTS)
    stop(p.pid)
    g.all_off()
    queued = g.at(HOST, "ss", "-Hltn", "sport", "=", f":{PORT}").stdout.split()[1:3]
    p.send_signal(signal.SIGCONT)
    answered = crowd.finish(10)["answered"]
    wait_for("the server to have taken ferry's, too", lambda: not sum(g.queues()))
    g.stop(p, signal.SIGKILL)
    return {"queued": int(queued[0]), "backlog": int(queued[1]), "after": told(path),
            "answered": answered}


def no_port(g, f):
    """What the server was given before a port was free, and after."""
    argv = servers.python(LOCAL[f], PORT)
    p = g.guarded(*argv)
    g.wait_member(p.pid)
    crowd = g.dies_with_a_queue(p, LOCAL[f], CLIENTS)
    g.wait_held(CLIENTS)
    taker = g.start(HOST, "/usr/bin/python3", "-c", ONE_BY_ONE, ANY[f], str(TAKEN), "1")
    g.wait_listening(TAKEN)
    ports = g.at(HOST, "sysctl", "-n", RANGE).stdout.strip()
    g.at(HOST, "sysctl", "-qw", f"{RANGE}={TAKEN} {TAKEN}")
    p = still(g, *argv, "stops")
    wait_for("the held ones to move", lambda: not g.one()["held"])
    before = given(g, p.pid)
    g.at(HOST, "sysctl", "-qw", f"{RANGE}={ports}")
    wait_for("ferry to come", lambda: given(g, p.pid) > CLIENTS)
    p.send_signal(signal.SIGCONT)
    result = {"before": before, "answered": crowd.finish()["answered"]}
    g.all_off()
    for one_of in (p, taker):
        g.stop(one_of, signal.SIGKILL)
    return result


def moving(g, f):
    """After how many of those that moved one of ferry's came; how many were answered."""
    argv = one_by_one(f, 1024)
    path = os.path.join(g.dir, "order")
    with open(path, "wb") as order:
        older = g.start(HOST, *argv, stdout=order)
    g.wait_listening()
    g.attach(older.pid)
    newer = g.unguarded(*argv)
    g.wait_member(newer.pid)
    stop(older.pid)
    crowd = g.dies_with_a_queue(newer, LOCAL[f], MOVING)
    wait_for("all to move", lambda: given(g, older.pid) >= MOVING)
    kicked = [0]  # ferry looks every 200 ms
    wait_for("ferry to come to rest", lambda: kicked.append(g.one()["counts"]["kicked"]) or
             kicked[-1] == kicked[-2], every=0.5)
    older.send_signal(signal.SIGCONT)
    answered = crowd.finish()["answered"]
    wait_for("the server to have taken ferry's, too", lambda: not given(g, older.pid))
    g.all_off()
    g.stop(older, signal.SIGKILL)
    return {"answered": answered, "after": told(path)}


def test(g):
    for address, bits in ((OTHER[4], 32), (OTHER[6], 128)):
        g.at(HOST, "ip", "addr", "add", f"{address}/{bits}", "dev", "lo")
    os.environ[FAULT] = "kernel-forgets"
    woken = {name: one(g, *row) for name, *row in rows()}
    of_four, full = workers(g), [stock(g, f) for f in (4, 6)]
    moved, of_none = [moving(g, f) for f in (4, 6)], [none(g, f) for f in (4, 6)]
    at_off = [off(g, f, backlog) for f in (4, 6) for backlog in (SHORT, 1024)]
    later = [no_port(g, f) for f in (4, 6)]
    del os.environ[FAULT]
    control = {name: one(g, *row) for name, *row in rows()}
    checks = {
        "woken": all(r["given"] == CLIENTS + r["kicked"] and r["kicked"] == 1 and not r["wakes"] and
                     r["answered"] == CLIENTS for r in woken.values()),
        "workers": of_four["answered"] == MANY and of_four["by"] == of_four["kicked"] == WORKERS,
        "full": full == [MANY] * 2,
        "moving": all(r["answered"] == MOVING in r["after"] for r in moved),
        "none": of_none == [[2, 2]] * 2,
        "off": at_off == [{"queued": CLIENTS + 1, "backlog": backlog, "after": [CLIENTS],
                           "answered": CLIENTS} for _ in (4, 6) for backlog in (SHORT, 1024)],
        "later": later == [{"before": CLIENTS, "answered": CLIENTS}] * 2,
        "control": all(r == {"given": CLIENTS, "kicked": 0, "wakes": True, "answered": CLIENTS}
                       for r in control.values())}
    return {"ok": all(checks.values()), "wrong": [k for k, ok in checks.items() if not ok],
            "answered": sum(r["answered"] for r in woken.values()),
            "kicked": sum(r["kicked"] for r in woken.values()),
            "workers_kicked": of_four["kicked"], "full_backlog": full,
            "moving": [r["after"] for r in moved], "backlog_of_0": of_none, "off": at_off,
            "control_kicked": sum(r["kicked"] for r in control.values()),
            "rows": {"woken": woken, "workers": of_four, "control": control}}


def main():
    try:
        return on_guard(test)
    finally:
        os.environ.pop(FAULT, None)
