# SPDX-License-Identifier: BSD-2-Clause
"""
What `ferry watch` says of listeners that close is what their clients saw, each of them.

Steps, in a network namespace of its own; SEED=N repeats a run:
 1. 200 random scenarios: one or two server processes, up to three listeners each, over IPv4 or
    IPv6, at an address or at all. Clients connect; some are accepted, and aborted (SO_LINGER 0),
    closed with data unread, closed, or kept; of those that are not accepted some stay, some shut
    down their side, some close, some are reset by their client. With the sysctl tcp_migrate_req on,
    another process joins the group. Then all servers close, shut down or are killed, at one time
 2. each client that is still there says whether it was reset or answered, and who took over how
    many it was given; the record of the close has the same numbers, process, way, clients' ports
 3. show says the same sums. While another process counts, a second of its name is refused
 4. real servers, nginx and Python's, IPv4 and IPv6, are killed with clients queued: the sentence;
    listeners are destroyed from outside (ss -K), after one that was queued there
 5. controls: with the fault point witness-any, by which all that ends in a task that closes counts,
    the numbers are wrong; when the watch has been interrupted or killed, show says not watching,
    since when, and has no row of a close that came later
 6. with CAP_BPF and CAP_PERFMON and no other right it watches; without, it says which it lacks
"""
import os
import random
import signal
import socket
import subprocess

from clients import Clients
from guard import ANY, LOCAL, Guard, children, stop
from ledger import FERRY, LINGER, Server, Watch, forget, listener, show
from net import bpffs, enter, wait_for
import servers

SCENARIOS = 200
CONTROLS = 15
ACCEPTED = ("abort", "unread", "left", "keep")
GOES = ("stay", "half", "closed", "dead")
CLOSE_WAIT, LISTEN = 8, 10


def states(port):
    """Of the sockets that have it as their local port, but for listeners."""
    found = []
    for path in ("/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"):
        with open(path) as f:
            rows = [line.split() for line in f.readlines()[1:]]
        found += [int(r[3], 16) for r in rows if int(r[1].rpartition(":")[2], 16) == port]
    return [s for s in found if s != LISTEN]


class Queue:
    """The clients of one listener, and what each has seen."""

    def __init__(self, rng, family, address, port):
        self.address, self.port = address, port
        self.accepted = [rng.choice(ACCEPTED) for _ in range(rng.choice((0, 0, 3, 6)))]
        kinds = rng.sample(GOES, rng.randint(1, 4))
        self.goes = [rng.choice(kinds) for _ in range(rng.randint(1, 12))]
        self.target = None
        self.sockets = []
        for _ in self.accepted + self.goes:
            s = socket.create_connection((LOCAL[family], port))
            s.send(b"x")
            self.sockets.append(s)

    def of(self, *kinds):
        rows = zip(self.goes, self.sockets[len(self.accepted):])
        return [s for kind, s in rows if kind in kinds]

    def depart(self):
        self.ports = {s: s.getsockname()[1] for s in self.sockets}
        for s in self.of("half"):
            s.shutdown(socket.SHUT_WR)
        for s in self.of("dead"):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        for s in self.of("dead", "closed"):
            s.close()
        if len(self.of("stay")) < len(self.goes):
            wait_for("the queue to hear of who left", self.left)

    def left(self):
        found = states(self.port)
        return (found.count(CLOSE_WAIT) >= len(self.of("half", "closed")) and
                len(found) <= len(self.sockets) - len(self.of("dead")))

    def reset(self, sockets):
        """Who of them was reset."""
        return [s for s in sockets if self.fate(s) == "reset"]

    @staticmethod
    def fate(s):
        try:
            return "answered" if s.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) else "end"
        except BlockingIOError:
            return "waits"
        except ConnectionResetError:
            s.close()
        except OSError:  # closed above
            pass
        return "reset"

    def settled(self):
        """Whether all that are there have been reset, or all are in the other queue."""
        there = self.of("stay", "half")
        return len(self.reset(there)) == len(there) or (
            self.target and self.target.ask("queued") == [len(self.goes)])

    def truth(self):
        """What its clients and who took over have seen, as a record of a close would say it."""
        stay, half = self.reset(self.of("stay")), self.reset(self.of("half"))
        given = self.target.ask("answer", 0) if self.target else 0
        there = [s for s in self.of("stay", "half") if s not in stay + half]
        wait_for("those that were given away to be answered",
                 lambda: all(self.fate(s) == "answered" for s in there))
        lost = not given
        closed = self.of("closed") if lost else []
        self.told = sorted(self.ports[s] for s in [*stay, *half, *closed])
        return {"closes": 1, "queued": len(self.goes), "reset": len(stay),
                "half_closed": len(half) + len(closed), "gone": len(self.of("dead")) if lost else 0,
                "migrated": given, "half_open": 0}


def set_migrate(on):
    with open("/proc/sys/net/ipv4/tcp_migrate_req", "w") as f:
        f.write(str(int(on)))


def begin(rng, ports, everything):
    """Servers with their queues, and who takes over."""
    family = rng.choice((4, 6))
    way, migrate = rng.choice(("close", "shutdown", "kill")), rng.random() < 0.4
    set_migrate(migrate)
    found = []
    for _ in range(rng.randint(1, 2)):
        addresses = [(rng.choice((LOCAL, ANY))[family], next(ports))
                     for _ in range(rng.randint(1, 3))]
        server = Server(addresses)
        everything.append(server)
        queues = [Queue(rng, family, *a) for a in addresses]
        for i, q in enumerate(queues):
            for how in q.accepted:
                server.ask("accept", i, 1, how)
            q.depart()
            wait_for("all to be queued", lambda n=i, e=len(q.goes): server.ask("queued")[n] == e)
        found.append((server, queues))
        for q in queues if migrate else ():
            q.target = Server([(q.address, q.port)])
            everything.append(q.target)
    return way, found


def end(way, found):
    for server, _ in found:
        if way == "kill":
            server.kill()
        else:
            server.tell("end", way)
    for server, _ in found:
        if way == "kill":
            server.wait()
        else:
            server.answer()


def judge(watch, way, server, q, pid):
    """What of the record is not what was seen."""
    wait_for("the clients to hear of it", q.settled)
    truth = q.truth()
    row, = watch.wait_close(q.port)
    want = {**truth, "pid": pid, "way": "shut_down" if way == "shutdown" else "closed",
            "address": q.address, "lost": truth["queued"] - truth["migrated"]}
    wrong = [f"{q.address}:{q.port} {way}: {k} {row[k]}, not {v}" for k, v in want.items()
             if row[k] != v]
    if watch.reset_ports(q.port) != q.told:
        wrong.append(f"{q.port}: clients {watch.reset_ports(q.port)}, not {q.told}")
    aborted = len(q.reset(q.sockets[:len(q.accepted)]))
    return wrong, {**truth, "aborted": aborted, "way": way}


def scenario(rng, ports, watch):
    """What is wrong, and what was seen of each close."""
    everything, wrong, seen = [], [], []
    try:
        way, found = begin(rng, ports, everything)
        pids = {server: server.pid for server, _ in found}
        end(way, found)
        for server, queues in found:
            for q in queues:
                one, truth = judge(watch, way, server, q, pids[server])
                wrong += one
                seen.append(truth)
                for s in q.sockets:
                    s.close()
    finally:
        for server in everything:
            server.kill()
            server.wait()
    return wrong, seen


def total(seen, key):
    return sum(s[key] for s in seen)


def random_ones(rng, ports, watch, count):
    wrong, seen = [], []
    for _ in range(count):
        w, s = scenario(rng, ports, watch)
        wrong += w
        seen += s
    return wrong, seen


def real(g, watch, port):
    """Sentences of servers that are killed with clients queued."""
    wrong = []
    for family, host in LOCAL.items():
        for name, workers in (("nginx", 2), ("python3", 0)):
            p = g.start("w", *(servers.nginx(g, [ANY[family]], port) if workers else
                               servers.python(ANY[family], port)))
            g.wait_listening(port, host="w")
            wait_for("its workers", lambda p=p, n=workers: len(children(p.pid)) == n)
            pids = [p.pid, *children(p.pid)]
            for pid in pids:
                stop(pid)
            crowd = Clients(g.ns("w"), host, port, 37)
            crowd.wait_sent()
            g.wait_queued(37, port, "w")
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            resets = crowd.finish()["resets"]
            g.stop(p)
            row, = watch.wait_close(port)
            where = f"{'[::]' if family == 6 else ANY[4]}:{port}"
            want = f"{name} (pid {row['pid']}) closed {where}: {resets} clients reset"
            if row["text"] != want or resets != 37 or row["pid"] not in pids:
                wrong.append(f"{row['text']!r}, not {want!r}")
            port += 1
    return wrong


def close_one(port):
    s = listener(LOCAL[4], port)
    c = socket.create_connection((LOCAL[4], port))
    wait_for("one to be queued", lambda: len(states(port)) == 1)
    s.close()
    wait_for("it to be reset", lambda: Queue.fate(c) == "reset")


def destroyed(g, watch, port):
    """A queued connection that SOCK_DESTROY ends, then its listener: what is not as it should be."""
    wrong = []
    for family in (4, 6):
        s = listener(LOCAL[family], port)
        clients = [socket.create_connection((LOCAL[family], port)) for _ in range(3)]
        wait_for("all to be queued", lambda: len(states(port)) == 3)
        g.at("w", "ss", "-Kt", "dport", "=", str(clients[0].getsockname()[1]), "sport", "=",
             str(port))
        wait_for("one to be destroyed", lambda: len(states(port)) == 2)
        g.at("w", "ss", "-Ktl", "sport", "=", str(port))
        row, = watch.wait_close(port)
        want = {"queued": 3, "reset": 2, "gone": 1, "comm": "ss", "way": "destroyed"}
        wrong += [f"destroyed: {k} {row[k]}, not {v}" for k, v in want.items() if row[k] != v]
        wait_for("all to be reset", lambda: all(Queue.fate(c) == "reset" for c in clients))
        s.close()
        port += 1
    return wrong


def ports_of(answer):
    return {r["port"] for r in answer["rows"]}


def off(name, watch, sig, port):
    """What show says once the watch is over, and a close comes after it."""
    close_one(port)
    watch.wait_close(port)
    on = show(name, "-j")
    code, said = watch.stop(sig)
    close_one(port + 1)
    after, text = show(name, "-j"), show(name)
    return {"watching": on[0] == 0 and on[1]["watching"] and port in ports_of(on[1]),
            "code": code, "said": said,
            "not_watching": after[0] == 4 and not after[1]["watching"] and text[0] == 4 and
            after[1]["not_watching_since_ns"] >= on[1]["since_ns"] and
            text[1].startswith("not watching since ") and port in ports_of(after[1]) and
            port + 1 not in ports_of(after[1]) and after[1]["closes"] >= 1}


def rights(name, port):
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    caps = ("--inh-caps=+bpf,+perfmon", "--ambient-caps=+bpf,+perfmon",
            "--bounding-set=-all,+bpf,+perfmon")
    none = subprocess.run([*nobody, FERRY, "watch", "--name", name], capture_output=True, text=True,
                          timeout=10)
    two = Watch(name, before=(*nobody, *caps))
    try:
        close_one(port)
        row, = two.wait_close(port)
        code, said = two.stop()
    finally:
        two.close()
    return {"none": none.returncode == 1 and "CAP_BPF and CAP_PERFMON" in none.stderr and
            not none.stdout,
            "two": row["reset"] == 1 and code == 0 and not two.begun["pinned"] and
            "will not know" in said and two.end["lost"] >= 1}


def test(g, name, seed):
    rng, ports = random.Random(seed), iter(range(2000, 10000))
    r = {"seed": seed, "never": show(name)[0] == 3}
    watch = Watch(name, "--tuples")
    try:
        wrong, seen = random_ones(rng, ports, watch, SCENARIOS)
        second = subprocess.run([FERRY, "watch", "--name", name], capture_output=True, text=True,
                                timeout=10)
        r["busy"] = second.returncode == 1 and "busy" in second.stderr and name in second.stderr
        code, sums = show(name, "-j")
        rows = [row for row in sums["rows"] if row["netns"] == watch.netns]
        keys = ("closes", "queued", "reset", "half_closed", "gone", "migrated")
        r["sums"] = code == 0 and all(
            total(rows, k) >= total(seen, k) and sums[k] >= total(seen, k) for k in keys) and all(
            sums[k] == total(sums["rows"], k) for k in keys if not sums["no_row"])
        r["real"] = real(g, watch, 10100)
        r["destroyed"] = destroyed(g, watch, 10300)
        r["interrupted"] = off(name, watch, signal.SIGINT, 10200)
        r["end"] = {k: watch.end[k] for k in ("no_row", "unseen", "unsaid")}
    finally:
        watch.close()
    watch = Watch(name)
    try:
        r["killed"] = off(name, watch, signal.SIGKILL, 10210)
    finally:
        watch.close()
    watch = Watch(name, "--tuples", env={"FERRY_FAULT": "witness-any"})
    try:
        r["control_wrong"] = len(random_ones(rng, ports, watch, CONTROLS)[0])
    finally:
        watch.close()
    r["rights"] = rights(name, 10220)
    p = subprocess.run([FERRY, "watch", "--name", name, "--seconds", "1"], capture_output=True,
                       text=True, timeout=10)
    r["by_itself"] = p.returncode == 0 and "\nin 1." in "\n" + p.stdout
    figures = {k: total(seen, k) for k in (*keys, "aborted")}
    ways = {w: sum(s["way"] == w for s in seen) for w in ("close", "shutdown", "kill")}
    good = (not wrong and not r["real"] and not r["destroyed"] and all(figures.values()) and all(ways.values()) and
            all(s["queued"] for s in seen) and r["never"] and r["busy"] and r["sums"] and
            r["by_itself"] and r["control_wrong"] > 0 and all(r["rights"].values()) and
            not any(r["end"].values()) and
            r["interrupted"]["code"] == 0 and r["killed"]["code"] == -signal.SIGKILL and
            all(r[k][w] for k in ("interrupted", "killed") for w in ("watching", "not_watching")))
    return {"ok": good, "scenarios": SCENARIOS, **figures, "wrong": wrong[:20], **r, "ways": ways}


def main():
    bpffs()
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    g, name = Guard(), f"f{os.getpid()}"
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    print(f"SEED={seed}", flush=True)
    try:
        g.host("w")
        enter(f"/run/netns/{g.ns('w')}")
        return test(g, name, seed)
    finally:
        enter(f"/proc/self/fd/{own}")
        forget(name)
        g.close()
