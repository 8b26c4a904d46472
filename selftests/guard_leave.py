# SPDX-License-Identifier: BSD-2-Clause
"""
Clients that do not wait as they came while they are held: who has ended its sending is answered,
who has gone is counted as gone and costs nobody else anything.

Steps, over IPv4 and IPv6:
 1. a guarded server is stopped, 30 clients send their requests and queue, SIGKILL: 30 are held
 2. ten of them end their sending (FIN), ten abort (RST), ten wait on; 30 are still in the queue:
    the kernel keeps the places of those that have gone
 3. the server is started again: the 20 that are there are answered; counts: 20 alive, 10 dead, none
    cancelled
 4. control: the same without a guard and without a crash, the server only stopped and let go on:
    the same 20 are answered, so what becomes of a client is its own doing
"""
import signal

from clients import Clients
from guard import HOST, LOCAL, PORT, on_guard, stop
from net import wait_for
import servers

EACH = 10


def crowds(g, family):
    """Those who wait, end their sending, abort; all have sent."""
    found = [Clients(g.ns(HOST), LOCAL[family], PORT, EACH) for _ in range(3)]
    for c in found:
        c.wait_sent()
    g.wait_queued(3 * EACH)
    return found


def control(g, family):
    p = g.unguarded(*servers.python(LOCAL[family], PORT))
    g.wait_listening()
    stop(p.pid)
    stay, half, gone = crowds(g, family)
    half.end_sending()
    gone.leave()
    p.send_signal(signal.SIGCONT)
    figures = [c.finish()["answered"] for c in (stay, half, gone)]
    end(g, p)
    return figures


def guarded(g, family):
    argv = servers.python(LOCAL[family], PORT)
    p = g.guarded(*argv)
    g.wait_member(p.pid)
    stop(p.pid)
    stay, half, gone = crowds(g, family)
    g.stop(p, signal.SIGKILL)
    g.wait_held(3 * EACH)
    half.end_sending()
    gone.leave()
    held = g.one()["held"]
    p = g.unguarded(*argv)
    figures = [c.finish()["answered"] for c in (stay, half, gone)]
    wait_for("nobody to be held", lambda: not g.one()["held"])
    result = {"held": held, "answered": figures, "counts": g.one()["counts"]}
    found = g.objects()
    g.off()
    g.wait_gone(found)
    g.agents.clear()
    end(g, p)
    return result


def end(g, p):
    g.stop(p)
    wait_for("the server to be gone", lambda: not g.queues())


def test(g):
    controls = [control(g, family) for family in (4, 6)]
    rows = [guarded(g, family) for family in (4, 6)]
    ok = all(r["held"] == 3 * EACH and r["answered"] == [EACH, EACH, 0] and
             r["counts"]["alive"] == 2 * EACH and r["counts"]["dead"] == EACH and
             not r["counts"]["cancelled"] for r in rows)
    return {"ok": ok and controls == 2 * [[EACH, EACH, 0]], "controls": controls,
            "held": [r["held"] for r in rows], "answered": [r["answered"] for r in rows],
            "counts": [r["counts"] for r in rows]}


def main():
    return on_guard(test)
