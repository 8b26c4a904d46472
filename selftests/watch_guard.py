# SPDX-License-Identifier: BSD-2-Clause
"""
The account of a guarded listener comes out: what `ferry watch` has seen of its closes is what the
guard's program has decided, and what the clients got.

Steps, over IPv4 and IPv6, with a server of Python's that is guarded, and one that is not (control):
 1. it is stopped; 100 clients connect, send their request, and wait; 20 more connect and are reset by
    themselves. It is killed
 2. guarded: 120 were queued, none is lost, all went on; the guard's counts say that 120 are held.
    Unguarded: 100 are reset, as the clients say, and 20 had gone before
 3. the server is started again: the holder is shut down, by ferry-guard's pid; 120 were queued, none
    is lost; the counts say that 100 were alive and 20 dead; 100 clients are answered
"""
import os
import signal
import socket

from clients import Clients
from guard import HOST, LOCAL, PORT, on_guard, stop
from ledger import LINGER, Watch, enter, forget
from net import wait_for
import servers

ALIVE, DEAD = 100, 20
ALL = ALIVE + DEAD
FATES = ("queued", "reset", "half_closed", "gone", "migrated")


def fates(row):
    return [row[k] for k in FATES]


def wait_row(watch, wanted):
    """The record of the close that is wanted."""
    def there():
        watch.read()
        return next(filter(wanted, watch.closes), None)

    return wait_for("the close to be told", there)


def die(g, family):
    """Clients that are queued and gone."""
    for _ in range(DEAD):
        s = socket.create_connection((LOCAL[family], PORT))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        s.close()
    g.wait_queued(ALL)


def crash(g, family, guarded, watch):
    argv = servers.python(LOCAL[family], PORT)
    p = g.guarded(*argv) if guarded else g.unguarded(*argv)
    if guarded:
        g.wait_member(p.pid)
    else:
        g.wait_listening()
    stop(p.pid)
    crowd = Clients(g.ns(HOST), LOCAL[family], PORT, ALIVE)
    crowd.wait_sent()
    die(g, family)
    pid = p.pid
    g.stop(p, signal.SIGKILL)
    row = wait_row(watch, lambda c: c["pid"] == pid)
    r = {"died": fates(row)}
    if not guarded:
        return {**r, **crowd.finish()}
    g.wait_held(ALL)
    r["held"] = g.one()["counts"]["held"]
    agent = g.list()["agent"]
    again = g.unguarded(*argv)
    r["answered"] = crowd.finish()["answered"]
    r["given"] = fates(wait_row(watch, lambda c: c["pid"] == agent and c["queued"]))
    counts = g.one()["counts"]
    r["counts"] = [counts[k] for k in ("alive", "dead", "held", "cancelled")]
    g.off()
    wait_for("the guard to end", lambda: not os.path.exists(g.path) or not g.list(False).get("agent"))
    g.stop(again)
    wait_for("the server to be gone", lambda: not g.queues())
    return r


def is_right(guarded, r):
    if not guarded:
        return (r["died"] == [ALL, ALIVE, 0, DEAD, 0] and r["resets"] == ALIVE and
                not r["answered"])
    return (r["died"] == r["given"] == [ALL, 0, 0, 0, ALL] and r["held"] == ALL and
            r["answered"] == ALIVE and r["counts"] == [ALIVE, DEAD, ALL, 0])


def test(g):
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    name, r, wrong = f"f{os.getpid()}", {}, []
    try:
        enter(f"/run/netns/{g.ns(HOST)}")
        watch = Watch(name)
        try:
            for family in (4, 6):
                for guarded in (True, False):
                    row = f"IPv{family} {'guarded' if guarded else 'control'}"
                    r[row] = crash(g, family, guarded, watch)
                    if not is_right(guarded, r[row]):
                        wrong.append(row)
            code, _ = watch.stop()
        finally:
            watch.close()
    finally:
        enter(f"/proc/self/fd/{own}")
        forget(name)
    return {"ok": not wrong and not code, "wrong": wrong, "rows": r}


def main():
    return on_guard(test)
