# SPDX-License-Identifier: BSD-2-Clause
"""
A server that comes back on another address cannot be given what is held: nobody is reset for it,
the guard says in words what is wrong, and serves them once the server comes back where it was.

Steps, for 0.0.0.0 and 127.0.0.1, for :: and ::1 (IPv6 only), for :: (both families) and 0.0.0.0:
 1. control, not guarded: the server is killed with 50 in its queue: all are reset
 2. guarded: stopped, 50 clients queue, SIGKILL; 50 are held
 3. it comes back on the other address: it is seen; it is among the strangers, with its address and
    words that name both, or is guarded apart; 50 are still held, none was reset or answered
 4. it ends and comes back on the first address: all 50 are answered
 5. it ends with nobody queued, and comes back on the other address: it is guarded there
"""
import signal

from guard import LOCAL, PORT, on_guard
from net import Failure, wait_for
import servers

CLIENTS = 50
# where it is guarded, where it comes back, where clients connect to
ROWS = {"any_v4": (("0.0.0.0",), ("127.0.0.1",), LOCAL[4]),
        "any_v6": (("::", "v6only"), ("::1", "v6only"), LOCAL[6]),
        "dual": (("::",), ("0.0.0.0",), LOCAL[4])}


def argv(address, *words):
    return servers.python(address, PORT, *words)


def control(g, right, at):
    p = g.unguarded(*argv(*right))
    g.wait_listening()
    return g.dies_with_a_queue(p, at, CLIENTS).finish()["resets"]


def seen(g, pid):
    """What the guard says of a process: its row among the strangers, or the address of a guard of
    its own."""
    def look():
        for row in g.guards():
            for s in row["strangers"]:
                if s["pid"] == pid:
                    return s
            if any(m["pid"] == pid for m in row["members"]):
                return {"address": row["address"], "why": "apart"}
        return None

    try:
        return wait_for(f"process {pid} to be seen", look, 10, 0.02)
    except Failure as e:
        raise Failure(f"{e}: {g.list()} | {g.log()}") from None


def mismatch(g, right, other, at):
    result = {"control_resets": control(g, right, at)}
    p = g.guarded(*argv(*right))
    g.wait_member(p.pid)
    crowd = g.dies_with_a_queue(p, at, CLIENTS)
    g.wait_held(CLIENTS)
    wrong = g.unguarded(*argv(*other))
    said = seen(g, wrong.pid)
    result.update(said=said, held=sum(r["held"] for r in g.guards()), early=crowd.figures())
    g.stop(wrong, signal.SIGKILL)
    back = g.unguarded(*argv(*right))
    result.update(crowd.finish(), by_new=crowd.by[back.pid])
    g.stop(back, signal.SIGKILL)
    back = g.unguarded(*argv(*other))
    result["moved"] = seen(g, back.pid)["why"]
    g.all_off()
    g.stop(back)
    wait_for("the server to be gone", lambda: not g.queues())
    words = (said["why"] == "apart" or
             all(f"{w[0]}" in said["why"] for w in (right, other))) and other[0] in said["address"]
    result["ok"] = (result["control_resets"] == CLIENTS and words and
                    result["held"] == CLIENTS and not any(result["early"].values()) and
                    result["moved"] == "apart" and
                    result["answered"] == result["by_new"] == CLIENTS and not result["resets"])
    return result


def test(g):
    rows = {name: mismatch(g, *row) for name, row in ROWS.items()}
    return {"ok": all(r["ok"] for r in rows.values()),
            "wrong": [n for n, r in rows.items() if not r["ok"]],
            "held": sum(r["held"] for r in rows.values()),
            "answered": sum(r["answered"] for r in rows.values()),
            "resets": sum(r["resets"] for r in rows.values()),
            "control_resets": [r["control_resets"] for r in rows.values()], "rows": rows}


def main():
    return on_guard(test)
