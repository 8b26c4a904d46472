# SPDX-License-Identifier: BSD-2-Clause
"""
What cannot move is refused by a stable id, before anything is touched, and goes on.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three
 2. for each reason, over IPv4 and over IPv6: a stock client streams both ways through a connection
    of node A; the offer or the move is refused, by exactly that reason
 3. the stream goes on in the same connection, and ends politely; the unit is LOCAL on A (or was
    never one), B keeps no unit, no address, no socket
"""
import socket

from fleet import PORT, on_fleet
from net import FABRIC, VIP, wait_for
from peer import inside
from probe import Client, server

TCP_REPAIR = 19
IP_TRANSPARENT = 19
IPV6_TRANSPARENT = 75
STREAM = ("--rate", "200")


class Refused:
    """One reason: servers, what is done, and what is looked for afterwards."""

    def __init__(self, fleet, reason, argv=(), on_b=True, address=None):
        self.fleet = fleet
        self.reason = reason
        self.argv = argv
        self.on_b = on_b
        self.address = address or VIP

    def prepare(self, family, client):
        """Makes the reason true; whatever it returns is closed afterwards."""

    def unit(self, servers, seen):
        return wait_for("the unit", lambda: [
            e for kind in ("offered", "refused") for e in servers["a"].events(kind)
            if e["id"] not in seen])[0]

    def ask(self, unit):
        """The reason that the offer or the move is refused by."""
        if unit["event"] == "refused":
            return unit["reason"]
        return self.fleet.move(unit["unit"], "a", "b", check=False).get("error")

    def left_over(self):
        f = self.fleet
        here = {u["state"] for u in f.units("a")}
        lo = f.at("b", "ip", "-br", "addr", "show", "dev", "lo").stdout
        return {"states_a": sorted(here - {"local"}), "units_b": len(f.units("b")),
                "addresses_b": [v for v in VIP.values() if v in lo]}

    def run(self):
        hosts = ("a", "b") if self.on_b else ("a",)
        servers = {h: server(self.fleet, h, *STREAM, *self.argv, kind=self.reason) for h in hosts}
        rows = {f"v{family}": self.row(family, servers) for family in (4, 6)}
        for s in servers.values():
            self.fleet.stop(s.process)
        return rows

    def row(self, family, servers):
        seen = {e["id"] for kind in ("offered", "refused") for e in servers["a"].events(kind)}
        client = Client(self.fleet, family, *STREAM, name=f"{self.reason}{family}",
                        address=self.address[family])
        unit = self.unit(servers, seen)
        made = self.prepare(family, client)
        reason = self.ask(unit)
        client.wait_for_more(20)
        left = self.left_over()
        if made:
            made.close()
        report = client.finish()
        return {"reason": reason, "tcp_ok": report["tcp_ok"], "reconnects": report["reconnects"],
                "messages": report["received"]["messages"], **left,
                "ok": reason == self.reason and report["tcp_ok"] and not report["reconnects"] and
                not any(left.values())}


class Busy(Refused):
    """A socket on B has the client's tuple already."""

    def prepare(self, family, client):
        local, remote = VIP[family], client.interim()["connections"][0]["local"]
        address, port = remote.rsplit(":", 1)

        def make():
            s = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6)
            if family == 4:
                s.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
            else:
                s.setsockopt(socket.IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
            s.setsockopt(socket.SOL_TCP, TCP_REPAIR, 1)  # connects without a packet
            s.bind((local, PORT))
            s.connect((address.strip("[]"), int(port)))
            return s

        return inside(self.fleet, "b", make)


class SmallMtu(Refused):
    """B's device does not hold a client's packet and the tunnel."""

    def prepare(self, family, client):
        self.set(1500)
        return self

    def close(self):
        self.set(self.fleet.fabric_mtu)

    def set(self, mtu):
        self.fleet.at("b", "ip", "link", "set", "eth0", "mtu", str(mtu))
        wait_for("B's agent to see the MTU", lambda: all(
            n["mtu"] == mtu for n in self.fleet.ferry("b", "node", "list")["nodes"]))


class NoService(Refused):
    """An address that is A's and no service's: no node makes another one take it."""

    def __init__(self, fleet, reason):
        super().__init__(fleet, reason, address={4: "203.0.113.99", 6: "2001:db8:0:1::99"})
        for family, address in self.address.items():
            ip = ("ip", f"-{family}")
            fleet.at("a", *ip, "addr", "add", address, "dev", "lo", *(("nodad",) * (family == 6)))
            fleet.at("i", *ip, "route", "add", address, "via", FABRIC["a"][family == 6])

    def left_over(self):
        lo = self.fleet.at("b", "ip", "-br", "addr", "show", "dev", "lo").stdout
        left = super().left_over()
        return {**left, "addresses_b": left["addresses_b"] + [v for v in self.address.values()
                                                             if v in lo]}


def test(fleet):
    fleet.up()
    node_a = {4: FABRIC["a"][0], 6: FABRIC["a"][1]}
    rows = [Refused(fleet, reason, ("--add", reason))
            for reason in ("listen", "mptcp", "not-connected")]
    rows += [Refused(fleet, "app-missing", on_b=False), Busy(fleet, "tuple-busy"),
             SmallMtu(fleet, "mtu-smaller"),
             Refused(fleet, "addr-node-local", address=node_a), NoService(fleet, "addr-unavailable")]
    seen = {row.reason: row.run() for row in rows}
    refusals = {reason: all(r["ok"] for r in both.values()) for reason, both in seen.items()}
    return {"refusals": refusals, "seen": seen, "ok": all(refusals.values())}


def main():
    return on_fleet(test)
