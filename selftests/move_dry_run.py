# SPDX-License-Identifier: BSD-2-Clause
"""
ferry move --dry-run says of each socket whether it would move, and changes nothing.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; streams: TCP over IPv4, over IPv6,
    and TCP + TCP + UDP of either family
 2. 50 dry runs while they stream: yes; words, epochs, flows, addresses, routes and the descriptors
    of agents and applications are as before, no packet was lost in a freeze, and a unit's word, seen
    without a pause, never was anything but LOCAL in its epoch
 3. then each is really moved: the freeze stands beside the estimate, and the same looks see it
 4. an application of the test's own, on both nodes, with two connections of which one is half
    closed: the dry run names that one and no other; the application is asked for its sockets, or to
    lend some, and for nothing else
 5. a busy tuple at B, a node's own address, no application at B, an MTU that is too small, B's
    agent gone: each is named, of the socket or of the unit, by the side that finds it; so are 250
    sockets of one unit, all with a route back that is too narrow; exit codes
"""
import os
import signal
import socket
import subprocess
import threading

from fleet import HTTP_PORT, on_fleet
from move_refused import Busy, Refused, SmallMtu
from net import BUILD, FABRIC, VIP, wait_for
from peer import connect, inside
from pins import Words
from probe import Client, percentiles, server
from rights import MESSAGE, SOCKET, VERSION

RUNS = 50
STREAM = ("--rate", "200")
SETS = (("v4", 4, ()), ("v6", 6, ()),
        ("set4", 4, ("--tcp", "2", "--udp", "unconnected", "--udp-rate", "100")),
        ("set6", 6, ("--tcp", "2", "--udp", "connected", "--udp-rate", "100")))
HELLO, WELCOME, OFFER, OFFERED, _, BORROW, SOCKETS = range(1, 8)
LEND, BUNDLE, LENT, GO, DISCARD = range(13, 18)
PORT = HTTP_PORT  # a service that nobody else serves here


def ferry(fleet, host, *argv):
    """Exit code, what -j says, and what text says."""
    p = subprocess.run(["nsenter", f"--net=/run/netns/{fleet.ns(host)}", f"{BUILD}/ferry", "--node",
                        fleet.name(host), "--socket", fleet.socket(host), *argv],
                       capture_output=True, text=True, timeout=40)
    return p.returncode, fleet.ferry(host, *argv, check=False), p.stdout + p.stderr


def dry_run(fleet, unit, to="b"):
    return ferry(fleet, "a", "move", unit, "--to", fleet.name(to), "--dry-run")


def state(fleet, processes):
    """All that a dry run must leave as it was."""
    rows = {}
    for host in ("a", "b", "i"):
        rows[f"{host} units"] = fleet.units(host)
        rows[f"{host} flows"] = fleet.ferry(host, "flow", "list")["flows"]
        for family in ("-4", "-6"):
            rows[f"{host} addresses {family}"] = fleet.at(host, "ip", "-o", family, "addr").stdout
            rows[f"{host} routes {family}"] = fleet.at(
                host, "ip", family, "route", "show", "table", "all").stdout
        for name in ("lost-in-freeze-tcp", "lost-in-freeze-udp", "egress-fenced"):
            rows[f"{host} {name}"] = fleet.counter(host, name)
    for name, p in processes.items():
        fds = os.listdir(f"/proc/{p.pid}/fd")
        rows[f"descriptors of {name}"] = len(fds)
    return rows


def settled(fleet, processes, want):
    """Differences, once an application has closed what it had lent, which is a little later."""
    try:
        wait_for("it to be as it was", lambda: state(fleet, processes) == want, 3, 0.05)
        return []
    except Exception:
        now = state(fleet, processes)
        return [k for k in want if now[k] != want[k]]


class Watch(threading.Thread):
    """Looks at every unit's word of A, as fast as it can."""

    def __init__(self, fleet, indices):
        super().__init__(daemon=True)
        self.words = Words(fleet.name("a"))
        self.indices = indices
        self.first = self.look()
        self.looks = self.others = 0
        self.over = threading.Event()
        self.start()

    def look(self):
        return [bytes(self.words.memory[8 * i:8 * i + 8]) for i in self.indices]

    def run(self):
        while not self.over.is_set():
            self.looks += 1
            self.others += self.look() != self.first

    def stop(self):
        self.over.set()
        self.join()
        self.words.close()
        return self


class App(threading.Thread):
    """An application that speaks the socket's protocol itself, and keeps what it was asked."""

    def __init__(self, fleet, host, kind):
        super().__init__(daemon=True)
        self.fleet, self.host = fleet, host
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.connect(fleet.socket(host))
        self.asked = []
        self.sockets = []
        self.unit = None
        self.send(HELLO, text=kind)
        self.start()
        wait_for("WELCOME", lambda: WELCOME in self.asked)

    def send(self, kind, ident=0, handle=0, fds=(), roles=0, text=""):
        data = MESSAGE.pack(kind, VERSION, ident, handle, 0, len(fds), 0, b"",
                            text.encode()) + SOCKET.pack(0, 0, b"") * roles
        socket.send_fds(self.s, [data], [f if isinstance(f, int) else f.fileno() for f in fds])

    def offer(self, sockets):
        self.sockets = sockets
        self.send(OFFER, ident=1, fds=sockets, roles=len(sockets))
        wait_for("OFFERED", lambda: self.unit)
        self.asked.clear()
        return self.unit

    def lend(self, ident, data, count):
        fresh = inside(self.fleet, self.host, lambda: [
            socket.socket(*SOCKET.unpack_from(data, MESSAGE.size + SOCKET.size * i)[:2]) for i in range(count)])
        memory = os.memfd_create("bundle")
        self.send(BUNDLE, ident, fds=[memory])
        self.send(LENT, ident, handle=2, fds=fresh)
        os.close(memory)
        for s in fresh:
            s.close()

    def run(self):
        while True:
            try:
                data = self.s.recv(65536)
            except OSError:
                return
            if not data:
                return
            kind, _, ident, _, _, count = MESSAGE.unpack_from(data)[:6]
            if kind == OFFERED:
                self.unit = data[24:40].hex()
            if kind == BORROW:
                self.send(SOCKETS, ident, fds=self.sockets)
            if kind == LEND:
                self.lend(ident, data, count)
            self.asked.append(kind)

    def close(self):
        self.s.shutdown(socket.SHUT_RDWR)
        self.join()
        self.s.close()
        for s in self.sockets:
            s.close()


def half_closed(fleet, family):
    """Two connections, one of which its client has half closed."""
    def listen():
        s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((VIP[family], PORT))
        s.listen()
        return s

    listener = inside(fleet, "a", listen)
    clients = [connect(fleet, VIP[family], PORT) for _ in range(2)]
    apps = {h: App(fleet, h, f"own{family}") for h in ("a", "b")}
    served = [listener.accept()[0] for _ in clients]
    unit = apps["a"].offer(served)
    good = dry_run(fleet, unit)
    clients[1].shutdown(socket.SHUT_WR)
    wait_for("the FIN", lambda: not served[1].recv(1))
    code, said, text = dry_run(fleet, unit)
    # asked twice each: once by -j, once as text
    wait_for("DISCARD", lambda: apps["b"].asked.count(DISCARD) == 4)
    bad = clients[1].getsockname()[1]
    rows = said["sockets"]
    ok = (good[0] == 0 and good[1]["would_move"] and code == 4 and not said["would_move"] and
          [(r["move"], r["reason"], r["origin"], r["destination"]) for r in rows] ==
          [(True, "", "ok", "ok"), (False, "tcp-state", "tcp-state", "ok")] and
          f":{bad} " in rows[1]["flow"] and "tcp-state" in text and
          apps["a"].asked == [BORROW] * 4 and
          [k for k in apps["b"].asked if k != WELCOME] == [LEND, DISCARD] * 4)
    for x in (*apps.values(), *clients, listener):
        x.close()
    return ok


class Named:
    """One reason of move_refused.py, asked for by a dry run."""

    def __init__(self, refused, where, argv=()):
        self.refused = refused
        self.where = where  # "unit", or the socket's sides that say it
        self.argv = argv

    def run(self, family):
        r = self.refused
        f = r.fleet
        hosts = ("a", "b") if r.on_b else ("a",)
        name = f"{r.reason}{family}"
        servers = {h: server(f, h, *STREAM, kind=name, name=f"{h}-{name}") for h in hosts}
        client = Client(f, family, *STREAM, *self.argv, name=name, address=r.address[family])
        unit = r.unit(servers, ())["unit"]
        made = r.prepare(family, client)
        code, said, text = dry_run(f, unit)
        client.wait_for_more(20)
        left = r.left_over()
        if made:
            made.close()
        ok = code == 4 and self.named(said, client) and r.reason in text and not any(left.values())
        report = client.finish()
        for s in servers.values():
            f.stop(s.process)
        return (ok and report["tcp_ok"]) or {"said": said, "left": left}

    def named(self, said, client):
        bad = [s for s in said["sockets"] if not s["move"]]
        if self.where == "unit":
            return (self.refused.reason in [r["reason"] for r in said["reasons"]] and not bad)
        first = client.interim()["connections"][0]["local"].rsplit(":", 1)[1]
        return (not said["reasons"] and len(bad) == 1 and bad[0]["reason"] == self.refused.reason
                and all(bad[0][side] == self.refused.reason for side in self.where)
                and f":{first} " in bad[0]["flow"] and bad[0]["text"])


def large(fleet):
    """250 sockets, each refused: the route back is too narrow. The largest answer that there is."""
    names = {h: f"large-{h}" for h in ("a", "b")}
    servers = {h: server(fleet, h, "--rate", "1", kind="large", name=n) for h, n in names.items()}
    client = Client(fleet, 6, "--rate", "1", "--tcp", "250", name="large")
    unit = servers["a"].wait("offered", 20)[0]["unit"]
    route = ("ip", "-6", "route", "change", "2001:db8:c::/64", "via", FABRIC["i"][1])
    fleet.at("b", *route, "mtu", "1400")
    code, said, _ = dry_run(fleet, unit)
    fleet.at("b", *route)
    seen = [(s["move"], s["reason"], s["origin"], s["destination"], s["mtu"]["route"])
            for s in said.get("sockets", [])]
    fleet.stop(client.process, signal.SIGKILL)
    for s in servers.values():
        fleet.stop(s.process)
    return ((code == 4 and set(seen) == {(False, "mtu-smaller", "ok", "mtu-smaller", 1400)} and
             len(seen) == 250) or {"code": code, "said": str(said)[:300]})


class NodeDown(Refused):
    def prepare(self, family, client):
        self.fleet.kill_agent("b")
        wait_for("A to see it", lambda: "DEGRADED" in self.fleet.ferry(
            "a", "status", check=False)["verdict"])

    def left_over(self):
        return {}


def streams(fleet):
    """Steps 1 to 3."""
    servers = {h: server(fleet, h, *STREAM) for h in ("a", "b")}
    clients, units = [], []
    for name, family, argv in SETS:
        clients.append(Client(fleet, family, *STREAM, *argv, name=name))
        units.append(servers["a"].wait("offered", count=len(clients))[-1]["unit"])
    for c in clients:
        c.wait_for_more(20)
    processes = {**{f"agent {h}": fleet.agents[h] for h in ("a", "b", "i")},
                 **{f"server {h}": s.process for h, s in servers.items()}}
    before = state(fleet, processes)
    watch = Watch(fleet, [u["index"] for u in fleet.units("a")])
    received = sum(sum(c.received()) for c in clients)
    answers = [fleet.move_dry(units[n % len(units)]) for n in range(RUNS)]
    messages = sum(sum(c.received()) for c in clients) - received
    watch.stop()
    changed = settled(fleet, processes, before)
    control = Watch(fleet, watch.indices)
    real = [fleet.move(u, "a", "b") for u in units]
    control.stop()
    now = state(fleet, processes)
    for c in clients:
        c.wait_for_more(20)
    reports = [c.finish() for c in clients]
    for s in servers.values():
        fleet.stop(s.process)
    wait_for("the tables to be empty", lambda: not any(fleet.units(h) for h in ("a", "b", "i")), 15)
    last = {a["unit"]: a for a in answers}
    sizes = [len(last[u]["sockets"]) for u in units]
    return {"dry_runs": len(answers), "yes": sum(a["would_move"] for a in answers),
            "messages_meanwhile": messages, "looks": watch.looks, "words_changed": watch.others,
            "compared": len(before), "changed": changed,
            "control": {"words_changed": control.others,
                        "changed": sum(now[k] != before[k] for k in before)},
            "freeze_us": {"expected": [round(last[u]["freeze_us"]) for u in units],
                          "measured": [round(m["freeze_us"]) for m in real]},
            "gap_ms": percentiles([(to - since) / 1e6 for r in reports
                                   for _, since, to in r["gaps"]]),
            "streams_ok": (sizes == [1, 1, 3, 3] and all(r["tcp_ok"] and not r["reconnects"]
                                                        for r in reports))}


def test(fleet):
    fleet.up()
    fleet.move_dry = lambda unit: fleet.ferry("a", "move", unit, "--to", fleet.name("b"),
                                              "--dry-run", check=False)
    result = streams(fleet)
    own = {f"v{family}": half_closed(fleet, family) for family in (4, 6)}
    node_a = {4: FABRIC["a"][0], 6: FABRIC["a"][1]}
    rows = [Named(Busy(fleet, "tuple-busy"), ("destination",), ("--tcp", "2")),
            Named(Refused(fleet, "addr-node-local", address=node_a), ("origin", "destination")),
            Named(Refused(fleet, "app-missing", on_b=False), "unit"),
            Named(SmallMtu(fleet, "mtu-smaller"), "unit")]
    named = {f"{n.refused.reason}{f}": n.run(f) for n in rows for f in (4, 6)}
    named["route-mtu"] = large(fleet)
    named["node-down"] = Named(NodeDown(fleet, "node-down"), "unit").run(4)
    codes = [dry_run(fleet, "0" * 32)[0], dry_run(fleet, "0" * 32, "a")[0]]
    result.update(own_application=own, named=named, codes=codes)
    result["ok"] = (result["yes"] == RUNS and not result["words_changed"] and
                    not result["changed"] and result["looks"] > RUNS and
                    result["compared"] >= 20 and result["messages_meanwhile"] > RUNS and
                    result["control"]["words_changed"] and result["control"]["changed"] and
                    result["streams_ok"] and all(own.values()) and
                    all(v is True for v in named.values()) and codes == [3, 3])
    return result


def main():
    return on_fleet(test)
