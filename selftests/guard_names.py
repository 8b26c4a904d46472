# SPDX-License-Identifier: BSD-2-Clause
"""
Whose listeners may join is known by a program's path, and shown by its name: neither has to be what
one would expect.

Steps, over IPv4 and IPv6:
 1. a server runs while its file is replaced, as a package manager does; it is guarded by --pid, killed
    with 10 in its queue, and started again from the new file: all 10 are answered
 2. a server of another program on the same port of another address, guarded by --pid besides: what it
    has queued at its SIGKILL is answered by its next
 3. it calls itself by a name that the kernel cuts within a character, and is guarded; the agent is
    killed; it is still a member, and what is queued at its SIGKILL is held for the next
"""
import os
import shutil
import signal

from guard import LOCAL, PORT, alive, on_guard
from net import wait_for
import servers

CLIENTS = 10
NAME = "import ctypes; ctypes.CDLL(None).prctl(15, 'abcdefghijklmn\u0439'.encode())\n"


def replace(path):
    if os.path.exists(path):
        os.unlink(path)
    shutil.copy("/usr/bin/python3", path)


def died_and_back(g, family, p, argv):
    """Answered by the next one."""
    crowd = g.dies_with_a_queue(p, LOCAL[family], CLIENTS)
    g.wait_held(CLIENTS)
    p = g.unguarded(*argv)
    answered = crowd.finish()["answered"]
    g.all_off()
    g.stop(p, signal.SIGKILL)
    wait_for("the server to be gone", lambda: not g.queues())
    return answered


def replaced(g, family):
    path = os.path.join(g.dir, "server")
    replace(path)
    argv = [path, *servers.python(LOCAL[family], PORT)[1:]]
    p = g.unguarded(*argv)
    g.wait_listening()
    replace(path)
    g.attach(p.pid)
    g.wait_member(p.pid)
    return died_and_back(g, family, p, argv)


def another(g, family):
    path = os.path.join(g.dir, "server")
    replace(path)
    first = g.unguarded(*servers.python(LOCAL[10 - family], PORT))
    g.wait_listening()
    argv = [path, *servers.python(LOCAL[family], PORT)[1:]]
    p = g.unguarded(*argv)
    g.wait_listening(count=2)
    g.attach(first.pid)
    g.attach(p.pid)
    crowd = g.dies_with_a_queue(p, LOCAL[family], CLIENTS)
    g.wait_held(CLIENTS)
    p = g.unguarded(*argv)
    answered = crowd.finish()["answered"]
    g.all_off()
    for server in (first, p):
        g.stop(server, signal.SIGKILL)
    wait_for("the servers to be gone", lambda: not g.queues())
    return answered


def cut_name(g, family):
    argv = servers.python(LOCAL[family], PORT)
    argv[2] = NAME + argv[2]
    p = g.guarded(*argv)
    g.wait_member(p.pid)
    agent = g.list()["agent"]
    os.kill(agent, signal.SIGKILL)
    wait_for("the next agent", lambda: not alive(agent) and g.list(False).get("agent"))
    g.wait_member(p.pid)
    return died_and_back(g, family, p, argv)


def test(g):
    rows = {f"{f.__name__}_v{family}": f(g, family) for f in (replaced, another, cut_name)
            for family in (4, 6)}
    return {"ok": all(n == CLIENTS for n in rows.values()), **rows}


def main():
    return on_guard(test)
