# SPDX-License-Identifier: BSD-2-Clause
"""
A server of another user than the guard's is guarded as any other; and a third user cannot get in
between.

Steps, over IPv4 and IPv6:
 1. control: a server of nobody's (uid 65534) that is not guarded is killed with 50 in its queue:
    all are reset
 2. the same, started by `ferry guard` as root: the guard names the uid; SIGKILL with 50 in the
    queue: held
 3. a server of uid 65533 is started on the same address while they are held, and once more while
    nobody's runs: it ends, with "Address already in use"; nothing changes for those held
 4. nobody's is started again, not by root: all 50 are answered
 5. what nobody asks of `ferry guard` is refused (not-allowed, exit 1), and changes nothing
 6. the same once more for the running server by --pid, after `ferry guard off`
"""
import json
import os
import signal
import subprocess

from clients import Clients
from guard import HOST, LOCAL, PORT, on_guard, stop
from net import BUILD, Failure, wait_for
import servers

CLIENTS = 50
NOBODY, OTHER = 65534, 65533
REFUSED = [[(1, "not-allowed")], True]
BUSY = "Address already in use"


def as_user(uid, address):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups",
            *servers.python(address, PORT)]


def dies_with_a_queue(g, p, family):
    stop(p.pid)
    crowd = Clients(g.ns(HOST), LOCAL[family], PORT, CLIENTS)
    crowd.wait_sent()
    g.wait_queued(CLIENTS)
    g.stop(p, signal.SIGKILL)
    return crowd


def intruder(g, family):
    """Another user's server: how it ends, in its own words."""
    p = subprocess.run(["nsenter", f"--net=/run/netns/{g.ns(HOST)}",
                        *as_user(OTHER, LOCAL[family])], capture_output=True, text=True, timeout=30)
    if not p.returncode:
        raise Failure("another user's server has ended well")
    return BUSY if BUSY in p.stderr else p.stderr[-200:]


def crash(g, family, p):
    """The guarded server p dies and comes back, with intruders; what became of it."""
    row = g.wait_member(p.pid)[0]
    running = intruder(g, family)
    crowd = dies_with_a_queue(g, p, family)
    g.wait_held(CLIENTS)
    holding = intruder(g, family)
    now = g.one()
    back = g.unguarded(*as_user(NOBODY, LOCAL[family]))
    figures = crowd.finish()
    return back, {"uid": row["uid"], "intruder": [running, holding], "held": now["held"], **figures,
                  "by_new": crowd.by[back.pid]}


def asked_by_nobody(g, pid):
    """Exit codes and ids of all commands, as nobody; ferry need not be where nobody can go."""
    before = g.one()
    fd = os.open(f"{BUILD}/ferry", os.O_PATH)
    found = set()
    for words in (("list",), ("off",), ("off", "--force"), ("--pid", pid),
                  ("--pid", os.getpid(), "--dry-run"), ("--port", PORT, "--", "true")):
        argv = g.argv(*words)
        argv.insert(1, "-j")
        p = subprocess.run(argv, executable=f"/proc/self/fd/{fd}", pass_fds=[fd], timeout=30,
                           user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True,
                           text=True)
        found.add((p.returncode, json.loads(p.stdout)["error"]))
    os.close(fd)
    return [sorted(found), g.one() == before]


def off(g):
    found = g.objects()
    g.off()
    g.wait_gone(found)
    g.agents.clear()


def rows_of(g, family):
    p = g.unguarded(*as_user(NOBODY, LOCAL[family]))
    g.wait_listening()
    control = dies_with_a_queue(g, p, family).finish()
    p = g.guarded(*as_user(NOBODY, LOCAL[family]))
    back, command = crash(g, family, p)
    command["nobody"] = asked_by_nobody(g, back.pid)
    off(g)
    g.wait_listening()
    g.attach(back.pid)
    last, by_pid = crash(g, family, back)
    off(g)
    g.stop(last)
    wait_for("the server to be gone", lambda: not g.queues())
    return control, {"command": command, "pid": by_pid}


def is_right(r):
    refused = r.get("nobody", REFUSED) == REFUSED
    return (refused and r["uid"] == NOBODY and r["intruder"] == [BUSY, BUSY] and
            r["held"] == CLIENTS and r["answered"] == r["by_new"] == CLIENTS and not r["resets"])


def test(g):
    controls, rows = [], {}
    for family in (4, 6):
        control, found = rows_of(g, family)
        controls.append(control["resets"])
        rows.update({f"{way}_v{family}": r for way, r in found.items()})
    wrong = [n for n, r in rows.items() if not is_right(r)]
    return {"ok": not wrong and controls == [CLIENTS, CLIENTS], "wrong": wrong,
            "held": sum(r["held"] for r in rows.values()),
            "answered": sum(r["answered"] for r in rows.values()),
            "resets": sum(r["resets"] for r in rows.values()),
            "control_resets": controls, "rows": rows}


def main():
    return on_guard(test)
