# SPDX-License-Identifier: BSD-2-Clause
"""
The agent of the guards or its keeper can be killed at any time: the other one starts it again, and
no connection is lost, whatever the server does meanwhile.

Steps:
 1. a server on ::, both families, started by `ferry guard`
 2. fifty times: the server is stopped, 20 clients queue (IPv4 and IPv6), SIGKILL to the server, 10
    clients come while nobody listens, and it is started again; agent or keeper, by lot, is killed
    by SIGKILL at one of four moments in turn: while the queue is the server's, with the server's
    death, while all are held, and with the start of the next server, which stops itself once it
    listens and is let go on after the kill. Queued at that moment: more
    than 0. All 30 are answered
 3. after each, agent and keeper are two living processes again, one of them new, and the server is
    a member
 4. 500 are held, and a server with a backlog of 5 comes, which gets them a few at a time: ten more
    kills, each after some more answers; all 500 are answered
 5. the agent is killed while a new server is stopped in its first listen(), of which no agent knows
    yet: the server goes on, is guarded, and answers
 6. control: both are killed in one moment while 20 are held: these 20 are reset
 7. a new agent starts on the same socket, and off leaves nothing
"""
import os
import random
import signal

from clients import Clients
from guard import HOST, LOCAL, PORT, alive, kill_both, on_guard, state, stop
from net import Failure, wait_for
import servers

ROUNDS = 50
CLIENTS = 10  # of each family
LATE = 5
MANY = 250
KILLS = 10  # while many are handed over
ALL = 2 * (CLIENTS + LATE)
MOMENTS = ("queued", "death", "held", "start")
ARGV = servers.python("::", PORT)


def queue(g, p, count=CLIENTS):
    stop(p.pid)
    crowds = [Clients(g.ns(HOST), LOCAL[f], PORT, count) for f in (4, 6)]
    for c in crowds:
        c.wait_sent()
    g.wait_queued(2 * count)
    return crowds


def pair(g):
    """Agent and keeper, once both live."""
    def both():
        code, answer = g.ferry("list", check=False)
        if code or not (alive(answer["agent"]) and alive(answer["keeper"])):
            return None
        g.agents |= {answer["agent"], answer["keeper"]}
        return {k: answer[k] for k in ("agent", "keeper")}

    return wait_for("agent and keeper to live", both, 15, 0.01)


def kill(g, victim):
    """How many are queued as it dies."""
    queued = sum(g.queues())
    os.kill(victim, signal.SIGKILL)
    return queued


def one_round(g, p, which, moment):
    """The next server, and what became of the clients."""
    before = pair(g)
    crowds = queue(g, p)
    queued = 0
    if moment == "queued":
        queued = kill(g, before[which])
        p.kill()
    elif moment == "death":
        p.kill()
        queued = kill(g, before[which])
    g.stop(p, signal.SIGKILL)
    g.wait_queued(2 * CLIENTS)  # by the kernel: the agent may be away
    crowds += [Clients(g.ns(HOST), LOCAL[f], PORT, LATE) for f in (4, 6)]
    for c in crowds[2:]:
        c.wait_sent()
    g.wait_queued(ALL)
    if moment == "held":
        queued = kill(g, before[which])
    p = g.unguarded(*ARGV, *(("stops",) if moment == "start" else ()))
    if moment == "start":
        queued = kill(g, before[which])
        wait_for("the server to listen", lambda: state(p.pid) == "T")
        p.send_signal(signal.SIGCONT)
    figures = [c.finish() for c in crowds]
    after = wait_for("the one that was killed to be back", lambda: other(before, pair(g), which),
                     15, 0.01)
    g.wait_member(p.pid)
    return p, queued, sum(f["answered"] for f in figures), figures, after


def other(before, after, which):
    return after if after[which] != before[which] else None


def answers(crowds):
    return sum(c.ended["answered"] for c in crowds)


def handing_over(g, p):
    """The next server, and what was queued at each kill; then what became of all."""
    crowds = queue(g, p, MANY)
    g.stop(p, signal.SIGKILL)
    g.wait_held(2 * MANY)
    p = g.unguarded(*servers.python("::", PORT, "short"))
    queued = []
    for n in range(KILLS):
        before = pair(g)
        was = answers(crowds)
        wait_for("some more answers", lambda: answers(crowds) > was)
        queued.append(kill(g, before[("agent", "keeper")[n % 2]]))
    figures = [c.finish() for c in crowds]
    pair(g)
    g.stop(p, signal.SIGKILL)
    p = g.unguarded(*ARGV)
    g.wait_member(p.pid)
    return p, {"fewest_queued": min(queued), "answered": sum(f["answered"] for f in figures)}


def first_listen(g):
    """A server that has to be stopped in its first listen(), and what it then answered."""
    start = os.path.join(g.dir, "start")
    agent = pair(g)["agent"]
    p = g.guarded("/bin/sh", "-c", f'until [ -e {start} ]; do sleep 0.01; done; exec "$@"', "sh",
                  *servers.python("::", PORT + 1), port=PORT + 1)
    wait_for("the port to be registered", lambda: g.guards(PORT + 1))
    stop(agent)
    open(start, "w").close()
    wait_for("the server to be stopped", lambda: state(p.pid) == "T")
    crowds = [Clients(g.ns(HOST), LOCAL[f], PORT + 1, CLIENTS) for f in (4, 6)]
    os.kill(agent, signal.SIGKILL)
    g.wait_member(p.pid, port=PORT + 1)
    answered = sum(c.finish()["answered"] for c in crowds)
    g.off("--port", PORT + 1)
    g.stop(p)
    return answered


def both_at_once(g, p):
    """The control: nobody has the descriptors any more."""
    crowds = queue(g, p)
    g.stop(p, signal.SIGKILL)
    g.wait_held(2 * CLIENTS)
    now = pair(g)
    kill_both(now.values())
    wait_for("both to be gone", lambda: not any(map(alive, now.values())))
    figures = [c.finish() for c in crowds]
    return sum(f["resets"] for f in figures)


def test(g):
    seed = os.getpid()
    lots = random.Random(seed)
    p = g.guarded(*ARGV)
    g.wait_member(p.pid)
    killed, rows, wrong = {}, [], []
    for n in range(ROUNDS):
        which, moment = lots.choice(("agent", "keeper")), MOMENTS[n % len(MOMENTS)]
        try:
            p, queued, answered, figures, _ = one_round(g, p, which, moment)
        except Failure as e:
            raise Failure(f"round {n}, {which} killed at {moment}, seed {seed}: {e}") from None
        rows.append((queued, answered))
        key = f"{which}_{moment}"
        killed[key] = killed.get(key, 0) + 1
        if not queued or answered != ALL:
            wrong.append([n, key, queued, figures])
    p, handed = handing_over(g, p)
    listened = first_listen(g)
    control = both_at_once(g, p)
    back = g.guarded(*ARGV)
    g.wait_member(back.pid)
    found = g.objects()
    g.off()
    g.wait_gone(found)
    lost = sum(ALL - answered for _, answered in rows)
    return {"ok": not wrong and control == listened == 2 * CLIENTS and len(rows) == ROUNDS and
            handed["answered"] == 2 * MANY and handed["fewest_queued"] > 0, "seed": seed,
            "handing_over": handed, "first_listen": listened,
            "kills": len(rows), "queued": sum(q for q, _ in rows), "lost": lost,
            "fewest_queued": min(q for q, _ in rows), "control_resets": control,
            "wrong": wrong[:5], "killed": killed}


def main():
    return on_guard(test)
