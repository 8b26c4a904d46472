# SPDX-License-Identifier: BSD-2-Clause
"""
The keeper believes nobody but its agent: another user can neither end it nor make it let go.

Steps, over IPv4 and IPv6:
 1. a guarded server is killed with 20 clients in its queue: they are held
 2. user nobody sends the keeper what an agent sends: that it is stopping, that each descriptor is to be
    dropped, a state of his own to keep. Each is refused by the kernel; neither agent nor keeper has a
    socket with an abstract name, which has no owner
 3. the agent is killed: the next one holds the 20 still, and the server, started again, answers them
 4. control: the same with a socket that anybody may write to: the keeper ends with its agent, and all
    20 are reset
"""
import json
import os
import signal
import subprocess

from guard import LOCAL, PORT, alive, on_guard
from net import wait_for
import servers

CLIENTS = 20
# what an agent says, sent by a process of another user's; how many were taken
SAY = """
import array, json, os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
taken = 0
for text in json.loads(sys.argv[2]):
    with open("/dev/null") as f:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [f.fileno()]))]
        try:
            s.sendmsg([text.encode()], rights, 0, sys.argv[1])
            taken += 1
        except PermissionError:
            pass
print(taken)
"""
NAMES = ("state", "command", "ports", "unmet", "events", "1-hold0", "1-hold1", "1-program", "1-socks",
         "1-group", "1-slots", "1-counts")
WORDS = ["STOPPING=1", "FDSTORE=1\nFDNAME=state", *(f"FDSTOREREMOVE=1\nFDNAME={n}" for n in NAMES)]


def say(g):
    """How many of the words are taken from nobody."""
    out = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                          "/usr/bin/python3", "-c",
                          SAY, g.path + ".keeper", json.dumps(WORDS)], capture_output=True, text=True,
                         check=True, timeout=30).stdout
    return int(out)


def abstract(pids):
    """Sockets of these processes that have an abstract name."""
    inodes = set()
    for pid in pids:
        for n in os.listdir(f"/proc/{pid}/fd"):
            inodes.add(os.readlink(f"/proc/{pid}/fd/{n}"))
    with open("/proc/net/unix") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    return [r[7] for r in rows if f"socket:[{r[6]}]" in inodes and len(r) > 7 and r[7][0] == "@"]


def held_through(g, family, open_to_all):
    argv = servers.python(LOCAL[family], PORT)
    p = g.guarded(*argv)
    g.wait_member(p.pid)
    crowd = g.dies_with_a_queue(p, LOCAL[family], CLIENTS)
    g.wait_held(CLIENTS)
    both = g.list()
    if open_to_all:
        os.chmod(g.path + ".keeper", 0o666)
        os.chmod(g.dir, 0o755)
    found = {"taken": say(g), "abstract": abstract((both["agent"], both["keeper"]))}
    os.kill(both["agent"], signal.SIGKILL)
    if open_to_all:
        wait_for("the keeper to end", lambda: not alive(both["keeper"]))
        os.unlink(g.path)
        g.agents.clear()
        return {**found, "resets": crowd.finish()["resets"]}
    wait_for("the next agent", lambda: g.list()["agent"] != both["agent"])
    g.wait_held(CLIENTS)
    p = g.unguarded(*argv)
    found.update(held=CLIENTS, answered=crowd.finish()["answered"])
    g.all_off()
    g.stop(p)
    wait_for("the server to be gone", lambda: not g.queues())
    return found


def test(g):
    rows = [held_through(g, f, False) for f in (4, 6)]
    controls = [held_through(g, f, True) for f in (4, 6)]
    return {"ok": all(r == {"taken": 0, "abstract": [], "held": CLIENTS, "answered": CLIENTS}
                      for r in rows) and
            all(c["taken"] == len(WORDS) and c["resets"] == CLIENTS for c in controls),
            "said": len(WORDS), "rows": rows, "controls": controls}


def main():
    return on_guard(test)
