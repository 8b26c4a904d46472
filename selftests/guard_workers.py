# SPDX-License-Identifier: BSD-2-Clause
"""
A server of several workers, each with a listener of its own, is guarded as one: what a worker has
not accepted goes to the others, what all of them have not accepted is held.

Steps, over IPv4 and IPv6 together:
 1. nginx with `listen ... reuseport` and four workers, guarded by `ferry guard`: all its listeners
    are members, none is a stranger; under load, all four workers answer; HUP: refused 0; the new
    workers answer
 2. all its processes stopped, 200 clients queue; SIGKILL to all; held; started again: 200 answered
 3. control: the same, not guarded: resets
 4. four processes with one listener each, of a server that forks; under load all four answer; one
    is stopped, clients queue until it has 20 of them; SIGKILL: they are answered by the others
 5. control: the same, not guarded: resets
 6. four processes again, and two that are no kin of theirs, all running: --pid of one of them makes
    all members, of one generation; under load all six answer
 7. a server with 56 listeners, which is all that there is room for, and another beside it with 40, which
    finds none: when the first ends, they are members
"""
import os
import signal

from clients import Clients, sums
from guard import ANY, HOST, LOCAL, PORT, alive, children, on_guard, stop
from net import wait_for
import servers

CLIENTS = 100  # of each family
OF_ONE = 20
WORKERS = 4
PLACES = 56
NEXT = 40
MANY = """
import signal, socket, sys
kept = []
for _ in range(int(sys.argv[3])):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind((sys.argv[1], int(sys.argv[2])))
    s.listen(16)
    kept.append(s)
signal.pause()
"""


def both(g, count, again=False):
    return [Clients(g.ns(HOST), LOCAL[f], PORT, count, again) for f in (4, 6)]


def answering(crowds):
    """Processes that have answered."""
    return {pid for c in crowds for pid in c.by}


def kill_all(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for("all of them to be gone", lambda: not any(map(alive, pids)))


def nginx(g):
    return servers.nginx(g, ANY.values(), PORT, workers=WORKERS, options="reuseport")


def reload(g, p):
    """HUP under load."""
    load = both(g, 4, again=True)
    for c in load:
        c.wait_answered(300)
    old = set(children(p.pid))
    before = answering(load) & old
    aborted = g.aborted()
    p.send_signal(signal.SIGHUP)
    wait_for("new workers", lambda: len(set(children(p.pid)) - old) >= WORKERS)
    wait_for("old workers to end", lambda: not old & set(children(p.pid)))
    for c in load:
        c.wait_answered(300)
    result = {**sums(load), "workers": len(before),
              "new_workers": len(answering(load) & set(children(p.pid)))}
    return {**result, "aborted": g.aborted() - aborted}


def all_die(g, p):
    """Master and workers, with queues at all listeners."""
    wait_for("its workers", lambda: len(children(p.pid)) == WORKERS)
    pids = [p.pid, *children(p.pid)]
    for pid in pids:
        stop(pid)
    crowds = both(g, CLIENTS)
    for c in crowds:
        c.wait_sent()
    g.wait_queued(2 * CLIENTS)
    kill_all(pids)
    g.stop(p)
    return crowds


def control_nginx(g):
    p = g.unguarded(*nginx(g))
    g.wait_listening(count=2 * WORKERS)
    return sums(all_die(g, p))


def guarded_nginx(g):
    p = g.guarded(*nginx(g))
    rows = g.wait_member(p.pid, addresses=2, members=WORKERS)
    result = {"strangers": sum(len(x["strangers"]) for x in rows), "reload": reload(g, p)}
    crowds = all_die(g, p)
    g.wait_held(2 * CLIENTS)
    p = g.unguarded(*nginx(g))
    result["crash"] = sums(crowds)
    g.wait_member(p.pid, addresses=2, members=WORKERS)
    off(g)
    g.stop(p, signal.SIGQUIT)
    wait_for("nginx to be gone", lambda: not g.queues())
    return result


def off(g):
    g.all_off()


def forks(g):
    return servers.python("::", PORT, "reuseport", "fork")  # :: takes IPv4 too


def fill(g, victim):
    """Clients come until the stopped victim has so many: they may be spread by a hash. The others
    are answered."""
    stop(victim)
    crowds = []

    def is_full():
        now = both(g, 4)
        crowds.extend(now)
        for c in now:
            c.wait_sent()
        return max(g.queues()) >= OF_ONE

    wait_for("the victim's queue to fill", is_full)
    return crowds, max(g.queues())


def one_dies(g, p):
    """One of the children, with a queue."""
    load = both(g, 4, again=True)
    for c in load:
        c.wait_answered(400)
    rest = sums(load)
    workers = {p.pid, *children(p.pid)}
    spread = len(answering(load) & workers)
    victim = children(p.pid)[0]
    crowds, queued = fill(g, victim)
    os.kill(victim, signal.SIGKILL)
    result = {"spread": spread, "queued": queued, "before": rest, **sums(crowds)}
    result["by_victim"] = sum(c.by[victim] for c in crowds)
    kill_all(children(p.pid))
    g.stop(p, signal.SIGKILL)
    return result


def by_one(g):
    """Generations of members, and how many processes answer, when one is guarded by its pid."""
    servers_ = [g.unguarded(*forks(g))]
    g.wait_listening(count=WORKERS)
    for n in (1, 2):
        servers_.append(g.apart(*servers.python("::", PORT, "reuseport")))
        g.wait_listening(count=WORKERS + n)
    g.attach(children(servers_[0].pid)[0])
    members = g.one()["members"]
    load = both(g, 6, again=True)
    for c in load:
        c.wait_answered(600)
    result = {**sums(load), "by": len(answering(load)),
              "generations": [m["generation"] for m in members]}
    off(g)
    kill_all(children(servers_[0].pid))
    for p in servers_:
        g.stop(p, signal.SIGKILL)
    wait_for("all to be gone", lambda: not g.queues())
    return result


def full(g):
    """Members with the first server, and after it."""
    argv = "/usr/bin/python3", "-c", MANY, LOCAL[4], str(PORT)
    first = g.unguarded(*argv, str(PLACES))
    g.wait_listening(count=PLACES)
    g.attach(first.pid)
    after = g.apart(*argv, str(NEXT))
    wait_for("those without a place to be seen", lambda: g.one()["strangers"])
    result = [len(g.one()["members"])]
    g.stop(first, signal.SIGKILL)
    g.wait_member(after.pid, members=NEXT)
    result.append(len(g.one()["strangers"]))
    off(g)
    after.kill()
    return result


def test(g):
    r = {"control_nginx": control_nginx(g), "nginx": guarded_nginx(g)}
    p = g.unguarded(*forks(g))
    g.wait_listening(count=WORKERS)
    r["control_forks"] = one_dies(g, p)
    wait_for("the workers to be gone", lambda: not g.queues())
    p = g.guarded(*forks(g))
    wait_for("four members", lambda: sum(len(x["members"]) for x in g.guards(check=False)) ==
             WORKERS, 15, 0.02)
    r["forks"] = one_dies(g, p)
    r["counts"] = g.one()["counts"]
    off(g)
    g.stop(p, signal.SIGKILL)
    wait_for("the workers to be gone", lambda: not g.queues())
    r["by_one"] = by_one(g)
    r["full"] = full(g)
    reloaded, crash, forked = r["nginx"]["reload"], r["nginx"]["crash"], r["forks"]
    checks = {
        "members": not r["nginx"]["strangers"],
        "workers": reloaded["workers"] == reloaded["new_workers"] == WORKERS,
        "reload": not reloaded["refused"] and not reloaded["wrong"] and not reloaded["waiting"] and
        reloaded["resets"] <= reloaded["aborted"],
        "crash": crash["answered"] == 2 * CLIENTS,
        "control": r["control_nginx"]["resets"] == 2 * CLIENTS,
        "spread": forked["spread"] == WORKERS and r["control_forks"]["spread"] == WORKERS,
        "one": forked["queued"] >= OF_ONE and not forked["by_victim"] and not any(
            forked[k] for k in ("refused", "resets", "cut", "wrong", "waiting")),
        "alive": r["counts"]["alive"] >= OF_ONE and not r["counts"]["cancelled"],
        "by_one": r["by_one"]["by"] == WORKERS + 2 and not r["by_one"]["refused"] and
        r["by_one"]["generations"] == [1] * (WORKERS + 2),
        "full": r["full"] == [PLACES, 0],
        "control_one": r["control_forks"]["resets"] >= OF_ONE}
    return {"ok": all(checks.values()), "wrong": [k for k, ok in checks.items() if not ok],
            "answered": crash["answered"], "moved_to_others": forked["queued"],
            "control_resets": [r["control_nginx"]["resets"], r["control_forks"]["resets"]],
            "rows": r}


def main():
    return on_guard(test)
