# SPDX-License-Identifier: BSD-2-Clause
"""
Every connection that a listener had not accepted when it closed is in the ledger once, and only once:
queued == migrated + lost + held + cancelled, and each of these is what its client, the servers and the
kernel's own counters say.

Steps, in a network namespace of its own; SEED=N repeats a run:
 1. five ports are guarded. 800 random scenarios at them, over IPv4 and IPv6, at an address, at all, at
    all of both families: servers with small and large backlogs start, accept, close, are shut down or
    killed; clients come and wait, close their side, leave or reset; handshakes are under way, their
    last ACK eaten by an XDP program; at the end a server takes all that is left, or the guard is taken
    off by force
 2. in each, by the guard's ledger: the sum is right, nothing is unexplained, nothing lost. The kernel's
    TCPMigrateReqSuccess is what was migrated and held, and TCPMigrateReqFailure what was cancelled.
    Each client that is there is answered, or was cancelled and reset
 3. between these, 200 random scenarios of listeners that nobody guards, with the sysctl tcp_migrate_req
    off and on, by the ledger of `ferry watch`: what was migrated another server has accepted, what was
    lost was reset
 4. control: an agent with the fault point witness-any, by which all that ends in a task that closes is
    taken for lost: the sums are wrong
"""
import json
import os
import random
import socket

from guard import HOST, on_guard
from ledger import LINGER, Server, Watch, forget
from listeners import COUNTED, FAMILY, counted, drop_acks
from net import Failure, enter, wait_for

GUARDED, ALONE, CONTROLS = 800, 200, 20
FIRST = 9000  # ports that nobody guards
GOES = ("stay", "stay", "stay", "half", "closed", "dead")
WAYS = ("close", "shutdown", "kill")
PARTS = ("migrated_alive", "migrated_dead", "held", "cancelled", "lost")
SUCCESS, FAILURE = COUNTED[:2]
# a port each: where servers listen, and by which family clients come
PLACES = {8100: ("127.0.0.1", (4,)), 8101: ("0.0.0.0", (4,)), 8102: ("::1", (6,)),
          8103: ("::", (4, 6)), 8104: ("::", (6,))}
LOCAL = {4: "127.0.0.1", 6: "::1"}


class Agent:
    """ferry-guard, asked without a process in between."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)

    def guard(self, port):
        self.socket.send(b'{"verb":"list"}')
        answer = json.loads(self.socket.recv(1 << 20))
        return next(g for g in answer["guards"] if g["port"] == port)

    def close(self):
        self.socket.close()


class Client:
    """Connected, has sent an octet, and goes its way while it waits."""

    def __init__(self, rng, place, port, goes=None):
        family = rng.choice(place[1])
        self.goes = goes or rng.choice(GOES)
        self.socket = socket.socket(FAMILY[family], socket.SOCK_STREAM)
        self.socket.connect((LOCAL[family], port))

    def speak(self):
        self.socket.send(b"x")
        if self.goes == "half":
            self.socket.shutdown(socket.SHUT_WR)
        if self.goes == "dead":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        if self.goes in ("dead", "closed"):
            self.socket.close()

    def is_there(self):
        return self.goes in ("stay", "half", "request")

    def fate(self):
        try:
            said = self.socket.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
            return "answered" if said else "cut"
        except BlockingIOError:
            return "waits"
        except ConnectionResetError:
            self.goes = "reset"  # it is told once
            return "reset"


class Scenario:
    """One, at a guarded port: the servers and clients of it, and what they have seen."""

    def __init__(self, g, agent, rng, port):
        self.g, self.agent, self.rng, self.port = g, agent, rng, port
        self.place = PLACES[port]
        self.servers, self.clients, self.resets = [], [], 0
        self.queued = self.ended = 0
        self.requests = []
        self.block = None
        self.before = self.account()
        self.kernel = counted()
        self.forced = None

    def account(self):
        """What the ledger says, and what the program has counted of handshakes."""
        row = self.agent.guard(self.port)
        ledger = row.get("ledger", {})
        found = {k: ledger.get(k, 0) for k in ("queued", "unexplained", *PARTS)}
        self.doubts = {k: ledger.get(k) for k in ("unseen", "missed", "strays", "closes")}
        return {**found, "half_open": row["counts"].get("half_open", 0)}

    def start(self, backlog):
        server = Server([(self.place[0], self.port, backlog)])
        self.servers.append(server)
        wait_for("the server to be guarded", lambda: any(
            m["pid"] == server.pid for m in self.agent.guard(self.port)["members"]), every=0.001)

    def come(self, count):
        for _ in range(count):
            client = Client(self.rng, self.place, self.port)
            self.clients.append(client)
            client.speak()
            self.agent.guard(self.port)  # so that it knows what room is left

    def half_come(self, count):
        """Handshakes whose last ACK does not arrive before the next server has ended."""
        self.block = drop_acks(self.place[1][0], self.port)
        for _ in range(count):
            self.requests.append(Client(self.rng, self.place, self.port, "request"))
        self.end()
        os.close(self.block)
        self.block = None
        for client in self.requests:
            client.speak()
        self.clients += self.requests
        self.requests = []

    def accept(self):
        self.rng.choice(self.servers).ask("answer", 0)

    def end(self):
        server = self.servers.pop(self.rng.randrange(len(self.servers)))
        way = self.rng.choice(WAYS)
        self.queued += server.ask("queued")[0]
        if way != "kill":
            server.ask("end", way)
        server.kill()
        server.wait()
        self.ended += 1

    def step(self):
        can = ["come", "come"]
        if len(self.servers) < 3:
            can.append("start")
        if self.servers:
            can += ["accept", "end"]
            if len(self.place[1]) == 1:
                can.append("half_come")
        what = self.rng.choice(can)
        if what == "start":
            self.start(self.rng.choice((1, 4, 16, 512)))
        elif what in ("come", "half_come"):
            getattr(self, what)(self.rng.randint(1, 5))
        else:
            getattr(self, what)()

    def run(self, force):
        self.start(self.rng.choice((8, 512)))
        self.come(self.rng.randint(1, 6))
        self.end()
        for _ in range(self.rng.randint(0, 4)):
            self.step()
        if force:
            while self.servers:
                self.end()
            self.force()
        else:
            self.finish()
        return self.judge()

    def force(self):
        """The guard is taken off: who is held is reset. And is there again."""
        self.account()
        _, answer = self.g.ferry("off", "--port", self.port, "--force")
        self.forced = answer["ledger"]
        wait_for("all to hear of it", lambda: not self.waiting())
        expect(self.g, self.port)

    def waiting(self):
        """Clients that are there, and neither answered nor reset."""
        return [c for c in self.clients if c.is_there() and c.fate() == "waits"]

    def finish(self):
        """One more server, which takes all."""
        self.start(512)

        def done():
            for server in self.servers:
                server.ask("answer", 0)
            row = self.agent.guard(self.port)
            return not row["held"] and not self.waiting() and not any(
                server.ask("queued")[0] for server in self.servers)

        wait_for("all to be answered", done, every=0.002)
        while self.servers:
            self.end()

    def judge(self):
        """What is wrong, and the figures."""
        before, kernel = self.before, self.kernel
        after = self.account()
        rows = {**after, **(self.forced or {})}
        d = {k: rows[k] - before[k] for k in ("queued", "unexplained", *PARTS)}
        half = 0 if self.forced else after["half_open"] - before["half_open"]
        now = counted()
        moved, failed = now[SUCCESS] - kernel[SUCCESS], now[FAILURE] - kernel[FAILURE]
        given = d["migrated_alive"] + d["migrated_dead"] + d["held"]
        fates = [("reset" if c.goes == "reset" else c.fate()) for c in self.clients
                 if c.is_there() or c.goes == "reset"]
        wrong = []
        if d["queued"] != sum(d[k] for k in PARTS) or d["unexplained"] or d["lost"]:
            wrong.append("sum")
        # a handshake whose target is full fails, and comes again
        tried = given + d["cancelled"] + half
        if moved < given or failed < d["cancelled"] or (
                moved + failed != tried if not self.forced else moved + failed < tried):
            wrong.append(f"kernel {moved} {failed}")
        if d["queued"] < self.queued:
            wrong.append(f"servers had {self.queued}")
        resets = fates.count("reset")
        if fates.count("answered") + resets != len(fates) or resets > d["cancelled"]:
            wrong.append(f"clients {fates}")
        for c in self.clients:
            c.socket.close()
        if wrong:
            wrong.append(str(self.doubts))
        figures = {**d, "half_open": half, "resets": resets, "ended": self.ended}
        return ([f"port {self.port}: {wrong}, {figures}"] if wrong else []), figures

    def close(self):
        if self.block is not None:
            os.close(self.block)
        for server in self.servers:
            server.kill()
            server.wait()
        for c in self.clients + self.requests:
            c.socket.close()


def alone(rng, watch, port):
    """One at a port that nobody guards: what is wrong, and the figures."""
    migrate = rng.random() < 0.5
    with open("/proc/sys/net/ipv4/tcp_migrate_req", "w") as f:
        f.write(str(int(migrate)))
    place = rng.choice(list(PLACES.values()))
    servers = [Server([(place[0], port)])]
    clients = []
    try:
        for _ in range(rng.randint(1, 8)):
            clients.append(Client(rng, place, port))
            clients[-1].speak()
        wait_for("all to be queued", lambda: servers[0].ask("queued") == [len(clients)])
        if rng.random() < 0.7:
            servers.append(Server([(place[0], port)]))
        servers[0].ask("end", rng.choice(("close", "shutdown")))
        row, = watch.wait_close(port)
        there = [c for c in clients if c.is_there()]
        given = servers[1].ask("answer", 0) if len(servers) > 1 else 0
        wait_for("all to hear of it", lambda: not any(c.fate() == "waits" for c in there))
        lost = 0 if given else sum(c.goes == "reset" or c.fate() == "reset" for c in there)
        if (row["queued"] == row["migrated"] + row["lost"] == len(clients) and
                row["migrated"] == given and given in (0, len(clients)) and
                (given > 0) == (migrate and len(servers) > 1) and
                lost == (0 if given else len(there))):
            return [], row
        return [f"alone, port {port}: given {given}, {lost} reset of {len(there)}, {row}"], row
    finally:
        with open("/proc/sys/net/ipv4/tcp_migrate_req", "w") as f:
            f.write("0")
        for server in servers:
            server.kill()
            server.wait()
        for c in clients:
            c.socket.close()


def expect(g, *ports):
    """Guarded from the first listen() on, as before a command; and its program is known."""
    words = [w for p in ports for w in ("--port", p)]
    code = g.ferry(*words, "--", "true", check=False)[0]
    if code:
        raise Failure(f"ferry guard -- true: exit {code}: {g.log()}")


def guarded(g, agent, rng, force):
    s = Scenario(g, agent, rng, rng.choice(list(PLACES)))
    try:
        return s.run(force)
    finally:
        s.close()


def controls(g, seed):
    """How many scenarios another agent gets wrong that takes all that ends for lost."""
    g.all_off()
    os.environ["FERRY_FAULT"] = "witness-any"
    try:
        expect(g, *PLACES)
        g.list()
        agent = Agent(g.path)
        rng = random.Random(seed)
        found = sum(bool(guarded(g, agent, rng, True)[0]) for _ in range(CONTROLS))
        agent.close()
        return found
    finally:
        del os.environ["FERRY_FAULT"]


def total(figures):
    return {k: sum(f[k] for f in figures) for k in figures[0]}


def scenarios(g, watch, seed):
    rng = random.Random(seed)
    agent = Agent(g.path)
    order = [True] * GUARDED + [False] * ALONE
    rng.shuffle(order)
    wrong, held, free = [], [], []
    for i, is_guarded in enumerate(order):
        w, figures = (guarded(g, agent, rng, rng.random() < 0.1) if is_guarded else
                      alone(rng, watch, FIRST + i))
        wrong += w
        (held if is_guarded else free).append(figures)
    agent.close()
    return wrong, held, free


def test(g):
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    name, seed = f"f{os.getpid()}", int(os.environ.get("SEED", random.randrange(1 << 32)))
    print(f"SEED={seed}", flush=True)
    try:
        enter(f"/run/netns/{g.ns(HOST)}")
        expect(g, *PLACES)
        g.list()
        watch = Watch(name)
        try:
            wrong, held, free = scenarios(g, watch, seed)
        finally:
            watch.close()
        control = controls(g, seed)
    finally:
        enter(f"/proc/self/fd/{own}")
        forget(name)
    sums = total(held)
    free = {k: sum(f[k] for f in free) for k in ("queued", "migrated", "lost")}
    exposed = all(sums[k] for k in ("queued", "half_open", "resets", *PARTS[:4])) and all(
        free.values())
    return {"ok": not wrong and exposed and control > CONTROLS / 2, "scenarios": GUARDED + ALONE,
            "wrong": wrong[:10], "wrong_of": len(wrong), "seed": seed, **sums, "unguarded": free,
            "control_wrong": control}


def main():
    return on_guard(test)
