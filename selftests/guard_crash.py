# SPDX-License-Identifier: BSD-2-Clause
"""
A server that dies with connections it has not accepted loses none of them: the guard holds them,
and the server that is started again answers each with what it had asked for.

Steps, over IPv4 and IPv6, for a server that `ferry guard` starts, for one that runs already
(--pid), and as control for one that is not guarded:
 1. an unmodified server of Python's; clients are answered
 2. it is stopped; 500 clients connect and send their request; all are in its queue
 3. SIGKILL. The control's clients are reset, all 500, and that is the end of it. The guard says
    that it holds 500; the kernel counts none of the 500 as aborted by the server. `ferry guard`
    ends with the exit code of its command
 4. the server is started again, by its usual command, or by `ferry guard` once more
 5. all are answered, by the new process; none was reset
"""
import signal

from clients import Clients
from guard import HOST, LOCAL, PORT, on_guard, stop
from net import wait_for
import servers

CLIENTS = 500
WAYS = ("command", "pid", "control")


def start(g, way, argv):
    p = g.guarded(*argv) if way == "command" else g.unguarded(*argv)
    if way == "pid" and not g.agents:
        g.wait_listening()
        g.attach(p.pid)
    if way != "control":
        g.wait_member(p.pid)
    else:
        g.wait_listening()
    return p


def crash(g, family, way):
    argv = servers.python(LOCAL[family], PORT)
    p = start(g, way, argv)
    warm = Clients(g.ns(HOST), LOCAL[family], PORT, 8).finish()
    stop(p.pid)
    crowd = Clients(g.ns(HOST), LOCAL[family], PORT, CLIENTS)
    crowd.wait_sent()
    g.wait_queued(CLIENTS)
    aborted = g.aborted()
    code = g.stop(p, signal.SIGKILL)
    result = {"warm": warm["answered"], "queued": crowd.sent, "code": code}
    if way == "control":
        return {**result, **crowd.finish(), "aborted": g.aborted() - aborted}
    g.wait_held(CLIENTS)
    row = g.one()
    result.update(state=row["state"], held=row["held"])
    again = start(g, way, argv)
    result.update(crowd.finish())
    result["by_new"] = crowd.by[again.pid]
    result["counts"] = g.one()["counts"]
    found = g.objects()
    g.off()
    g.wait_gone(found)
    g.agents.clear()
    g.stop(again)
    wait_for("the server to be gone", lambda: not g.queues())
    return result


def is_right(way, r):
    if way == "control":
        return (r["resets"] == CLIENTS and not r["answered"] and not r["aborted"] and
                r["warm"] == 8)
    killed = 128 + signal.SIGKILL if way == "command" else -signal.SIGKILL
    return (r["warm"] == 8 and r["code"] == killed and r["state"] == "holding" and
            r["held"] == CLIENTS and r["answered"] == r["by_new"] == CLIENTS and not r["resets"] and
            r["counts"]["held"] == CLIENTS and not r["counts"]["cancelled"])


def test(g):
    rows = {f"{way}_v{family}": crash(g, family, way) for family in (4, 6) for way in WAYS}
    wrong = [name for name, r in rows.items() if not is_right(name.partition("_")[0], r)]
    guarded = [r for name, r in rows.items() if not name.startswith("control")]
    return {"ok": not wrong, "wrong": wrong,
            "queued": sum(r["queued"] for r in guarded),
            "answered": sum(r["answered"] for r in guarded),
            "resets": sum(r["resets"] for r in guarded),
            "control_resets": [rows[f"control_v{f}"]["resets"] for f in (4, 6)],
            "rows": rows}


def main():
    return on_guard(test)
