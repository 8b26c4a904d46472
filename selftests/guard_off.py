# SPDX-License-Identifier: BSD-2-Clause
"""
`ferry guard off` leaves nothing of a guard and the server as it was; what it would lose it refuses;
and a dry run attaches nothing and says beforehand exactly what is attached then.

Steps, over IPv4 and IPv6:
 1. `list` and `off` where nothing is guarded: exit 3. `--pid` of a process that listens on nothing,
    and of none: exit 1, by an id. No agent is left of it
 2. a running server; --dry-run: no agent, no program at its listener, SO_REUSEPORT off, the same
    sockets; then it is guarded: each sentence of the dry run is compared with what the kernel
    shows, and what the kernel shows with the sentences
 3. `off --port` of another port: exit 3, the guard stays
 4. under load, off: every program, map and link that agent and keeper had, both processes, the
    holder and the UNIX socket are gone; SO_REUSEPORT is off again and no program is at the
    listener; clients meet neither refusal nor reset, and are answered on
 5. guarded once more and killed with 20 in its queue: off is refused (would-lose), and changes
    nothing; with the server back all 20 are answered, and off works
 6. killed with 20 in its queue; a server with a backlog of 5 comes back and stops: off hands it the
    rest, beyond its backlog, and says how many; it goes on, and answers all 20
 7. killed with 20 in its queue: off --force resets these 20, and leaves nothing either
 8. a server that is guarded by the pid of a worker, which has its listener too, and ends: off
    leaves the listener as it was
"""
import os
import signal

from clients import Clients, lost
from guard import (HOST, LOCAL, PORT, alive, children, has_program, left, mine, on_guard, reuse,
                   show, state)
from net import wait_for
import servers

CLIENTS = 20
HOLDERS = 2
SHARED = """
import os, signal, socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])),
                         family=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)
os.fork()
signal.pause()
"""


def nothing_there(g, pid):
    """Exit codes and ids of commands that find nothing."""
    asked = {"list": ("list",), "off": ("off",), "off_port": ("off", "--port", PORT),
             "no_listener": ("--pid", os.getpid()), "no_process": ("--pid", 2 ** 22 + 1),
             "other_port": ("--pid", pid, "--port", PORT + 1),
             "no_command": ("--port", PORT + 1, "--", "/no/such/command"),
             "fails": ("--port", PORT + 1, "--", "false"), "no_unit": ("--unit", "nobody-has-this")}
    answers = {k: g.ferry(*words, check=False) for k, words in asked.items()}
    wait_for("no agent to be left", lambda: not mine(g.path), 10)
    return {k: [code, a.get("error")] for k, (code, a) in answers.items()}


def shown(g, pid):
    """What is attached, as sentences of the same form as the dry run's."""
    found, row = g.objects(), g.one()
    kinds = {p["id"]: p for p in show("prog") if p["id"] in found["prog"]}
    links = [k for k in show("link") if k["id"] in found["link"]]
    types = sorted(kinds[k["prog_id"]]["type"] for k in links)
    processes = sorted(comm(p) for p in g.agents)
    return {"processes": processes, "links": types, "link_programs":
            sorted(kinds[k["prog_id"]]["name"] for k in links),
            "reuseport_programs": [p["name"] for p in kinds.values() if
                                   p["type"] == "sk_reuseport"],
            "programs": len(kinds), "reuse": reuse(pid), "uid": row["uid"],
            "address": row["address"]}


def comm(pid):
    with open(f"/proc/{pid}/comm") as f:
        return f.read().strip()


def says(would, now, pid):
    """Each sentence is true of what is shown, and nothing is shown of which none speaks."""
    rows = {
        "processes": [s for s in would if all(p in s for p in now["processes"])],
        "cgroup": [s for s in would if "cgroup/bind4" in s and "cgroup/bind6" in s],
        "tracing": [s for s in would if s.startswith("program tp_btf/inet_sock_set_state ")],
        "witness": [s for s in would if s.startswith("programs ") and
                    all(f"'{name}'" in s for name in now["link_programs"][2:])],
        "listener": [s for s in would if "SO_REUSEPORT" in s and str(pid) in s],
        "holder": [s for s in would if "holder" in s and now["address"] in s and
                   str(now["uid"]) in s],
        "program": [s for s in would if "sk_reuseport" in s and now["address"] in s]}
    as_shown = (now["processes"] == ["ferry-guard", "ferry-keeper"] and
                now["links"] == ["cgroup_sock_addr"] * 2 + ["tracing"] * 4 and
                now["link_programs"] == ["bind4", "bind6", "destroy", "report", "state", "state"] and
                len(now["reuseport_programs"]) == 1 and now["programs"] == 7 and
                now["reuse"] == [1])
    said = sorted(s for found in rows.values() for s in found)
    return as_shown and said == sorted(would) and all(len(f) == 1 for f in rows.values())


def dry_run(g, pid):
    """What a dry run says; None if it has changed anything."""
    before = (g.queues(), reuse(pid), mine(g.path), sorted(os.listdir(g.dir)))
    would = g.attach(pid, "--dry-run")["would"]
    after = (g.queues(), reuse(pid), mine(g.path), sorted(os.listdir(g.dir)))
    return would if before == after and not after[2] and after[1] == [0] else None


def gone(g, found):
    """Nothing of the guard is left; the numbers of what was there."""
    g.wait_gone(found)
    g.agents.clear()
    return {"objects": {k: len(v) for k, v in found.items()},
            "gone": not any(left(found).values()) and not mine(g.path) and
            not os.path.exists(g.path)}


def queue_held(g, family, p):
    crowd = g.dies_with_a_queue(p, LOCAL[family], CLIENTS)
    g.wait_held(CLIENTS)
    return crowd


def refused(g):
    """off, where it would lose: its exit code and id, if it has changed nothing."""
    before = g.one()
    code, answer = g.ferry("off", check=False)
    after = g.one()
    return [code, answer.get("error"), before["held"], after["held"],
            all(map(alive, g.agents)), "--force" in answer.get("text", "")]


def under_load(g, family, p):
    load = Clients(g.ns(HOST), LOCAL[family], PORT, 8, again=True)
    load.wait_answered(200)
    found = g.objects()
    attached = bool(all(found.values())) and left(found) == {k: sorted(v) for k, v in found.items()}
    answer = g.off()
    result = {"attached": attached, "off": answer["off"], **gone(g, found)}
    load.wait_answered(500)
    result.update(load.finish(), listeners=len(g.queues()), reuse=reuse(p.pid),
                  program=has_program(p.pid))
    return result


def family_rows(g, family):
    r = {}
    argv = servers.python(LOCAL[family], PORT)
    p = g.unguarded(*argv)
    g.wait_listening()
    r["nothing"] = nothing_there(g, p.pid)
    r["would"] = dry_run(g, p.pid)
    g.attach(p.pid)
    g.wait_member(p.pid)
    r["shown"] = shown(g, p.pid)
    r["says"] = says(r["would"] or [], r["shown"], p.pid)
    r["other_port"] = g.ferry("off", "--port", PORT + 1, check=False)[0], len(g.guards())
    r["load"] = under_load(g, family, p)

    g.attach(p.pid)
    crowd = queue_held(g, family, p)
    r["refused"] = refused(g)
    p = g.unguarded(*argv)
    r["after_refusal"] = crowd.finish()
    g.wait_member(p.pid)
    crowd = queue_held(g, family, p)
    p = g.unguarded(*servers.python(LOCAL[family], PORT, "short", "stops"))
    g.wait_member(p.pid)
    wait_for("it to stop", lambda: state(p.pid) == "T")
    wait_for("its queue to be full", lambda: g.one()["members"][0]["queued"] > 5)
    held, found = g.one()["held"], g.objects()
    r["handed"] = [g.off()["handed"], held]
    r["handed_gone"] = gone(g, found)
    p.send_signal(signal.SIGCONT)
    r["after_off"] = crowd.finish()

    g.attach(p.pid)
    crowd = queue_held(g, family, p)
    found = g.objects()
    r["forced"] = g.off("--force")["off"]
    r["forced_gone"] = gone(g, found)
    r["lost"] = crowd.finish()
    wait_for("every listener to be gone", lambda: not g.queues())
    r["worker_gone"] = worker_gone(g, family)
    return r


def worker_gone(g, family):
    """SO_REUSEPORT and program of a listener, before and after off."""
    p = g.unguarded("/usr/bin/python3", "-c", SHARED, LOCAL[family], str(PORT))
    g.wait_listening()
    worker = wait_for("its worker", lambda: children(p.pid))[0]
    g.attach(worker)
    g.wait_member(worker)
    os.kill(worker, signal.SIGKILL)
    wait_for("the worker to end", lambda: not alive(worker))
    result = reuse(p.pid)
    g.all_off()
    result += reuse(p.pid) + [has_program(p.pid)]
    g.stop(p, signal.SIGKILL)
    wait_for("every listener to be gone", lambda: not g.queues())
    return result


def is_right(r):
    load = r["load"]
    return {
        "nothing": r["nothing"] == {
            "list": [3, "not-found"], "off": [3, "not-found"], "off_port": [3, "not-found"],
            "no_listener": [1, "no-listener"], "no_process": [1, "no-process"],
            "other_port": [1, "no-listener"], "no_command": [127, "no-json"],
            "fails": [1, "no-json"], "no_unit": [3, "no-unit"]},
        "dry_run": bool(r["would"]), "says": r["says"], "other_port": r["other_port"] == (3, 1),
        "load": load["attached"] and load["gone"] and load["off"] == 1 and not lost(
            {k: load[k] for k in ("refused", "resets", "cut", "wrong", "waiting")}),
        "as_before": load["listeners"] == 1 and load["reuse"] == [0] and not load["program"],
        "refused": r["refused"] == [1, "would-lose", CLIENTS, CLIENTS, True, True],
        "after_refusal": r["after_refusal"]["answered"] == CLIENTS,
        "handed": r["handed"][0] == r["handed"][1] > 0 and r["handed_gone"]["gone"],
        "after_off": r["after_off"]["answered"] == CLIENTS,
        "worker_gone": r["worker_gone"] == [1, 0, False],
        "forced": r["forced"] == 1 and r["forced_gone"]["gone"],
        "control": r["lost"]["resets"] == CLIENTS}


def test(g):
    rows = {f"v{family}": family_rows(g, family) for family in (4, 6)}
    wrong = [f"{name} {k}" for name, r in rows.items() for k, ok in is_right(r).items() if not ok]
    return {"ok": not wrong, "wrong": wrong,
            "answered": [r["load"]["answered"] for r in rows.values()],
            "objects": [sum(r["load"]["objects"].values()) for r in rows.values()],
            "handed": [r["handed"] for r in rows.values()],
            "forced_resets": [r["lost"]["resets"] for r in rows.values()], "rows": rows}


def main():
    return on_guard(test)
