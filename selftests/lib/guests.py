# SPDX-License-Identifier: BSD-2-Clause
"""
A fleet some of whose nodes are virtual machines, on taps of the switch. Client, ingress, switch and
the other nodes are network namespaces here, as in net.py.
"""
import json
import os
import shutil

from fleet import AGENT_USER, PORT, UDP_PORT, Fleet
from net import BUILD, FABRIC, FABRIC_MTU, Failure, wait_for
from vm import Guest

PKI = "/etc/ferry/pki"


class Guests(Fleet):
    """kernels: node -> a row of vm_store.KERNELS. systemd: the nodes where that is pid 1."""

    def __init__(self, kernels, systemd=(), **kw):
        super().__init__(**kw)
        self.kernels, self.systemd = kernels, systemd
        self.guests = {}

    def join(self, host):
        if host not in self.kernels:
            super().join(host)
            return
        self.at("s", "ip", "tuntap", "add", f"to_{host}", "mode", "tap")
        self.at("s", "ip", "link", "set", f"to_{host}", "mtu", str(FABRIC_MTU), "master", "br0", "up")

    def files(self, host):
        """What that guest is given."""
        with open(self.config, encoding="ascii") as f:
            config = f.read().replace(self.pki, PKI)
        name = self.name(host)
        return {"/usr/sbin/ferryd": f"{BUILD}/ferryd", "/usr/bin/ferry": f"{BUILD}/ferry",
                "/usr/bin/probe-server": f"{BUILD}/probe-server",
                "/usr/sbin/ip": os.path.realpath(shutil.which("ip")),
                "/etc/ferry/ferry.conf": config.encode(),
                **{f"{PKI}/{f}": os.path.join(self.pki, f) for f in
                   ("ca.crt", f"{name}.crt", f"{name}.key")}}

    def boot(self):
        prefix = ("nsenter", f"--net=/run/netns/{self.ns('s')}")
        for host, kernel in self.kernels.items():
            self.guests[host] = Guest(self.name(host), kernel, self.dir, self.files(host),
                                      [f"to_{host}"], prefix, host in self.systemd)
        for host, guest in self.guests.items():
            guest.up()
            v4, v6 = FABRIC[host]
            for line in (f"chown 64899 {PKI}/*.key; chmod 600 {PKI}/*.key",
                         f"ip link set eth0 mtu {FABRIC_MTU} up",
                         "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter",
                         "echo 0 > /proc/sys/net/ipv4/conf/eth0/rp_filter",
                         f"ip addr add {v4}/24 dev eth0",
                         f"ip -6 addr add {v6}/64 dev eth0 nodad",
                         f"ip route add 198.51.100.0/24 via {FABRIC['i'][0]}",
                         f"ip -6 route add 2001:db8:c::/64 via {FABRIC['i'][1]}"):
                guest.sh(line)

    def start_agent(self, host):
        if host not in self.guests:
            super().start_agent(host)
            return
        self.guests[host].sh(f"ferryd --user {AGENT_USER} --node {self.name(host)} "
                             "2>/tmp/ferryd.log &")

    def log(self, host):
        if host not in self.guests:
            return super().log(host)
        return self.guests[host].sh("cat /tmp/ferryd.log", check=False)[1][-2000:]

    def ready(self, host):
        if host not in self.guests:
            return super().ready(host)
        p = self.ferry(host, "status", check=False)
        return p.get("verdict") == "OK" and p["resolved"] == p["connected"] == 2

    def ferry(self, host, *argv, check=True):
        if host not in self.guests:
            return super().ferry(host, *argv, check=check)
        code, out = self.guests[host].sh(
            f"ferry -j --node {self.name(host)} {' '.join(argv)} 2>/dev/null", check=False)
        if check and code:
            raise Failure(f"ferry {' '.join(argv)} in {host}: {out} {self.log(host)}")
        try:
            return json.loads(out)
        except ValueError:
            return {"error": "no-json", "text": out}

    def splats(self):
        """What the guests' kernels complained of."""
        return [f"{host}: {line}" for host, g in self.guests.items() for line in g.splats()]

    def close(self):
        for guest in self.guests.values():
            guest.close()
        super().close()


class GuestServer:
    """probe-server in a guest, registered with its agent; as probe.server() for a namespace."""

    def __init__(self, fleet, host, *argv):
        self.guest = fleet.guests[host]
        self.guest.sh(f"probe-server --listen 0.0.0.0 --listen :: --port {PORT} --udp-port {UDP_PORT} "
                      f"--agent /run/ferry/{fleet.name(host)}.sock --kind probe {' '.join(argv)} "
                      ">/tmp/server.jsonl 2>/tmp/server.log & echo $! >/tmp/server.pid")
        self.wait("registered")

    def events(self, kind):
        lines = self.guest.sh(f"grep '\"{kind}\"' /tmp/server.jsonl", check=False)[1].split("\n")
        rows = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [r for r in rows if r["event"] == kind]

    def wait(self, kind, seconds=20, count=1):
        return wait_for(f"'{kind}' in guest {self.guest.name}",
                        lambda: len(self.events(kind)) >= count and self.events(kind), seconds, 0.1)

    def kill(self):
        self.guest.sh("kill -9 $(cat /tmp/server.pid)")
