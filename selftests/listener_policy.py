# SPDX-License-Identifier: BSD-2-Clause
"""
Which of a guarded port's listeners is given what, as `ferry listener` sets it: generations for a
deploy that rolls, and weights. Options that differ are in listener_kinds.

Steps, clients of IPv4 and IPv6 in each:
 1. rolling: one nginx works; --new wait; a second one is given nothing beside it; under load
    `generation` makes it the working one, and back, ten times: from then on all new ones are
    answered by it, nobody is refused or reset
 2. the first is killed with clients in its queue, and more that come: the second answers all, and
    is the working one. Control: two that are not guarded; those of the killed one are reset
 3. control of 1: --new take; a third one has all new ones as soon as it listens
 4. two nginx, of which the second works; `generation` makes it the first; both open more listeners:
    these are of the generation of their nginx, and the first still works
 5. weights: of a server that forks, four listeners have equal shares of 800 (control); then with
    weights 1, 3, 0 and 0 they have a quarter, three quarters and nothing, within five sigma. One
    with a queue gets weight 0: it gets nothing more, and when it is killed its queue goes to the
    others. All have weight 0: who comes is held, until one has 1
 6. SO_INCOMING_CPU at the listeners changes nothing in who answers which source port. Control:
    not guarded, it decides
 7. generations: while another one works, a killed listener's queue goes to its siblings; and to the
    one that works when none is left of them (control)
 8. what is asked wrongly is refused, as text and as JSON, and changes nothing; what is asked
    rightly does (control), and outlives the agent
"""
import json
import math
import os
import signal
import socket
import threading

from clients import ABORT, sums
from guard import ANY, HOST, LOCAL, children, listeners, on_guard, stop
from net import Failure, enter, wait_for
from policy import (asked, both, count_by, fates, ferry, fill, forked, kill_all, listener, queued,
                    rows, states, weigh)
import servers

ROLL, CONTROL, WEIGHTS, HEIRS, WRONG, UNGUARDED, NOBODY, MORE = range(8080, 8088)
CLIENTS = 20  # of each family, where it is not said otherwise
LOAD = 4
FLIPS = 10
SHARED = 400
OF_ONE = 20
MANY = 150  # so that the guard looks while the kernel moves them
SOURCES = range(2000, 2032)  # ports that no other client here has
SO_INCOMING_CPU = 49


def nginx(g, name, port=ROLL, workers=1, options=""):
    return servers.nginx(g, ANY.values(), port, workers, options, name)


def processes(p):
    return [p.pid, *children(p.pid)]


def flip(g, load, running, number):
    """That generation works; how many the other one answers from then on, of the load, and who has
    answered new ones."""
    said = listener(g, "generation", ROLL, number)
    other = {1: "two", 2: "one"}[number]
    before = count_by(load, running)[other]
    new = asked(g, ROLL, CLIENTS, running)
    for c in load:
        c.wait_answered(50)
    return {"said": said["addresses"], "new": new,
            "late": count_by(load, running)[other] - before}


def flips(g, running):
    load = both(g, ROLL, LOAD, again=True)
    for c in load:
        c.wait_answered(50)
    found = {"early": dict(count_by(load, running)),
             "flips": [flip(g, load, running, n) for n in (2, 1)]}
    for n in range(FLIPS):
        listener(g, "generation", ROLL, 2 - n % 2)
        for c in load:
            c.wait_answered(20)
    found["load"] = sums(load)
    return found


def is_rolled(r):
    load = r["load"]
    return (r["early"].keys() == {"one"} and load["answered"] == sum(load.values()) and
            [f["new"] for f in r["flips"]] == [{n: 2 * CLIENTS} for n in ("two", "one")] and
            all(f["late"] <= 2 * LOAD and f["said"] == 2 for f in r["flips"]))


def first_dies(g, running):
    """The working one, with a queue, and with a load that comes all the while."""
    pids = processes(running["one"])
    for pid in pids:
        stop(pid)
    crowds = both(g, ROLL, CLIENTS) + both(g, ROLL, LOAD, again=True)
    for c in crowds:
        c.wait_sent()
    g.wait_queued(2 * (CLIENTS + LOAD), ROLL)
    kill_all(pids)
    g.stop(running["one"])
    for c in crowds[2:]:
        c.wait_answered(50)
    found = fates(crowds, running)
    return {"had": found, "new": asked(g, ROLL, CLIENTS, running),
            "states": states(g, ROLL, running)}


def rolling(g):
    running = {"one": g.guarded(*nginx(g, "one"), port=ROLL)}
    g.wait_member(running["one"].pid, ROLL, 2)
    listener(g, "policy", ROLL, "--new", "wait")
    running["two"] = g.unguarded(*nginx(g, "two"))
    g.wait_member(running["two"].pid, ROLL, 2)
    r = {"waits": states(g, ROLL, running), "new": asked(g, ROLL, CLIENTS, running),
         "flips": flips(g, running)}
    listener(g, "generation", ROLL, 1)
    r["dies"] = first_dies(g, running)
    listener(g, "policy", ROLL, "--new", "take")
    running["three"] = g.unguarded(*nginx(g, "three"))
    g.wait_member(running["three"].pid, ROLL, 2)
    r["take"] = {"new": asked(g, ROLL, CLIENTS, running), "states": states(g, ROLL, running)}
    g.all_off()
    for p in (running["two"], running["three"]):
        g.stop(p)
    dies = r["dies"]
    r["wrong"] = [k for k, ok in {
        "waits": r["waits"] == {"one": (1, "working"), "two": (2, "waiting")},
        "new": r["new"] == {"one": 2 * CLIENTS},
        "flips": is_rolled(r["flips"]),
        "dies": dies["had"].keys() == {"two"} and dies["had"]["two"] >= 2 * CLIENTS + 100,
        "dies_new": dies["new"] == {"two": 2 * CLIENTS} and
        dies["states"] == {"two": (2, "working")},
        "take": r["take"] == {"new": {"three": 2 * CLIENTS},
                              "states": {"two": (2, "waiting"), "three": (3, "working")}},
    }.items() if not ok]
    return r


def begins(g, name, start):
    """An nginx with two listeners on each address."""
    p = start(nginx(g, name, MORE, 2, "reuseport"))
    g.wait_member(p.pid, MORE, 2, 2)
    return p


def grows(g, name, p):
    """It opens two more on each address."""
    nginx(g, name, MORE, 4, "reuseport")
    old = set(children(p.pid))
    p.send_signal(signal.SIGHUP)
    g.wait_member(p.pid, MORE, 2, 4)
    wait_for("its old workers to end", lambda: not old & set(children(p.pid)))


def found_states(g, running):
    """Of all listeners of each server."""
    named = {p.pid: name for name, p in running.items()}
    return sorted({(named[r["pid"]], r["generation"], r["state"]) for r in rows(g, MORE)})


def growing(g):
    running = {"one": begins(g, "more_one", lambda argv: g.guarded(*argv, port=MORE))}
    running["two"] = begins(g, "more_two", lambda argv: g.unguarded(*argv))
    r = {"before": found_states(g, running)}
    listener(g, "generation", MORE, 1)
    grows(g, "more_two", running["two"])
    grows(g, "more_one", running["one"])
    r["after"], r["new"] = found_states(g, running), asked(g, MORE, CLIENTS, running)
    g.all_off()
    for p in running.values():
        g.stop(p)
    r["wrong"] = [k for k, ok in {
        "before": r["before"] == [("one", 1, "waiting"), ("two", 2, "working")],
        "after": r["after"] == [("one", 1, "working"), ("two", 2, "waiting")],
        "new": r["new"] == {"one": 2 * CLIENTS}}.items() if not ok]
    return r


def unguarded_dies(g):
    """Two servers share a port; one is stopped, has its share in its queue and is killed."""
    running = [g.unguarded(*servers.python("::", UNGUARDED, "reuseport")) for _ in range(2)]
    g.wait_listening(UNGUARDED, 2)
    stop(running[0].pid)
    crowds = both(g, UNGUARDED, 2 * OF_ONE)
    for c in crowds:
        c.wait_sent()
    wait_for("the other one to have answered",
             lambda: sum(c.ended["answered"] for c in crowds) + max(g.queues(UNGUARDED)) ==
             4 * OF_ONE)
    had = max(g.queues(UNGUARDED))
    g.stop(running[0], signal.SIGKILL)
    resets = sums(crowds)["resets"]
    g.stop(running[1])
    return {"queued": had, "resets": resets, "wrong": [] if resets == had > 0 else ["resets"]}


def is_share(n, of, share):
    """Within five sigma of a binomial distribution."""
    return abs(n - of * share) <= 5 * math.sqrt(of * share * (1 - share))


def shares(g, pids):
    crowds = both(g, WEIGHTS, SHARED)
    figures = sums(crowds)
    if figures["answered"] != sum(figures.values()):
        raise Failure(f"some of those that were to be shared are lost: {figures}")
    return [sum(c.by[pid] for c in crowds) for pid in pids]


def drained(g, victim, others):
    """One with a queue has weight 0, and is killed."""
    crowds = fill(g, WEIGHTS, victim, OF_ONE)
    had = queued(g, WEIGHTS, victim)
    weigh(g, WEIGHTS, 0, victim)
    new = sums(both(g, WEIGHTS, 2 * CLIENTS))["answered"]
    state = [r["state"] for r in rows(g, WEIGHTS) if r["pid"] == victim]
    more = queued(g, WEIGHTS, victim) - had
    kill_all([victim])
    figures = sums(crowds)
    lost = figures.pop("answered") - sum(c.by[pid] for c in crowds for pid in others)
    return {"had": had, "more": more, "new": new, "state": state,
            "lost": lost + sum(figures.values())}


def all_drained(g, pids):
    """Nobody is to be given anything: who comes is held."""
    weigh(g, WEIGHTS, 0, *pids)
    crowds = both(g, WEIGHTS, CLIENTS)
    for c in crowds:
        c.wait_sent()
    g.wait_held(2 * CLIENTS, WEIGHTS)
    early = sum(sum(c.figures().values()) for c in crowds)
    weigh(g, WEIGHTS, 1, pids[0])
    figures = sums(crowds)
    return {"early": early, "by_one": sum(c.by[pids[0]] for c in crowds), **figures}


def weights(g):
    p = g.guarded(*servers.python("::", WEIGHTS, "fork"), port=WEIGHTS)
    with forked(g, p, WEIGHTS) as pids:
        r = {"incoming_cpu": incoming_cpu(g, WEIGHTS, pids), "equal": shares(g, pids)}
        weigh(g, WEIGHTS, 3, pids[1])
        weigh(g, WEIGHTS, 0, *pids[2:])
        r["weighted"] = shares(g, pids)
        r["states"] = [next(row["state"] for row in rows(g, WEIGHTS) if row["pid"] == pid)
                       for pid in pids]
        weigh(g, WEIGHTS, 1, *pids)
        r["drained"] = drained(g, pids[3], pids[:3])
        r["all_drained"] = all_drained(g, pids[:3])
        g.all_off()
    one, last = r["drained"], r["all_drained"]
    r["wrong"] = [k for k, ok in {
        "incoming_cpu": r["incoming_cpu"]["same"] and len(r["incoming_cpu"]["by"]) == 4,
        "equal": all(is_share(n, 2 * SHARED, 1 / 4) for n in r["equal"]) and
        not is_share(r["equal"][1], 2 * SHARED, 3 / 4),
        "weighted": r["weighted"][2:] == [0, 0] and
        is_share(r["weighted"][1], 2 * SHARED, 3 / 4) and
        not is_share(r["weighted"][1], 2 * SHARED, 1 / 4),
        "states": r["states"] == ["working", "working", "drained", "drained"],
        "drained": one["had"] >= OF_ONE and not one["more"] and not one["lost"] and
        one["new"] == 4 * CLIENTS and one["state"] == ["drained"],
        "all_drained": not last["early"] and last["by_one"] == last["answered"] == 2 * CLIENTS,
    }.items() if not ok]
    return r


def ask(address, port, source):
    """The process that answers a client from this port. The client's reset ends what the server's
    end would leave of the connection: the port comes again."""
    with socket.create_connection((address, port), 10, (address, source)) as s:
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while data := s.recv(4096):
            answer += data
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    return int(answer.lower().partition(b"\r\nx-pid: ")[2].split()[0])


def choices(g, port, cpu):
    """Who answers each source port, asked from one CPU, which is also where lo delivers."""
    found = {}

    def work():
        enter(f"/run/netns/{g.ns(HOST)}")
        os.sched_setaffinity(0, {cpu})
        for family in (4, 6):
            for source in SOURCES:
                found[family, source] = ask(LOCAL[family], port, source)

    t = threading.Thread(target=work)
    t.start()
    t.join()
    if len(found) != 2 * len(SOURCES):
        raise Failure(f"{len(found)} answers only")
    return found


def incoming_cpu(g, port, pids):
    """The first listener is the CPU's that all of it happens on, the others are another's."""
    cpu = min(os.sched_getaffinity(0))
    plain = choices(g, port, cpu)
    for pid in pids:
        for s in listeners(pid):
            s.setsockopt(socket.SOL_SOCKET, SO_INCOMING_CPU, cpu if pid == pids[0] else cpu + 1)
            s.close()
    chosen = choices(g, port, cpu)
    return {"same": plain == chosen, "by": sorted(set(plain.values())),
            "first": sum(pid == pids[0] for pid in chosen.values())}


def unguarded_cpu(g):
    p = g.unguarded(*servers.python("::", CONTROL, "fork", "reuseport"))
    with forked(g, p, CONTROL) as pids:
        g.wait_listening(CONTROL, 4)
        r = incoming_cpu(g, CONTROL, pids)
    r["wrong"] = [] if not r["same"] and r["first"] == 2 * len(SOURCES) else ["incoming_cpu"]
    return r


def heirs(g):
    p = g.guarded(*servers.python("::", HEIRS, "fork"), port=HEIRS)
    with forked(g, p, HEIRS) as pids:
        listener(g, "policy", HEIRS, "--new", "wait")
        victim, siblings = pids[3], pids[:3]
        crowds = fill(g, HEIRS, victim, MANY)
        other = {"other": g.apart(*servers.python("::", HEIRS))}
        g.wait_member(other["other"].pid, HEIRS)
        listener(g, "generation", HEIRS, 2)
        r = {"works": asked(g, HEIRS, CLIENTS, other), "had": queued(g, HEIRS, victim)}
        kill_all([victim])
        r["siblings"] = fates(crowds, {})
        r["strangers"] = list(set(r["siblings"]) - set(siblings))
        listener(g, "generation", HEIRS, 1)
        for pid in siblings:
            stop(pid)
        crowds = both(g, HEIRS, CLIENTS)
        for c in crowds:
            c.wait_sent()
        g.wait_queued(2 * CLIENTS, HEIRS)
        listener(g, "generation", HEIRS, 2)
        r["early"] = sum(sum(c.figures().values()) for c in crowds)
        kill_all(siblings)
        r["last"] = fates(crowds, other)
        g.all_off()
    g.stop(other["other"])
    r["wrong"] = [k for k, ok in {
        "works": r["works"] == {"other": 2 * CLIENTS},
        "siblings": r["had"] >= MANY and not r["strangers"],
        "control": not r["early"] and r["last"] == {"other": 2 * CLIENTS}}.items() if not ok]
    return r


# of `ferry listener`: its exit code, and words of the error
PORT_WORDS = "--port P [--new take|wait] [--options alike|any] [--pid N --weight W] is wanted"
REFUSED = {
    "list_port": (("list", "--port", "x"), 2, "--port: 1 to 65535, not 'x'"),
    "list_word": (("list", "--prot", WRONG), 2, "[--port P] is wanted"),
    "none": (("generation",), 2, "--port P GENERATION is wanted"),
    "no_number": (("generation", "--port", WRONG), 2, "--port P GENERATION is wanted"),
    "port_zero": (("generation", "--port", 0, 1), 2, "--port: 1 to 65535, not '0'"),
    "word": (("generation", "--port", WRONG, "new"), 2, "GENERATION: 0 to 4294967295, not 'new'"),
    "empty": (("generation", "--port", WRONG, ""), 2, "GENERATION"),
    "less": (("generation", "--port", WRONG, -1), 2, "GENERATION"),
    "more": (("generation", "--port", WRONG, 1 << 32), 2, "GENERATION"),
    "later": (("generation", "--port", WRONG, 9), 3, "generation 9 is on port 8084: there are 1 2"),
    "zero": (("generation", "--port", WRONG, 0), 3, "no listener of generation 0"),
    "nobody": (("generation", "--port", NOBODY, 1), 3, "nothing is guarded there"),
    "no_port": (("policy", "--new", "wait"), 2, PORT_WORDS),
    "new": (("policy", "--port", WRONG, "--new", "soon"), 2, "--new: take or wait, not 'soon'"),
    "no_new": (("policy", "--port", WRONG, "--new"), 2, PORT_WORDS),
    "options": (("policy", "--port", WRONG, "--options", "all"), 2,
                "--options: alike or any, not 'all'"),
    "key": (("policy", "--port", WRONG, "--old", "wait"), 2, "'--old' is not understood"),
    "pid": (("policy", "--port", WRONG, "--pid", "x", "--weight", 1), 2, "--pid: 0 to"),
    "weight": (("policy", "--port", WRONG, "--pid", 1, "--weight", 1001), 2,
               "--weight: 0 to 1000, not '1001'"),
    "no_weight": (("policy", "--port", WRONG, "--pid", 1), 2, PORT_WORDS),
    "no_pid": (("policy", "--port", WRONG, "--weight", 1), 2, PORT_WORDS),
    "not_there": (("policy", "--port", WRONG, "--new", "wait", "--pid", 1, "--weight", 1), 3,
                  "no listener there"),
    "elsewhere": (("policy", "--port", NOBODY, "--new", "wait"), 3, "nothing is guarded there"),
}


def is_refused(g, words, code, text):
    """As text on stderr, and as JSON on stdout."""
    plain, data = (ferry(g, "listener", *words, as_json=as_json) for as_json in (False, True))
    error = {2: "usage", 3: "not-found"}[code]
    said = json.loads(data.stdout)
    return (plain.returncode == data.returncode == code and not plain.stdout and
            f"ferry: {error}: " in plain.stderr and text in plain.stderr and
            said["error"] == error and text in said["text"])


def policy_of(g):
    """All of it, as the agent says."""
    row = g.one(WRONG)
    return [row["new"], row["options"], row["working"],
            [(m["pid"], m["generation"], m["weight"]) for m in row["members"]]]


def next_agent(g):
    """The keeper starts one where one was killed."""
    before = g.list()["agent"]
    os.kill(before, signal.SIGKILL)
    wait_for("another agent", lambda: g.list(False).get("agent", before) != before)


def refusals(g):
    running = {"one": g.guarded(*servers.python("::", WRONG), port=WRONG)}
    g.wait_member(running["one"].pid, WRONG)
    running["two"] = g.apart(*servers.python("::", WRONG))
    g.wait_member(running["two"].pid, WRONG)
    before = policy_of(g)
    wrong = [name for name, row in REFUSED.items() if not is_refused(g, *row)]
    same = policy_of(g) == before
    listener(g, "generation", WRONG, 1)
    listener(g, "policy", WRONG, "--new", "wait", "--options", "any", "--pid", running["two"].pid,
             "--weight", 1000)
    asked_for = ["wait", "any", 1, [(p.pid, n + 1, (1, 1000)[n])
                                    for n, p in enumerate(running.values())]]
    changed = policy_of(g) == asked_for
    next_agent(g)
    text = ferry(g, "listener", "list", "--port", WRONG, as_json=False).stdout.splitlines()
    lasts = policy_of(g) == asked_for
    g.all_off()
    for p in running.values():
        g.stop(p)
    columns = ("ADDRESS", "PID", "PROGRAM", "GEN", "STATE", "WEIGHT", "QUEUED", "BACKLOG")
    wrong += [n for n, ok in {"same": same, "changed": changed, "lasts": lasts,
                              "text": text[0].split() == list(columns) and
                              [t.split()[-4] for t in text[1:]] == ["working", "waiting"]
                              }.items() if not ok]
    return {"refused": len(REFUSED), "wrong": wrong}


def nobody_there(g):
    """Without an agent."""
    return {"wrong": [] if is_refused(g, ("list",), 3, "nothing is guarded here") else ["no_agent"]}


def test(g):
    steps = (rolling, growing, unguarded_dies, weights, unguarded_cpu, heirs, refusals)
    r = {step.__name__: step(g) for step in steps}
    r["nobody_there"] = nobody_there(g)
    wrong = [f"{name} {k}" for name, row in r.items() for k in row["wrong"]]
    late = [f["late"] for f in r["rolling"]["flips"]["flips"]]
    return {"ok": not wrong, "wrong": wrong, "late": late,
            "equal": r["weights"]["equal"], "weighted": r["weights"]["weighted"],
            "control_resets": r["unguarded_dies"]["resets"], "rows": r}


def main():
    return on_guard(test)
