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
 4. the agent is killed, then the server, before there is another agent: the ledger of that one has the
    100, since the same moment. Control: the keeper has lost the witness; it counts anew, and has none
 5. the witness cannot be loaded: the guard says since when it does not watch, and no number
"""
import os
import signal
import socket
import subprocess

from clients import Clients
from guard import HOST, LOCAL, PORT, alive, on_guard, stop
from ledger import LINGER, Watch, forget
from net import enter, wait_for
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


def through_death(g, family, keeps):
    """The server is killed while no agent is there, and the keeper keeps the witness or has lost it;
    what the next agent's ledger says of it."""
    p = g.guarded(*servers.python(LOCAL[family], PORT))
    g.wait_member(p.pid)
    stop(p.pid)
    crowd = Clients(g.ns(HOST), LOCAL[family], PORT, ALIVE)
    crowd.wait_sent()
    g.wait_queued(ALIVE)
    both, since = g.list(), g.one()["ledger"]["since_ns"]
    if not keeps:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.connect(g.path + ".keeper")
            s.send(b"FDSTOREREMOVE=1\nFDNAME=witness-state")
    stop(both["keeper"])
    os.kill(both["agent"], signal.SIGKILL)
    wait_for("the agent to be gone", lambda: not alive(both["agent"]))
    os.kill(p.pid, signal.SIGKILL)
    wait_for("the server to be gone", lambda: not alive(p.pid))
    os.kill(both["keeper"], signal.SIGCONT)
    wait_for("the next agent", lambda: g.list(False).get("agent", 0) not in (0, both["agent"]))
    g.wait_held(ALIVE)
    g.stop(p)  # ferry, which has asked the agent
    ledger = g.one()["ledger"]
    again = g.unguarded(*servers.python(LOCAL[family], PORT))
    answered = crowd.finish()["answered"]
    g.all_off()
    g.stop(again)
    wait_for("the server to be gone", lambda: not g.queues())
    return {"answered": answered, "same": ledger["since_ns"] == since,
            **{k: ledger[k] for k in ("watching", "queued", "held", "unexplained")}}


def blind(g, family):
    """What a guard says that cannot count."""
    os.environ["FERRY_FAULT"] = "no-witness"
    try:
        p = g.guarded(*servers.python(LOCAL[family], PORT))
        g.wait_member(p.pid)
    finally:
        del os.environ["FERRY_FAULT"]
    ledger = g.one()["ledger"]
    text = subprocess.run(g.argv("list"), capture_output=True, text=True, timeout=10).stdout
    off = g.all_off()["ledger"]
    g.stop(p)
    wait_for("the server to be gone", lambda: not g.queues())
    return [ledger["watching"], "queued" in ledger, "  not watching since 20" in text, off]


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
            dead = {k: [through_death(g, f, k) for f in (4, 6)] for k in (True, False)}
            unseen = [blind(g, f) for f in (4, 6)]
        finally:
            watch.close()
    finally:
        enter(f"/proc/self/fd/{own}")
        forget(name)
    counted = {"answered": ALIVE, "same": True, "watching": True, "queued": ALIVE, "held": ALIVE,
               "unexplained": 0}
    good = (dead[True] == [counted] * 2 and unseen == [[False, False, True, None]] * 2 and
            all(d["answered"] == ALIVE and not d["same"] and d["queued"] == 0 for d in dead[False]))
    return {"ok": not wrong and not code and good, "wrong": wrong, "rows": r, "through_death": dead,
            "blind": unseen}


def main():
    return on_guard(test)
