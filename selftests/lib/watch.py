# SPDX-License-Identifier: BSD-2-Clause
"""
Node A's agent under attack: what it has refused and what it holds, as it says itself and as the
kernel sees it; and rows, each of which is refused and leaves nothing behind.
"""
import json
import os
import socket

from net import Failure, wait_for


class Agent:
    """A's agent, as it sees itself and as the kernel sees it."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.pid = self.ping()["pid"]

    def ping(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            s.settimeout(5)
            s.connect(self.fleet.socket("a"))
            s.send(b'{"command":"ping"}')
            return json.loads(s.recv(65536))
        finally:
            s.close()

    def refused(self, reason=None):
        counts = self.ping()["peers_refused"]
        return counts.get(reason, 0) if reason else sum(counts.values())

    def state(self):
        """What must not grow. The descriptors of the question itself are the same each time."""
        p = self.ping()
        return {"channels": p["channels"], "moves": p["moves"],
                "descriptors": len(os.listdir(f"/proc/{self.pid}/fd")),
                "units": len(self.fleet.units("a"))}

    def rss_kb(self):
        with open(f"/proc/{self.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))

    def log(self):
        with open(os.path.join(self.fleet.dir, "ferryd-a.log")) as f:
            return f.read()


class Rows:
    def __init__(self, fleet, agent):
        self.fleet = fleet
        self.agent = agent
        self.count = 0
        self.refused = {}
        self.kept = {k: 0 for k in agent.state()}
        self.wrong = []
        wait_for("the channels with B to end", lambda: agent.state()["channels"] == 2)
        self.before = agent.state()

    def row(self, name, reason, act, seconds=1.0, settles=True):
        """act() is refused by that reason (None: by any), and nothing of it stays."""
        was = self.agent.refused(reason)
        try:
            act()
            wait_for(f"{name} to be refused", lambda: self.agent.refused(reason) > was, seconds)
        except (Failure, TimeoutError) as e:
            self.wrong.append(f"{name}: {e}: {self.agent.ping()['peers_refused']}")
        self.count += 1
        key = reason or "any"
        self.refused[key] = self.refused.get(key, 0) + 1
        if settles:
            self.settle()

    def settle(self):
        try:
            wait_for("A to be as before", lambda: self.agent.state() == self.before, 5)
        except Failure:
            for k, v in self.agent.state().items():
                self.kept[k] = max(self.kept[k], v - self.before[k])

    def check(self, name, ok):
        self.count += 1
        if not ok:
            self.wrong.append(name)
