# SPDX-License-Identifier: BSD-2-Clause
"""
ferry on the topology of net.py: a real ferryd in the ingress and in both nodes, one configuration,
and the commands as an operator would type them.
"""
import json
import os
import subprocess

from net import BUILD, FABRIC, NUMBER, VIP, Failure, Net, bpffs, run, wait_for

AGENT_USER = "64899:64899"  # of nobody's: no account is needed
PORT, UDP_PORT, HTTP_PORT = 443, 444, 80


class Fleet(Net):
    """faults: host -> FERRY_FAULT of its agent. underlay: family of the tunnel."""

    def __init__(self, faults=None, underlay=4, packet=1500, **kw):
        super().__init__(**kw)
        self.faults = faults or {}
        self.underlay = underlay
        self.packet = packet
        self.agents = {}
        self.config = os.path.join(self.dir, "ferry.conf")
        self.pki = os.path.join(self.dir, "pki")

    def name(self, host):
        return f"{self.tag}{host}"

    def socket(self, host):
        return os.path.join(self.dir, f"{host}.sock")

    def write_config(self):
        def addresses(host):
            v4, v6 = FABRIC[host]
            return f"{v4} {v6}" if self.underlay == 4 else f"{v6} {v4}"

        lines = ["[fleet]", f"packet = {self.packet}", "tag = 0123456789abcdef",
                 f"pki = {self.pki}"]
        for host in ("a", "b", "i"):
            lines += [f"[node {self.name(host)}]", f"number = {NUMBER[host]}",
                      f"address = {addresses(host)}",
                      "interfaces = eth0 eth1" if host == "i" else "interfaces = eth0",
                      "tunnel = eth1" if host == "i" else "tunnel = eth0",
                      f"role = {'ingress' if host == 'i' else 'backend'}",
                      "units = 1024", "buckets4 = 1024", "buckets6 = 1024"]
        for family in (4, 6):
            for name, port, proto in (("probe", PORT, "tcp"), ("udp", UDP_PORT, "udp"),
                                      ("http", HTTP_PORT, "tcp")):
                lines += [f"[service {name}{family}]", f"address = {VIP[family]}",
                          f"port = {port}", f"protocol = {proto}", f"node = {self.name('a')}"]
        with open(self.config, "w") as f:
            f.write("\n".join(lines) + "\n")

    def agent_argv(self, host):
        """What starts that host's agent, and as whom."""
        return f"{self.bin}/ferryd", "--user", AGENT_USER

    def make_pki(self):
        """The fleet's authority, and a certificate for each node: all in one directory here."""
        run(f"{BUILD}/ferry", "pki", "init", "--dir", self.pki)
        for host in ("a", "b", "i"):
            self.issue(host)

    def issue(self, host):
        """A certificate for that node, whose key is the agent's user's."""
        run(f"{BUILD}/ferry", "pki", "issue", self.name(host), "--dir", self.pki)
        os.chown(f"{self.pki}/{self.name(host)}.key", int(AGENT_USER.split(":")[0]), -1)

    def start_agent(self, host):
        env = {"FERRY_FAULT": self.faults[host]} if host in self.faults else {}
        self.agents[host] = self.start(host, *self.agent_argv(host), "--node", self.name(host),
                                       "--config", self.config, "--socket", self.socket(host),
                                       log=f"ferryd-{host}.log", env=env)

    def up(self):
        bpffs()
        self.build()
        self.write_config()
        self.make_pki()
        self.boot()
        for host in ("a", "b", "i"):
            self.start_agent(host)
        for host in ("a", "b", "i"):
            wait_for(f"agent {host} to be up: {self.log(host)}",
                     lambda h=host: self.ready(h), 40)
        return self

    def boot(self):
        """Where hosts are machines: starts them."""

    def log(self, host):
        try:
            with open(os.path.join(self.dir, f"ferryd-{host}.log")) as f:
                return f.read()[-2000:]
        except OSError:
            return ""

    def ready(self, host):
        if self.agents[host].poll() is not None:
            raise Failure(f"ferryd of {host} ended: {self.log(host)}")
        p = self.ferry(host, "status", check=False)
        return (p.get("verdict") == "OK" and p["resolved"] == p["connected"] == 2 and
                p["agent"] == self.agents[host].pid)

    def ferry(self, host, *argv, check=True):
        """An operator's command on that host; its JSON."""
        p = subprocess.run(["nsenter", f"--net=/run/netns/{self.ns(host)}", f"{BUILD}/ferry", "-j",
                            "--node", self.name(host), "--socket", self.socket(host), *argv],
                           capture_output=True, text=True, timeout=60)
        try:
            answer = json.loads(p.stdout)
        except ValueError:
            answer = {"error": "no-json", "text": p.stdout + p.stderr}
        if check and p.returncode:
            raise Failure(f"ferry {' '.join(argv)} on {host}: exit {p.returncode}: {answer}"
                          f" | {self.log(host)[-400:]}")
        return answer

    def move(self, unit, origin, to, check=True):
        return self.ferry(origin, "move", unit, "--to", self.name(to), check=check)

    def units(self, host, state=None):
        return [u for u in self.ferry(host, "unit", "list")["units"]
                if state is None or u["state"] == state]

    def counter(self, host, name):
        for row in self.ferry(host, "counters")["counters"]:
            if row["name"] == name:
                return row["packets"]
        raise Failure(f"no counter {name}")

    def kill_agent(self, host):
        p = self.agents.pop(host)
        p.kill()
        p.wait()
        self.processes.remove(p)

    def close(self):
        try:
            for host in list(self.agents):
                self.stop(self.agents.pop(host))
            for host in ("a", "b", "i"):
                if os.path.isdir(f"/sys/fs/bpf/ferry/{self.name(host)}"):
                    self.detach(host)
        finally:
            super().close()

    def detach(self, host):
        argv = (f"{BUILD}/ferryd", "--node", self.name(host), "--socket", self.socket(host),
                "--detach", "--force")
        if host in self.spaces:
            self.at(host, *argv)
        else:  # the devices went with their namespace
            run(*argv)


def on_fleet(test, **kw):
    """test(fleet) on a fleet that is taken away whatever happens."""
    fleet = Fleet(**kw)
    try:
        return test(fleet)
    finally:
        fleet.close()
