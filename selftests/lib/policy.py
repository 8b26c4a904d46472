# SPDX-License-Identifier: BSD-2-Clause
"""
What `ferry listener` says and sets on a host where ports are guarded, and who answers new clients
there. Servers that answer with their pid; nothing here knows which they are.
"""
import collections
import contextlib
import json
import os
import signal
import subprocess

from clients import Clients, lost, sums
from guard import HOST, LOCAL, Command, alive, children, stop
from net import BUILD, Failure, wait_for


def ferry(g, *words, as_json=True):
    """A command of ferry in the guard's namespace; the finished process."""
    argv = [f"{BUILD}/ferry", *(["-j"] if as_json else []), "--socket", g.path, *map(str, words)]
    return subprocess.run(["nsenter", f"--net=/run/netns/{g.ns(HOST)}", *argv],
                          capture_output=True, text=True, timeout=40)


def listener(g, verb, port, *words):
    """A `ferry listener` that works; its answer."""
    p = ferry(g, "listener", verb, "--port", port, *words)
    if p.returncode:
        raise Failure(f"ferry listener {verb} {words}: exit {p.returncode}: {p.stdout} | {g.log()}")
    return json.loads(p.stdout)


def rows(g, port):
    return listener(g, "list", port)["listeners"]


def weigh(g, port, weight, *pids):
    for pid in pids:
        listener(g, "policy", port, "--pid", pid, "--weight", weight)


def states(g, port, servers):
    """By the name of each server, from {name: process}: its generation and state."""
    named = {p.pid: name for name, p in servers.items()}
    return {named.get(r["pid"], r["pid"]): (r["generation"], r["state"]) for r in rows(g, port)}


def both(g, port, count, again=False):
    """So many clients of each family."""
    return [Clients(g.ns(HOST), LOCAL[f], port, count, again) for f in (4, 6)]


def count_by(crowds, servers):
    """Answers by the name of the server, whose workers are its children."""
    named = {pid: name for name, p in servers.items() for pid in (p.pid, *children(p.pid))}
    by = collections.Counter()
    for c in crowds:
        for pid, n in list(c.by.items()):
            by[named.get(pid, pid)] += n
    return by


def fates(crowds, servers):
    """All of them have ended: how many each server has answered, and what became of the others."""
    figures = sums(crowds)
    others = {k: n for k, n in figures.items() if n and k != "answered"} if lost(figures) else {}
    return {**count_by(crowds, servers), **others}


def asked(g, port, count, servers):
    """New clients, so many of each family: how many each server has answered."""
    return fates(both(g, port, count), servers)


def kill_all(pids):
    for pid in filter(alive, pids):
        os.kill(pid, signal.SIGKILL)
    wait_for("all of them to be gone", lambda: not any(map(alive, pids)))


def queued(g, port, pid):
    return sum(r["queued"] for r in rows(g, port) if r["pid"] == pid)


def fill(g, port, pid, count):
    """Clients come until this process, which is stopped, has so many; others answer theirs."""
    stop(pid)
    crowds = []

    def is_full():
        now = both(g, port, 8)
        crowds.extend(now)
        for c in now:
            c.wait_sent()
        return queued(g, port, pid) >= count

    wait_for(f"the queue of process {pid} to fill", is_full, 30)
    return crowds


@contextlib.contextmanager
def forked(g, p, port):
    """The four processes of a server that forks, each with a listener; none is left afterwards."""
    wait_for("its workers", lambda: len(children(p.pid)) == 3)
    pids = [p.pid, *children(p.pid)]
    try:
        if isinstance(p, Command):
            wait_for("four listeners", lambda: len(rows(g, port)) == 4)
        yield pids
    finally:
        kill_all(pids)
        g.stop(p, signal.SIGKILL)
