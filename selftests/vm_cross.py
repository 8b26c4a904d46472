# SPDX-License-Identifier: BSD-2-Clause
"""
A live connection moves from one kernel to another and back, under a two-way stream.

Steps:
 1. client, ingress and a switch in namespaces here; node A is a guest with Debian's 6.1, node B one
    with 6.12, on taps of the switch; a real ferryd in the ingress and in both guests
 2. stock probe-clients stream both ways over IPv4 and IPv6 to a probe-server in A
 3. each moves A-B-A, again and again; each move is seen on the wires of the switch
 4. the clients end politely: every message of both directions is accounted for; the guests' kernel
    logs have no complaint in them
"""
import json
import os
import shutil
import time

from fleet import AGENT_USER, PORT, UDP_PORT, Fleet
from net import BUILD, FABRIC, FABRIC_MTU, Failure, run, wait_for
from probe import Client, percentiles
from vm import Guest
from wire import FLAGGED, Capture, Wires, closes, migrations

KERNEL = {"a": "6.1", "b": "6.12"}
PKI = "/etc/ferry/pki"
LEGS = 6
FRESH = 40
STREAM = ("--rate", "200")


class Guests(Fleet):
    """A fleet whose nodes are guests."""

    def __init__(self):
        super().__init__()
        self.guests = {}

    def build(self):
        for host in ("c", "i", "s"):
            self.add(host)
        self.link("c", "eth0", "i", "eth0", 1500)
        self.at("c", "ethtool", "-K", "eth0", "tx", "off")
        self.at("s", "ip", "link", "add", "br0", "type", "bridge")
        self.at("s", "ip", "link", "set", "br0", "mtu", str(FABRIC_MTU), "up")
        self.link("i", "eth1", "s", "to_i", FABRIC_MTU)
        self.at("s", "ip", "link", "set", "to_i", "master", "br0")
        for host in KERNEL:
            self.at("s", "ip", "tuntap", "add", f"to_{host}", "mode", "tap")
            self.at("s", "ip", "link", "set", f"to_{host}", "mtu", str(FABRIC_MTU), "master", "br0",
                    "up")
        self.address("i", "eth1", *FABRIC["i"])
        self.address("c", "eth0", "198.51.100.7", "2001:db8:c::7")
        self.address("i", "eth0", "198.51.100.1", "2001:db8:c::1")
        self.at("i", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        self.at("c", "ip", "route", "add", "default", "via", "198.51.100.1")
        self.at("c", "ip", "-6", "route", "add", "default", "via", "2001:db8:c::1")
        return self

    def boot(self):
        prefix = ("nsenter", f"--net=/run/netns/{self.ns('s')}")
        with open(self.config, encoding="ascii") as f:
            config = f.read().replace(self.pki, PKI)
        files = {"/usr/sbin/ferryd": f"{BUILD}/ferryd", "/usr/bin/ferry": f"{BUILD}/ferry",
                 "/usr/bin/probe-server": f"{BUILD}/probe-server",
                 "/usr/sbin/ip": os.path.realpath(shutil.which("ip")),
                 "/etc/ferry/ferry.conf": config.encode()}
        for f in os.listdir(self.pki):
            if not f.startswith("ca.key"):
                files[f"{PKI}/{f}"] = os.path.join(self.pki, f)
        for host, kernel in KERNEL.items():
            self.guests[host] = Guest(self.name(host), kernel, self.dir, files, [f"to_{host}"],
                                      prefix)
        for host, guest in self.guests.items():
            guest.up()
            v4, v6 = FABRIC[host]
            for line in (f"chown 64899 {PKI}/*.key; chmod 600 {PKI}/*.key",
                         f"/usr/sbin/ip link set eth0 mtu {FABRIC_MTU} up",
                         "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter",
                         "echo 0 > /proc/sys/net/ipv4/conf/eth0/rp_filter",
                         f"/usr/sbin/ip addr add {v4}/24 dev eth0; /usr/sbin/ip -6 addr add {v6}/64 dev eth0 nodad",
                         f"/usr/sbin/ip route add 198.51.100.0/24 via {FABRIC['i'][0]}",
                         f"/usr/sbin/ip -6 route add 2001:db8:c::/64 via {FABRIC['i'][1]}"):
                guest.sh(line)

    def up(self):
        self.build()
        self.write_config()
        self.make_pki()
        self.boot()
        for host, guest in self.guests.items():
            guest.sh(f"ferryd --user {AGENT_USER} --node {self.name(host)} 2>/tmp/ferryd.log &")
        self.start_agent("i")
        for host in ("a", "b", "i"):
            wait_for(f"agent {host} to be up", lambda h=host: self.ready(h), 40, every=0.2)
        return self

    def ready(self, host):
        p = self.ferry(host, "status", check=False)
        if p.get("verdict") == "OK" and p["resolved"] == p["connected"] == 2:
            return True
        self.last = p, host in self.guests and self.guests[host].sh("cat /tmp/ferryd.log")
        return False

    def ferry(self, host, *argv, check=True):
        if host not in self.guests:
            return super().ferry(host, *argv, check=check)
        code, out = self.guests[host].sh(
            f"ferry -j --node {self.name(host)} {' '.join(argv)} 2>/dev/null", check=False)
        if check and code:
            raise Failure(f"ferry {argv} in {host}: {out} {self.guests[host].sh('cat /tmp/ferryd.log')}")
        try:
            return json.loads(out)
        except ValueError:
            return {"error": "no-json", "text": out}

    def serve(self, host):
        self.guests[host].sh(f"probe-server --listen 0.0.0.0 --listen :: --port {PORT} --udp-port "
                             f"{UDP_PORT} --agent /run/ferry/{self.name(host)}.sock --kind probe "
                             f"{' '.join(STREAM)} >/tmp/server.jsonl 2>/tmp/server.log &")
        wait_for(f"the application of {host}", lambda: self.events(host, "registered"), 20, 0.2)

    def events(self, host, kind):
        rows = [json.loads(line) for line in self.guests[host].sh("cat /tmp/server.jsonl").split("\n")
                if line.startswith("{") and line.endswith("}")]
        return [r for r in rows if r["event"] == kind]

    def close(self):
        for guest in self.guests.values():
            guest.close()
        super().close()


def test(fleet):
    fleet.up()
    wires, wire = Wires(fleet), Capture(fleet, "c", "eth0", FLAGGED)
    for host in ("a", "b"):
        fleet.serve(host)
    clients, units = [], []
    for family in (4, 6):
        clients.append(Client(fleet, family, *STREAM))
        units.append(wait_for("the offer", lambda: fleet.events("a", "offered")[len(units):])[0]["unit"])
    moves = [[], []]
    for leg in range(LEGS):
        origin, to = ("a", "b") if leg % 2 == 0 else ("b", "a")
        for i, unit in enumerate(units):
            moves[i].append(fleet.move(unit, origin, to))
            clients[i].wait_for_more(FRESH)
    stopped = time.time_ns()
    reports = [c.finish() for c in clients]
    wires.stop()
    runs = wires.runs()
    fin, rst = closes(wire.stop(), stopped)
    migrated = [min(migrations(runs.get((6, int(c["local"].rsplit(":", 1)[1])), []), "a", LEGS)
                    for c in r["connections"]) for r in reports]
    splats = [line for g in fleet.guests.values() for line in g.splats()]
    result = {"moves": 2 * LEGS, "migrated": sum(migrated),
              "kernels": {h: fleet.guests[h].sh("uname -r").strip() for h in KERNEL},
              "messages": sum(r["received"]["messages"] + r["sent"]["messages"] for r in reports),
              "mismatches": sum(r[k] for r in reports for k in
                                ("lost", "duplicated", "reordered", "crc_errors", "reconnects")),
              "fin": fin, "rst": rst, "splats": splats,
              "freeze_us": percentiles([m["freeze_us"] for rows in moves for m in rows]),
              "stall_ms": percentiles([(to - since) / 1e6 for r in reports
                                       for _, since, to in r["gaps"]])}
    result["ok"] = (result["moves"] == result["migrated"] and result["messages"] > 0 and
                    not any(result[k] for k in ("mismatches", "fin", "rst", "splats")) and
                    all(r["tcp_ok"] for r in reports))
    return result


def main():
    run(os.path.join(os.path.dirname(BUILD), "tools/deps"), "vm", timeout=600)
    fleet = Guests()
    try:
        return test(fleet)
    finally:
        fleet.close()
