# SPDX-License-Identifier: BSD-2-Clause
"""
Common servers are restarted and reloaded in their usual ways, and no client is refused; who is
reset had been accepted, by the kernel's own count.

Steps, for each row (nginx without and with `reuseport`, HAProxy, python3 -m http.server, Node, and
one that stops to listen for a while; each way it is restarted), over IPv4 and IPv6, under eight
clients with a new connection a request:
 1. control, not guarded: one restart with its gap: refused more than 0; a reload, which has no gap,
    is only reported
 2. started by `ferry guard`, then restarted five times by its usual command; between two restarts
    the new process is seen to be guarded and 100 more clients of each family are answered
 3. refused 0; on the wire, as many resets without a FIN before as the kernel says that a server has
    aborted after it had accepted them (TCPAbortOnClose); agent and keeper have as many descriptors as before
"""
import os
import signal
import time

from clients import Clients, sums
from guard import ANY, HOST, LOCAL, PORT, children, listeners, on_guard, reset_at_once
from net import wait_for
import servers

TIMES = 5
GAP_S = 0.2  # between end and start: the scenario, not a wait
SAID = ("answered", "refused", "resets", "cut", "waiting")


class Row:
    """A server, and how it is restarted. members: its listeners on each address."""

    def __init__(self, name, argv, families=(4, 6), members=1):
        self.name, self.make, self.families, self.members = name, argv, families, members

    def prepare(self, g):
        self.g, self.argv = g, self.make(g)

    def stop(self, p):
        self.g.stop(p, self.signal)

    signal = signal.SIGTERM
    has_gap = True

    def restart(self, p):
        """The next process."""
        self.stop(p)
        time.sleep(GAP_S)
        return self.g.unguarded(*self.argv)


class Quit(Row):
    """nginx is asked to finish what it has accepted."""
    signal = signal.SIGQUIT


class Hup(Row):
    """nginx reads its configuration again: same process, new workers."""
    has_gap = False

    def restart(self, p):
        old = set(children(p.pid))
        p.send_signal(signal.SIGHUP)
        wait_for("other workers", lambda: children(p.pid) and not old & set(children(p.pid)), 20)
        return p


class Relisten(Row):
    """The same process stops to listen, and listens again, with the same socket."""

    def restart(self, p):
        p.send_signal(signal.SIGUSR1)
        wait_for("it to stop to listen", lambda: not listeners(p.pid))
        time.sleep(GAP_S)
        p.send_signal(signal.SIGUSR2)
        wait_for("it to listen again", lambda: listeners(p.pid))
        return p


class SoftStop(Row):
    """HAProxy is asked to finish what it has accepted."""
    signal = signal.SIGUSR1


class Successor(Row):
    """HAProxy's new process tells the old one to finish."""
    has_gap = False

    def restart(self, p):
        new = self.g.unguarded(*self.argv, "-sf", str(p.pid))
        wait_for("the old process to end", lambda: p.poll() is not None, 20)
        self.g.processes.remove(p)
        return new


def rows():
    def nginx(options, workers=2):
        return lambda g: servers.nginx(g, ANY.values(), PORT, workers=workers, options=options)

    def haproxy(g):
        return servers.haproxy(g, ANY.values(), PORT)

    yield Quit("nginx_quit", nginx(""))
    yield Quit("nginx_reuseport_quit", nginx("reuseport"), members=2)
    yield Hup("nginx_reuseport_hup", nginx("reuseport"), members=2)
    yield SoftStop("haproxy_stop", haproxy)
    yield Successor("haproxy_sf", haproxy)
    for f in (4, 6):
        yield Row(f"python_v{f}", lambda g, f=f: servers.stock_python(g, LOCAL[f], PORT), (f,))
        yield Row(f"node_v{f}", lambda g, f=f: servers.node(LOCAL[f], PORT), (f,))
        yield Relisten(f"relisten_v{f}",
                       lambda g, f=f: servers.python(LOCAL[f], PORT, "relisten"), (f,))


def load(g, row):
    clients = [Clients(g.ns(HOST), LOCAL[f], PORT, 8 // len(row.families), again=True)
               for f in row.families]
    wait_answered(clients)
    return clients


def wait_answered(clients):
    for c in clients:
        c.wait_answered(100)


def end(g, p):
    pids = [p.pid, *children(p.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    g.stop(p)
    wait_for("every listener to be gone", lambda: not g.queues())


def control(g, row):
    p = g.unguarded(*row.argv)
    g.wait_listening(count=len(row.families) * row.members)
    clients = load(g, row)
    p = row.restart(p)
    wait_answered(clients)
    figures = sums(clients, *SAID, "wrong")
    end(g, p)
    return figures


def guarded(g, row):
    p = g.guarded(*row.argv)
    g.wait_member(p.pid, addresses=len(row.families), members=row.members)
    clients = load(g, row)
    before, descriptors, wire = g.ended(), g.descriptors(), g.ends()
    slowest = 0
    for _ in range(TIMES):
        began = time.monotonic()
        p = row.restart(p)
        g.wait_member(p.pid, addresses=len(row.families), members=row.members)
        wait_answered(clients)
        slowest = max(slowest, time.monotonic() - began)
    figures = {**sums(clients, *SAID, "wrong"), "reset_at_once": reset_at_once(wire),
               "slowest_s": round(slowest, 2)}
    why = {k: n - before[k] for k, n in g.ended().items()}
    figures.update(aborted=why["TCPAbortOnClose"], why=why)
    wait_for("agent and keeper to have as many descriptors as before",
             lambda: g.descriptors() == descriptors)
    counts = [x["counts"] for x in g.guards()]
    figures["counts"] = {k: sum(c[k] for c in counts) for k in counts[0]}
    g.all_off()
    end(g, p)
    return figures


def is_right(row, r, plain):
    """Who had sent something that the server did not read is reset, and the kernel counts him; who
    had sent nothing is cut, and reset if he sends then. Of eight clients eight at most can be
    accepted as a server ends. One whose handshake ends in the instant in which its listener is being
    closed gets a FIN of the kernel's, and is counted as dead."""
    others = [n for k, n in r.items() if k in ("refused", "wrong", "waiting") or k.isupper()]
    return (not any(others) and r["reset_at_once"] == r["aborted"] and not r["why"]["lost"] and
            r["resets"] + r["cut"] <= 8 * TIMES and r["counts"]["dead"] <= r["resets"] + r["cut"] and
            not r["counts"]["cancelled"] and (plain["refused"] or not row.has_gap))


def test(g):
    found, controls, wrong = {}, {}, []
    for row in rows():
        row.prepare(g)
        controls[row.name] = control(g, row)
        found[row.name] = guarded(g, row)
        if not is_right(row, found[row.name], controls[row.name]):
            wrong.append(row.name)
    total = {k: sum(r[k] for r in found.values()) for k in (*SAID, "aborted")}
    return {"ok": not wrong, "wrong": wrong, "restarts": TIMES * len(found), **total,
            "control_refused": {n: r["refused"] for n, r in controls.items()},
            "control_resets": {n: r["resets"] for n, r in controls.items()}, "rows": found}


def main():
    return on_guard(test)
