# SPDX-License-Identifier: BSD-2-Clause
"""
Agents are killed at every step of a move, and at random, a hundred times in all; each time the next
agent finishes what was begun, and no stream is lost, doubled, or served by two nodes.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; streams both ways in a TCP unit over
    IPv4, one over IPv6, and units of TCP + TCP + UDP
 2. for each stage of an origin's table, each place in a destination's part and each socket of an
    abort: an agent that is killed there (a fault point), a move, and a new agent; the unit must
    then live on exactly one node, and its stream go on
 3. agents of A, B and the ingress are killed at random, two at once now and then, at times before
    the last kill is recovered from, while all units move back and forth; half of the agents keep
    units frozen longer than they need to
 4. each unit is moved once more; the clients end politely
 5. on the wires: never two nodes that send for one connection in turn, but for as many changes as
    units have arrived; and what is left: pins, programs, descriptors, addresses, routes, processes
"""
from fleet import on_fleet
from net import Failure, run, wait_for
from probe import Client, percentiles, server
from wire import FLAGGED, Capture, Wires, closes
import json
import os
import random
import re
import threading
import time

STREAM = ("--rate", "200")
UNITS = (("v4", 4, ("--tcp", "1")), ("v6", 6, ("--tcp", "1")),
         ("set4", 4, ("--tcp", "2", "--udp", "unconnected", "--udp-rate", "100")),
         ("set6", 6, ("--tcp", "2", "--udp", "connected", "--udp-rate", "100")))
SERVER = ("--rate", "300", "--pause-read", "20/80")
STAGES, PLACES, ABORTED = 11, 10, 5  # three sockets, before LOCAL, after it
RESTARTS = 100
FRESH = 20
DWELL = 1.5  # seconds of a unit at least where it has come
MOVING = ("fenced", "prepared", "opening")


def owners(fleet):
    """uuid -> the nodes on which it is LOCAL; and how many units are in mid-move anywhere."""
    local, moving = {}, 0
    for host in ("a", "b"):
        for u in fleet.units(host):
            if u["state"] == "local":
                local.setdefault(u["unit"], []).append(host)
            moving += u["state"] in MOVING
    return local, moving


class World:
    def __init__(self, fleet):
        self.fleet = fleet
        self.random = random.Random(fleet.seed)
        self.restarts = self.died = self.double = 0
        self.hosts_killed = {"a": 0, "b": 0, "i": 0}
        self.wrong_owner = 0
        self.rows = {}

    def start(self):
        self.servers = {h: server(self.fleet, h, *SERVER) for h in ("a", "b")}
        for name, family, argv in UNITS:
            before = {e["unit"] for e in self.servers["a"].events("offered")}
            client = Client(self.fleet, family, *STREAM, *argv, name=name)
            unit = wait_for(f"the unit of {name}", lambda: [
                e["unit"] for e in self.servers["a"].events("offered")
                if e["unit"] not in before])[0]
            self.rows[unit] = client

    def arrivals(self):
        rows = [e["unit"] for s in self.servers.values() for e in s.events("arrived")]
        return {unit: rows.count(unit) for unit in self.rows}

    def kill(self, host):
        self.fleet.kill_agent(host)
        self.hosts_killed[host] += 1

    def start_agent(self, host, faults=None):
        self.fleet.faults = {host: faults} if faults else {}
        self.fleet.start_agent(host)
        self.restarts += 1

    def up(self, *hosts):
        try:
            for host in hosts:
                wait_for(f"agent {host} to be ready", lambda h=host: self.fleet.ready(h), 20)
        except Failure as e:
            ends = {h: p.poll() for h, p in self.fleet.agents.items()}
            logs = {h: self.fleet.log(h)[-900:] for h in ("a", "b", "i")}
            raise Failure(f"{e}; exit codes: {ends}; faults: {self.fleet.faults}; logs: {logs}")

    def settled(self):
        local, moving = owners(self.fleet)
        self.wrong_owner += sum(len(nodes) > 1 for nodes in local.values())
        return not moving and all(len(local.get(u, ())) == 1 for u in self.rows) and local

    def wait_settled(self, what):
        try:
            return wait_for("settled", self.settled, 25, every=0.02)
        except Failure:
            raise Failure(f"after {what}: {owners(self.fleet)}; a: {self.fleet.log('a')[-900:]} "
                          f"b: {self.fleet.log('b')[-900:]}")

    def wait_streams(self):
        try:
            for client in self.rows.values():
                client.wait_for_more(FRESH)
        except Failure as e:
            rows = [f"{h}: {self.fleet.units(h)} {self.fleet.log(h)}" for h in ("a", "b", "i")]
            rows += [f"{h}: " + self.fleet.at(h, "ss", "-tieOHn", "state", "all").stdout
                     for h in ("c", "a", "b")]
            rows += [f"{h}: {s.events('offered')[-4:]} {s.events('arrived')[-4:]}"
                     for h, s in self.servers.items()]
            raise Failure("\n".join([str(e), *rows]))

    def wait_held(self, unit, host):
        """Until its application has brought it to the agent: then a move to nowhere is refused
        for another reason."""
        wait_for("the application to be back", lambda: self.fleet.ferry(
            host, "move", unit, "--to", "nowhere", check=False).get("error") == "no-such-node")

    def owner(self, unit):
        return self.wait_settled("before a move")[unit][0]


def move_until(fleet, died, *move):
    """The destination's application may not be back at once."""
    while died.poll() is None:
        fleet.move(*move, check=False)


def killed_at(world, unit, point, place):
    """An agent dies at that place of a move of unit; the next one takes over."""
    fleet = world.fleet
    origin = world.owner(unit)
    to = "b" if origin == "a" else "a"
    host = to if point == "die-destination" else origin
    world.kill(host)
    world.start_agent(host, f"{point}={place}" +
                      (",abort-before-flip" if point == "die-aborting" else ""))
    world.up("a", "b")
    world.wait_held(unit, origin)
    died = fleet.agents[host]
    mover = threading.Thread(target=move_until, args=(fleet, died, unit, origin, to))
    mover.start()
    wait_for(f"{point}={place} on {host}: {fleet.log(host)[-300:]}",
             lambda: died.poll() is not None, 10)
    world.died += 1
    fleet.kill_agent(host)
    world.start_agent(host)
    mover.join()  # once flipped the command waits for the new agent
    world.up(host)
    world.wait_settled(f"{point}={place}")
    world.rows[unit].wait_for_more(FRESH)


def places():
    return ([("die-origin", n) for n in range(1, STAGES + 1)] +
            [("die-destination", n) for n in range(1, PLACES + 1)] +
            [("die-aborting", n) for n in range(1, ABORTED + 1)])


def sweep(world):
    units = list(world.rows)
    for i, (point, place) in enumerate(places()):
        # an abort is walked with units that have enough sockets
        unit = units[2 + i % 2] if point == "die-aborting" else units[i % len(units)]
        killed_at(world, unit, point, place)


class Mover(threading.Thread):
    """Moves all units back and forth for as long as it is let. A restored connection that has lost all
    that was in flight begins again after its first timeout, a second or so after it came: who moves
    it again before that, and again, keeps it from it."""

    def __init__(self, world):
        super().__init__()
        self.world = world
        self.end = threading.Event()
        self.moved = self.failed = 0

    def run(self):
        pick = random.Random(self.world.fleet.seed + 1)
        last = dict.fromkeys(self.world.rows, 0)
        while not self.end.wait(0.01):
            unit = pick.choice(list(self.world.rows))
            origin = pick.choice("ab")
            if time.monotonic() < last[unit] + DWELL:
                continue
            answer = self.world.fleet.move(unit, origin, "b" if origin == "a" else "a",
                                           check=False)
            if "error" in answer:
                self.failed += 1
            else:
                self.moved += 1
                last[unit] = time.monotonic()


def at_random(world):
    mover = Mover(world)
    mover.start()
    pick = world.random
    try:
        while world.restarts < RESTARTS:
            time.sleep(pick.uniform(0.02, 0.4))  # the time of a kill is what is random here
            hosts = pick.choice((["a"], ["b"], ["a"], ["b"], ["i"], ["a", "b"]))
            world.double += len(hosts) > 1
            for host in hosts:
                world.kill(host)
            time.sleep(pick.uniform(0, 0.2))
            for host in hosts:
                world.start_agent(host, pick.choice((None, "hold-ms=30")))
            world.up(*hosts)
            if pick.random() < 0.5:
                world.wait_streams()
    finally:
        mover.end.set()
        mover.join()
    return mover


def state_of_nodes(fleet):
    """What must not grow: maps and programs of each node, descriptors, addresses, routes."""
    rows = {}
    programs = json.loads(run("bpftool", "-j", "prog", "show").stdout)
    for host in ("a", "b", "i"):
        root = f"/sys/fs/bpf/ferry/{fleet.name(host)}"
        rows[f"{host} pins"] = sorted(os.listdir(root))
        words = json.loads(run("bpftool", "-j", "map", "show", "pinned", f"{root}/words").stdout)
        rows[f"{host} programs"] = sum(words["id"] in p.get("map_ids", ()) for p in programs)
        rows[f"{host} descriptors"] = len(os.listdir(f"/proc/{fleet.agents[host].pid}/fd"))
        for what in ("addr", "route", "rule"):
            rows[f"{host} {what}"] = [
                re.sub(r"xdp/id:\d+|expires.*", "", line) for family in ("-4", "-6") for line in
                fleet.at(host, "ip", family, what, "show", *(("table", "all") if what == "route"
                                                             else ())).stdout.splitlines()]
    return rows


def difference(before, after):
    return {k: [before[k], after[k]] for k in before if before[k] != after[k]}


def fresh_agents(world):
    """All three started anew, so that what they hold can be compared."""
    for host in ("a", "b", "i"):
        world.kill(host)
    for host in ("a", "b", "i"):
        world.fleet.faults = {}
        world.fleet.start_agent(host)
    world.up("a", "b", "i")


def wire_changes(world, wires):
    """Changes of wire beyond the unit's arrivals: two nodes that sent in turn."""
    runs, arrivals, more = wires.runs(), world.arrivals(), 0
    for unit, client in world.rows.items():
        for c in client.report["connections"]:
            port = int(c["local"].rsplit(":", 1)[1])
            more += max(0, len(runs.get((6, port), ())) - 1 - arrivals[unit])
    return more


def empty(fleet):
    return not any(len(fleet.units(h)) + fleet.ferry(h, "flow", "list")["total"]
                   for h in ("a", "b", "i"))


def test(fleet):
    fleet.seed = int(os.environ.get("SEED", os.getpid()))
    print(f"seed {fleet.seed}")
    fleet.up()
    world = World(fleet)
    before = state_of_nodes(fleet)
    wires = Wires(fleet)
    wire = Capture(fleet, "c", "eth0", FLAGGED)
    world.start()
    sweep(world)
    mover = at_random(world)
    world.up("a", "b", "i")
    where = world.wait_settled("all kills")
    for unit, client in world.rows.items():
        world.wait_held(unit, where[unit][0])
        fleet.move(unit, where[unit][0], "b" if where[unit] == ["a"] else "a")
        client.wait_for_more(FRESH)
    stopped = time.time_ns()
    for client in world.rows.values():
        client.report = client.finish()
    reports = [c.report for c in world.rows.values()]
    for s in world.servers.values():
        fleet.stop(s.process)
    wires.stop()
    fin, rst = closes(wire.stop(), stopped)
    wait_for("every node to be empty", lambda: empty(fleet), 90)
    fresh_agents(world)
    left = difference(before, wait_for("agents like the first", lambda: state_of_nodes(fleet)))
    lost = [u for u, c in world.rows.items() if not c.report["tcp_ok"]]
    result = {
        "restarts": world.restarts, "lost_units": len(lost),
        "wrong_owner": world.wrong_owner + wire_changes(world, wires), "leftovers": len(left),
        "compared": len(before), "died_in_a_move": world.died, "places": len(places()),
        "killed_at_random": world.restarts - 2 * world.died, "two_at_once": world.double,
        "hosts": world.hosts_killed, "moved": mover.moved, "failed": mover.failed,
        "arrivals": sum(world.arrivals().values()),
        "messages": sum(r["received"]["messages"] + r["sent"]["messages"] for r in reports),
        "mismatches": sum(r["lost"] + r["duplicated"] + r["reordered"] + r["crc_errors"]
                          for r in reports),
        "resets": sum(r["reconnects"] for r in reports), "fin": fin, "rst": rst,
        "stall_ms": percentiles([(to - since) / 1e6 for r in reports
                                 for _, since, to in r["gaps"]]),
        **({"left": left} if left else {}), **({"lost": lost} if lost else {})}
    zeros = ("lost_units", "wrong_owner", "leftovers", "mismatches", "resets", "fin", "rst")
    result["ok"] = (result["restarts"] >= RESTARTS and not any(result[z] for z in zeros) and
                    result["died_in_a_move"] == result["places"] and result["moved"] > 20 and
                    result["messages"] > 0)
    return result


def main():
    return on_fleet(test)
