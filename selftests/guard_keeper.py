# SPDX-License-Identifier: BSD-2-Clause
"""
The keeper believes nobody but its agent: another user can neither end it nor make it let go.

Steps, over IPv4 and IPv6:
 1. a guarded server is killed with 20 clients in its queue: they are held
 2. user nobody sends the keeper what an agent sends: that it is stopping, that each descriptor is to be
    dropped, a state of his own to keep. Each is refused by the kernel; neither agent nor keeper has a
    socket with an abstract name, which has no owner
 3. the agent is killed: the next one holds the 20 still, and the server, started again, answers them
 4. an agent is killed while it writes its state (the newer of the two copies is cut short), and
    something is in the keeper that no state names: the next agent holds all the same, and gives up what
    is nobody's
 5. control: the same with a socket that anybody may write to: the keeper ends with its agent, and all
    20 are reset
"""
import json
import os
import signal
import socket
import subprocess

from guard import LOCAL, PORT, alive, on_guard
from net import wait_for
import servers

CLIENTS = 20
COPY = 8 << 20  # octets of one of the two copies of the state
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


def descriptors(pid):
    return {n: os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")}


def cut_short(agent):
    """The newer copy of the agent's state."""
    path = next(f"/proc/{agent}/fd/{n}" for n, to in descriptors(agent).items()
                if to.startswith("/memfd:ferry-guard"))
    with open(path, "r+b", buffering=0) as f:
        copies = []
        for at in (0, COPY):
            f.seek(at)
            copies.append((json.loads(f.read(COPY).split(b"\0")[0] or b"{}").get("turn", 0), at))
        f.seek(max(copies)[1] + 40)
        f.write(b"\0")
    return sorted(turn for turn, _ in copies)


def killed_in_mid_write(g, family):
    argv = servers.python(LOCAL[family], PORT)
    p = g.guarded(*argv)
    g.wait_member(p.pid)
    crowd = g.dies_with_a_queue(p, LOCAL[family], CLIENTS)
    g.wait_held(CLIENTS)
    both, kept = g.list(), 0
    os.kill(both["agent"], signal.SIGSTOP)
    kept = len(descriptors(both["keeper"]))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s, open("/dev/null") as f:
        s.connect(g.path + ".keeper")
        socket.send_fds(s, [b"FDSTORE=1\nFDNAME=99-hold0"], [f.fileno()])
    wait_for("the keeper to have it", lambda: len(descriptors(both["keeper"])) == kept + 1)
    turns = cut_short(both["agent"])
    os.kill(both["agent"], signal.SIGKILL)
    wait_for("the next agent", lambda: g.list()["agent"] != both["agent"])
    wait_for("what is nobody's to be given up", lambda: "/dev/null" not in [
        to for n, to in descriptors(both["keeper"]).items() if int(n) > 2])
    g.wait_held(CLIENTS)
    p = g.unguarded(*argv)
    answered = crowd.finish()["answered"]
    g.all_off()
    g.stop(p)
    wait_for("the server to be gone", lambda: not g.queues())
    return {"turns": turns[1] - turns[0], "answered": answered}


def test(g):
    cut = [killed_in_mid_write(g, f) for f in (4, 6)]
    rows = [held_through(g, f, False) for f in (4, 6)]
    controls = [held_through(g, f, True) for f in (4, 6)]
    return {"ok": all(r == {"taken": 0, "abstract": [], "held": CLIENTS, "answered": CLIENTS}
                      for r in rows) and
            cut == [{"turns": 1, "answered": CLIENTS}] * 2 and
            all(c["taken"] == len(WORDS) and c["resets"] == CLIENTS for c in controls),
            "said": len(WORDS), "rows": rows, "cut_short": cut, "controls": controls}


def main():
    return on_guard(test)
