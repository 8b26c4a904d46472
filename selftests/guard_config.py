# SPDX-License-Identifier: BSD-2-Clause
"""
guard.conf: what is wrong in it is named, and nothing is left of an agent that could not start by it;
what is right is guarded, also where the server ran before.

Steps:
 1. each row of WRONG: ferry-guard ends with 1, names the file and what is wrong, and leaves no process
    (whose descriptors all programs, maps and links are) and no socket
 2. a server runs on one port, another port has none yet, IPv4 and IPv6; the agent is started with both
    in its configuration: the one is running, the other waiting, and running when its server comes
 3. both are killed with clients in their queues and started again: all are answered
 4. control: the same without the agent: all are reset
"""
import os
import signal

from clients import Clients, sums
from guard import HOST, LOCAL, PORT, mine, on_guard, stop
from net import BUILD, wait_for
import servers

CLIENTS = 20
LATER = PORT + 1
# what is wrong, and what the agent has to say of it
WRONG = {"port_zero": ("[guard web]\nport = 0\n", "port"),
         "port_word": ("[guard web]\nport = http\n", "port"),
         "port_rest": ("[guard web]\nport = 80x\n", "port"),
         "port_many": (f"[guard web]\nport = {' '.join(map(str, range(1, 18)))}\n", "port"),
         "no_port": ("[guard web]\nprogram = /bin/true\n", "no port"),
         "empty": ("[guard web]\nport = 80\n\n[guard api]\n", "guard api"),
         "key": ("[guard web]\nprot = 80\n", "prot"),
         "section": ("[gaurd web]\nport = 80\n", "gaurd web"),
         "netns": ("[guard web]\nport = 80\nnetns = /nowhere\n", "/nowhere"),
         "not_netns": ("[guard web]\nport = 80\nnetns = /dev/null\n", "/dev/null"),
         "line": ("[guard web]\nport = 80\nnonsense\n", ":3:"),
         "second": ("[guard web]\nport = 80\n[guard api]\nport = -1\n", "guard api"),
         "missing": (None, "guard.conf")}


def config(g, text):
    path = os.path.join(g.dir, "guard.conf")
    if text is None:
        os.unlink(path)
    else:
        with open(path, "w") as f:
            f.write(text)
    return path


def start_agent(g, log):
    return g.start(HOST, f"{BUILD}/ferry-guard", "--socket", g.path, "--config",
                   os.path.join(g.dir, "guard.conf"), log=log)


def is_refused(g, name, text, word):
    path = config(g, text)
    agent = start_agent(g, name)
    wait_for(f"the agent of {name} to end", lambda: agent.poll() is not None)
    wait_for(f"its keeper to end ({name})", lambda: not mine(g.path))
    g.processes.remove(agent)
    with open(os.path.join(g.dir, name)) as f:
        said = f.read()
    return (agent.returncode == 1 and path in said and word in said and
            not [n for n in os.listdir(g.dir) if n.startswith("guard.sock")])


def crowds_of_the_killed(g, family, running):
    """Clients queue at both servers, which are killed."""
    crowds = []
    for port, p in running.items():
        stop(p.pid)
        crowds.append(Clients(g.ns(HOST), LOCAL[family], port, CLIENTS))
        crowds[-1].wait_sent()
        g.wait_queued(CLIENTS, port)
    for p in running.values():
        g.stop(p, signal.SIGKILL)
    return crowds


def serve(g, family, port):
    return g.unguarded(*servers.python(LOCAL[family], port))


def guarded(g, family):
    running = {PORT: serve(g, family, PORT)}
    g.wait_listening()
    config(g, f"[guard web]\nport = {PORT}, {LATER}\n")
    agent = start_agent(g, "agent")
    g.wait_member(running[PORT].pid)
    states = {r["port"]: r["state"] for r in g.list()["guards"]}
    running[LATER] = serve(g, family, LATER)
    g.wait_member(running[LATER].pid, LATER)
    crowds = crowds_of_the_killed(g, family, running)
    for port in running:
        g.wait_held(CLIENTS, port)
        running[port] = serve(g, family, port)
    answered = sums(crowds)["answered"]
    g.all_off()
    g.stop(agent)
    for p in running.values():
        g.stop(p)
    return {"states": states, "answered": answered}


def control(g, family):
    running = {port: serve(g, family, port) for port in (PORT, LATER)}
    for port in running:
        g.wait_listening(port)
    return sums(crowds_of_the_killed(g, family, running))["resets"]


def test(g):
    wrong = [name for name, row in WRONG.items() if not is_refused(g, name, *row)]
    rows = [guarded(g, family) for family in (4, 6)]
    controls = [control(g, family) for family in (4, 6)]
    return {"ok": not wrong and controls == [2 * CLIENTS] * 2 and
            all(r == {"states": {PORT: "running", LATER: "waiting"}, "answered": 2 * CLIENTS}
                for r in rows),
            "refused": len(WRONG) - len(wrong), "refused_of": len(WRONG), "wrong": wrong,
            "rows": rows, "control_resets": controls}


def main():
    return on_guard(test)
