# SPDX-License-Identifier: BSD-2-Clause
"""
What ferry reads it reads without the agent: each answer is the one from before, and says so.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; a stream of either family, one of
    which has moved to B
 2. the streams are held still (their processes are stopped), and each reading command answers on
    each node, as text and as JSON
 3. the agents are ended; each command gives the same answer, but for what it says of the agent; the
    streams go on by what is pinned, and the counters are seen to count them; new agents
 4. the same with agents that are killed, and once more with agents that hang
 5. no such node, no right to read, no bpf file system (in two ways): each command says what it
    lacks and what to do, by exit code and id
"""
import json
import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

from fleet import on_fleet
from net import BUILD, wait_for
from probe import Client, server

STREAM = ("--rate", "200")
PATIENT = ("--timeout", "90000")  # a client that is held still takes that for a silence
FRESH = 40
HOSTS = ("a", "b", "i")
# of any packet on a device, not of flows: agents, too, talk through the devices
OF_ALL = {"foreign", "not-ip", "other-proto"}
AGENT = {"verdict", "agent", "connected"}  # what is said of it
FIXED = (("status",), ("node", "list"), ("flow", "list"), ("flow", "list", "--limit", "1"),
         ("unit", "list"), ("counters",), ("counters", "--all"))
ENDS = (("ended", signal.SIGTERM), ("killed", signal.SIGKILL), ("hung", signal.SIGSTOP))


def ferry(fleet, host, *argv, before=(), node=None):
    p = subprocess.run(["nsenter", f"--net=/run/netns/{fleet.ns(host)}", *before,
                        f"{BUILD}/ferry", *(node if node is not None else
                                            ("--node", fleet.name(host))),
                        "--socket", fleet.socket(host), *argv],
                       capture_output=True, text=True, timeout=40,
                       env={k: v for k, v in os.environ.items() if k != "FERRY_NODE"})
    return p.returncode, p.stdout, p.stderr


def commands(fleet, host):
    flows = fleet.ferry(host, "flow", "list")["flows"]
    units = fleet.units(host)
    return [*FIXED, *(("flow", "show", f["flow"]) for f in flows),
            *(("unit", "show", u["unit"]) for u in units)]


def read_json(answer):
    o = json.loads(answer[1])
    agent = o.pop("agent", None)
    for key in AGENT:
        o.pop(key, None)
    if "counters" in o:
        o["counters"] = [r for r in o["counters"] if r["name"] not in OF_ALL]
    return o, agent


def read_text(answer):
    """Lines, without those of the agent and of what is counted for others; widths may change."""
    return [re.sub(" +", " ", line) for line in answer[1].splitlines()
            if line.split(":")[0] not in AGENT and line.split(" ")[0] not in OF_ALL]


def answers(fleet):
    keys = [(h, argv) for h in HOSTS for argv in commands(fleet, h)]
    with ThreadPoolExecutor(6) as pool:  # status waits a second for an agent that hangs
        text = pool.map(lambda k: ferry(fleet, k[0], *k[1]), keys)
        data = pool.map(lambda k: ferry(fleet, k[0], "-j", *k[1]), keys)
        return dict(zip(keys, zip(text, data)))


def judge(fleet, up, down, how):
    """Rows of what is not as it was, or does not say that there is no agent."""
    wrong = [f"{how}: {key} is missing" for key in set(up) ^ set(down)]
    for (host, argv), (text, data) in down.items():
        if (host, argv) not in up:
            continue
        was_text, was_data = up[host, argv]
        now, agent = read_json(data)
        was, was_agent = read_json(was_data)
        code = 4 if argv == ("status",) else 0
        pid = fleet.agents[host].pid if how == "hung" and code == 0 else 0
        note = "no agent answers" in (text[1] if code else text[2])
        ok = (text[0] == data[0] == code and was_text[0] == was_data[0] == 0 and now == was and
              read_text(text) == read_text(was_text) and was_agent == fleet.agents[host].pid and
              agent == pid and note == (pid == 0) and not was_text[2])
        if not ok:
            wrong.append(f"{how}: {host} {' '.join(argv)}: {text} {data} was {was_text} {was_data}")
    return wrong


def still(fleet, processes):
    """Stops the streams; until what they had on the way has been counted."""
    for p in processes:
        p.send_signal(signal.SIGSTOP)
    seen = [None]

    def same():
        seen.append({h: read_json(ferry(fleet, h, "-j", "counters"))[0] for h in HOSTS})
        return seen[-1] == seen[-2]

    wait_for("the streams to be still", same, 10, 0.1)


def go_on(processes):
    for p in processes:
        p.send_signal(signal.SIGCONT)


def delivered(fleet):
    return sum(r["packets"] for h in HOSTS for r in
               read_json(ferry(fleet, h, "-j", "counters"))[0]["counters"])


def without_agents(fleet, how, sig, clients, processes):
    """One way for agents to be away: (commands, wrong, messages, packets counted meanwhile)."""
    still(fleet, processes)
    up = answers(fleet)
    agents = {h: fleet.agents[h] for h in HOSTS}
    for h in HOSTS:
        agents[h].send_signal(sig)
        if sig != signal.SIGSTOP:
            agents[h].wait(10)
            fleet.processes.remove(agents[h])
    down = answers(fleet)
    wrong = judge(fleet, up, down, how)
    before = delivered(fleet)
    go_on(processes)
    messages = -sum(sum(c.received()) for c in clients)
    for c in clients:
        c.wait_for_more(FRESH)
    messages += sum(sum(c.received()) for c in clients)
    return 2 * len(down), wrong, messages, delivered(fleet) - before


def again(fleet, servers):
    """New agents; whoever serves a unit has offered it again."""
    before = {h: len(s.events("offered")) for h, s in servers.items()}
    for h in HOSTS:
        fleet.start_agent(h)
    for h in HOSTS:
        wait_for(f"agent {h}", lambda h=h: fleet.ready(h), 15)
    for h, s in servers.items():
        s.wait("offered", count=before[h] + 1)


def errors(fleet):
    """Each reading command where it cannot read: rows that are wrong, and how many there were."""
    cover = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/fs/bpf && exec "$@"', "sh")
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    rows = (("no such node", (), ("--node", "nosuch"), 3, "no-pins", "no node of that name"),
            ("no right", nobody, None, 1, "no-pins", "only root"),
            ("no right, no name", nobody, (), 2, "no-node", "be root"),
            ("no bpf file system", cover, None, 1, "no-pins", "mount -t bpf"),
            ("no bpf file system, no name", cover, (), 2, "no-node", "nsenter --net"),
            ("ip netns exec", ("ip", "netns", "exec", fleet.ns("a")), None, 1, "no-pins",
             "nsenter --net"))
    tuple_, uuid = "tcp 192.0.2.9:1 > 192.0.2.8:2", "0" * 32
    wrong, count = [], 0
    for name, before, node, code, id_, words in rows:
        for argv in (*FIXED, ("flow", "show", tuple_), ("unit", "show", uuid)):
            text = ferry(fleet, "a", *argv, before=before, node=node)
            data = ferry(fleet, "a", "-j", *argv, before=before, node=node)
            said = json.loads(data[1] or "{}")
            count += 2
            if not (text[0] == data[0] == code and id_ in text[2] and words in text[2] and
                    not text[1] and said.get("error") == id_ and words in said.get("text", "")):
                wrong.append(f"{name}: {' '.join(argv)}: {text} {data}")
    return wrong, count


def test(fleet):
    fleet.up()
    servers = {h: server(fleet, h, *STREAM) for h in ("a", "b")}
    clients = [Client(fleet, family, *STREAM, *PATIENT) for family in (4, 6)]
    fleet.move(servers["a"].wait("offered", count=2)[0]["unit"], "a", "b")
    for c in clients:
        c.wait_for_more(FRESH)
    processes = [p.process for p in (*clients, *servers.values())]
    figures, wrong = {}, []
    for how, sig in ENDS:
        count, bad, messages, packets = without_agents(fleet, how, sig, clients, processes)
        figures[how] = {"commands": count, "equal": count - 2 * len(bad),
                        "messages_without_agent": messages, "packets_counted": packets}
        wrong += bad
        if sig != signal.SIGSTOP:
            again(fleet, servers)
        else:
            for h in HOSTS:
                fleet.agents[h].send_signal(signal.SIGCONT)
    bad, failing = errors(fleet)
    reports = [c.finish() for c in clients]
    total = {key: sum(f[key] for f in figures.values())
             for key in ("commands", "equal", "messages_without_agent")}
    result = {**total, "errors": failing, "errors_right": failing - 2 * len(bad),
              "ways": figures, "wrong": (wrong + bad)[:6]}
    result["ok"] = (not wrong and not bad and failing >= 100 and
                    all(f["commands"] >= 50 and f["messages_without_agent"] >= FRESH * len(clients)
                        and f["packets_counted"] for f in figures.values()) and
                    all(r["tcp_ok"] and not r["reconnects"] for r in reports))
    return result


def main():
    return on_fleet(test)
