# SPDX-License-Identifier: BSD-2-Clause
"""
An agent is replaced by the program that is installed now, in the same process, and nobody is
refused meanwhile: neither an application nor another node; and no other agent of the node can come
between.

Steps:
 1. client, ingress, node A, node B; their agents run from a copy of the program; streams both ways
 2. while units move back and forth, the copy is replaced by another one and each agent is told to
    upgrade (SIGHUP), again and again; one process connects to A's socket all the time, another
    tries to take A's node for itself
 3. what must not be done: with a configuration that is wrong, or a program that cannot be run, the
    agent that is there goes on, and says why
 4. a configuration that has changed is in force after the upgrade
 5. a node that is alone in its configuration, and so listens for no other, is upgraded, too
 6. negative control: an agent that is stopped and started has a moment in which it answers nobody
"""
from fleet import AGENT_USER, on_fleet
from net import BUILD, wait_for
from probe import Client, server
from wire import FLAGGED, Capture, closes
import os
import shutil
import signal
import socket
import threading
import time

STREAM = ("--rate", "200")
ROUNDS = 10
FRESH = 20


class Prober(threading.Thread):
    """Connects to the socket again and again."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.end = threading.Event()
        self.connected, self.refused = 0, 0

    def run(self):
        while not self.end.is_set():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                try:
                    s.connect(self.path)
                    self.connected += 1
                except OSError:
                    self.refused += 1
            time.sleep(0.0005)  # its backlog is for others, too

    def stop(self):
        self.end.set()
        self.join()
        return self


class Usurper(threading.Thread):
    """Tries to be the agent of node A."""

    def __init__(self, fleet):
        super().__init__()
        self.fleet = fleet
        self.end = threading.Event()
        self.tried, self.locked = 0, 0

    def run(self):
        while not self.end.is_set():
            p = self.fleet.at("a", *self.fleet.agent_argv("a"), "--node", self.fleet.name("a"),
                              "--config", self.fleet.config, "--socket", self.fleet.socket("x"),
                              check=False)
            self.tried += 1
            self.locked += p.returncode == 1 and "locked" in p.stderr

    stop = Prober.stop


class Mover(threading.Thread):
    def __init__(self, fleet, units):
        super().__init__()
        self.fleet, self.units = fleet, units
        self.end = threading.Event()
        self.moved = 0

    def run(self):
        while not self.end.is_set():
            for unit in self.units:
                for origin, to in (("a", "b"), ("b", "a")):
                    self.moved += "error" not in self.fleet.move(unit, origin, to, check=False)

    stop = Prober.stop


def install(fleet):
    """Another file of the program in the place of the first, as a package does it."""
    new = f"{fleet.installed}/ferryd.new"
    shutil.copy(f"{BUILD}/ferryd", new)
    os.rename(new, f"{fleet.installed}/ferryd")
    return os.stat(f"{fleet.installed}/ferryd").st_ino


def running(fleet, host):
    """What the agent's process runs: the file's number."""
    return os.stat(f"/proc/{fleet.agents[host].pid}/exe").st_ino


def upgrade(fleet, host, inode):
    began = time.monotonic()
    fleet.agents[host].send_signal(signal.SIGHUP)
    wait_for(f"{host} to run the new program: {fleet.log(host)[-400:]}",
             lambda: running(fleet, host) == inode)
    wait_for(f"{host} to be ready: {fleet.log(host)[-400:]}", lambda: fleet.ready(host))
    return (time.monotonic() - began) * 1000


def not_done(fleet, change, undo, words):
    """An upgrade that must not happen: the agent that is there goes on."""
    seen = fleet.log("a").count(words)
    inode = running(fleet, "a")
    change()
    fleet.agents["a"].send_signal(signal.SIGHUP)
    try:
        wait_for(words, lambda: fleet.log("a").count(words) > seen)
    finally:
        undo()
    return fleet.ready("a") and running(fleet, "a") == inode


def wrong_configuration(fleet):
    with open(fleet.config) as f:
        good = f.read()

    def write(text):
        with open(fleet.config, "w") as f:
            f.write(text)

    return not_done(fleet, lambda: write(good + "[node oops]\nnumbr = 1\n"), lambda: write(good),
                    "not upgraded")


def missing_program(fleet):
    path = f"{fleet.installed}/ferryd"
    return not_done(fleet, lambda: os.rename(path, path + ".away"),
                    lambda: os.rename(path + ".away", path), "not upgraded: cannot run")


def broken_program(fleet):
    path = f"{fleet.installed}/ferryd"

    def change():
        os.rename(path, path + ".away")
        with open(path, "wb") as f:
            f.write(b"\x7fELF no program")
        os.chmod(path, 0o755)

    return not_done(fleet, change, lambda: os.rename(path + ".away", path),
                    "not upgraded: cannot run")


def changed_configuration(fleet):
    before = fleet.ferry("a", "status")["services"]
    with open(fleet.config, "a") as f:
        f.write(f"[service more]\naddress = 203.0.113.77\nport = 9\nprotocol = udp\n"
                f"node = {fleet.name('b')}\n")
    upgrade(fleet, "a", install(fleet))
    return fleet.ferry("a", "status")["services"] == before + 1


def alone(fleet):
    """Whether the agent of a fleet of one outlives an upgrade; its own pair of devices is on the
    switch."""
    fleet.at("s", "ip", "link", "add", "x0", "type", "veth", "peer", "name", "x1")
    for device in ("x0", "x1"):
        fleet.at("s", "ip", "link", "set", device, "up")
    config = os.path.join(fleet.dir, "alone.conf")
    with open(config, "w") as f:
        f.write(f"[node {fleet.name('s')}]\nnumber = 9\naddress = 192.0.2.9\ninterfaces = x0\n"
                "units = 1024\nbuckets4 = 1024\nbuckets6 = 1024\n")
    agent = fleet.start("s", *fleet.agent_argv("s"), "--node", fleet.name("s"), "--config", config,
                        "--socket", fleet.socket("s"), log="ferryd-s.log")
    try:
        def answers():
            return fleet.ferry("s", "status", check=False).get("agent") == agent.pid

        wait_for(f"the agent that is alone: {fleet.log('s')[-400:]}", answers)
        inode = install(fleet)
        agent.send_signal(signal.SIGHUP)
        wait_for(f"the one after it: {fleet.log('s')[-400:]}", lambda: agent.poll() is None and
                 os.stat(f"/proc/{agent.pid}/exe").st_ino == inode and
                 fleet.log("s").count(" is up") == 2 and answers())
        return agent.poll() is None
    finally:
        fleet.stop(agent)
        fleet.detach("s")


def control(fleet):
    """Stopped and started, as without an upgrade."""
    prober = Prober(fleet.socket("a"))
    prober.start()
    wait_for("connections", lambda: prober.connected > 10)
    fleet.stop(fleet.agents.pop("a"))
    wait_for("refusals", lambda: prober.refused > 0)
    fleet.start_agent("a")
    wait_for("A to be back", lambda: fleet.ready("a"))
    return prober.stop().refused


def test(fleet):
    fleet.installed = os.path.join(fleet.dir, "bin")
    os.mkdir(fleet.installed)
    install(fleet)
    fleet.agent_argv = lambda host: (f"{fleet.installed}/ferryd", "--user", AGENT_USER)
    fleet.up()
    pids = {h: fleet.agents[h].pid for h in ("a", "b", "i")}
    wire = Capture(fleet, "c", "eth0", FLAGGED)
    servers = {h: server(fleet, h, *STREAM) for h in ("a", "b")}
    clients = [Client(fleet, family, *STREAM) for family in (4, 6)]
    units = [e["unit"] for e in servers["a"].wait("offered", count=2)]
    helpers = [Prober(fleet.socket("a")), Usurper(fleet), Mover(fleet, units)]
    for h in helpers:
        h.start()
    gaps = []
    try:
        for _ in range(ROUNDS):
            inode = install(fleet)
            gaps += [upgrade(fleet, host, inode) for host in ("a", "b", "i")]
    finally:
        prober, usurper, mover = (h.stop() for h in helpers)
    for client in clients:
        client.wait_for_more(FRESH)
    refused = {"wrong_configuration": wrong_configuration(fleet),
               "missing_program": missing_program(fleet),
               "broken_program": broken_program(fleet),
               "changed_configuration": changed_configuration(fleet), "alone": alone(fleet)}
    same = all(fleet.agents[h].pid == pids[h] for h in pids)
    stopped = time.time_ns()
    reports = [c.finish() for c in clients]
    fin, rst = closes(wire.stop(), stopped)
    result = {"upgrades": len(gaps), "same_process": same, "ready_ms": round(max(gaps), 1),
              "connected": prober.connected, "refused": prober.refused,
              "usurped": usurper.tried - usurper.locked, "tried": usurper.tried,
              "moves": mover.moved, **refused, "control_refused": control(fleet),
              "messages": sum(r["received"]["messages"] for r in reports),
              "mismatches": sum(r["lost"] + r["duplicated"] + r["crc_errors"] for r in reports),
              "resets": sum(r["reconnects"] for r in reports), "fin": fin, "rst": rst}
    zeros = ("refused", "usurped", "mismatches", "resets", "fin", "rst")
    result["ok"] = (not any(result[z] for z in zeros) and same and all(refused.values()) and
                    result["upgrades"] == 3 * ROUNDS and result["connected"] > 100 and
                    result["tried"] > 5 and result["moves"] > 5 and result["control_refused"] > 0
                    and all(r["tcp_ok"] for r in reports))
    return result


def main():
    return on_fleet(test)
