# SPDX-License-Identifier: BSD-2-Clause
"""
What an agent leaves behind is taken up as far as it is whole, and the rest is met anew: no descriptor
that is missing keeps the next agent from what is guarded elsewhere.

Steps, over IPv4 and IPv6:
 1. two guarded servers; the keeper loses one descriptor of the first one's group, in turn each of those
    that it has, and the agent is killed: the next one has both servers as members
 2. the first is killed with 10 in its queue: all 10 are answered by the next
 3. a guarded server; agent and keeper are killed in one moment, their program stays at its group:
    --pid guards it again, and a crash loses none of 10
 4. no more descriptors can be kept than two addresses have: a third server is refused in words, and
    left as it was; the first loses none of 10. Control: the third is guarded where there is room
"""
import os
import signal
import socket

from guard import LOCAL, PORT, alive, kill_both, on_guard, reuse
from net import wait_for
import servers

CLIENTS = 10
NAMES = ("program", "socks", "group", "slots", "counts", "hold00", "hold01")


def running(g, family, port=PORT):
    p = g.unguarded(*servers.python(LOCAL[family], port))
    g.wait_listening(port)
    g.attach(p.pid)
    g.wait_member(p.pid, port)
    return p


def died_and_back(g, family, p):
    """Answered by the next one."""
    crowd = g.dies_with_a_queue(p, LOCAL[family], CLIENTS)
    g.wait_held(CLIENTS)
    p = g.unguarded(*servers.python(LOCAL[family], PORT))
    answered = crowd.finish()["answered"]
    g.all_off()
    g.stop(p, signal.SIGKILL)
    return answered


def lose(g, name):
    """The keeper, a descriptor; and the agent its life."""
    both = g.list()
    kept = len(os.listdir(f"/proc/{both['keeper']}/fd"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.connect(g.path + ".keeper")
        s.send(f"FDSTOREREMOVE=1\nFDNAME={name}".encode())
    wait_for("it to be lost", lambda: len(os.listdir(f"/proc/{both['keeper']}/fd")) == kept - 1)
    os.kill(both["agent"], signal.SIGKILL)
    wait_for("the next agent", lambda: g.list(False).get("agent", 0) not in (0, both["agent"]))


def without(g, family, name):
    p, other = running(g, family), running(g, family, PORT + 1)
    lose(g, f"1-{name}")
    g.wait_member(p.pid)
    g.wait_member(other.pid, PORT + 1)
    answered = died_and_back(g, family, p)
    g.stop(other, signal.SIGKILL)
    return answered


def orphaned(g, family):
    p = running(g, family)
    now = g.list()
    kill_both([now["agent"], now["keeper"]])
    wait_for("both to be gone", lambda: not any(alive(now[k]) for k in ("agent", "keeper")))
    g.agents.clear()
    g.attach(p.pid)
    g.wait_member(p.pid)
    return died_and_back(g, family, p)


def full(g, family, limit="kept-max=20"):
    """What the third is told, its SO_REUSEPORT then, and guards of its port; the first one's answered."""
    os.environ.update({"FERRY_FAULT": limit} if limit else {})
    try:
        p, other = running(g, family), running(g, family, PORT + 1)
        third = g.unguarded(*servers.python(LOCAL[family], PORT + 2))
        g.wait_listening(PORT + 2)
        code, answer = g.ferry("--pid", third.pid, check=False)
        found = [code, "20 descriptors are kept" in answer.get("text", ""), reuse(third.pid),
                 len(g.guards(PORT + 2))]
    finally:
        os.environ.pop("FERRY_FAULT", None)
    answered = died_and_back(g, family, p)
    for server in (other, third):
        g.stop(server, signal.SIGKILL)
    return found, answered


def test(g):
    rows = {f"without_{n}_v{f}": without(g, f, n) for n in NAMES for f in (4, 6)}
    rows.update({f"orphaned_v{f}": orphaned(g, f) for f in (4, 6)})
    told = {f: full(g, f) for f in (4, 6)}
    control = {f: full(g, f, "") for f in (4, 6)}
    good = (all(n == CLIENTS for n in rows.values()) and
            all(r == ([1, True, [0], 0], CLIENTS) for r in told.values()) and
            all(r == ([0, False, [1], 1], CLIENTS) for r in control.values()))
    return {"ok": good, **rows, "full": told, "control": control}


def main():
    return on_guard(test)
