# SPDX-License-Identifier: BSD-2-Clause
"""
Applications without any right, each in a network namespace of its own behind its node, are moved as
any other: the agent enters no namespace, and needs no right for it.

Steps:
 1. client, ingress, node A, node B; behind A and B a namespace each, with the service's addresses
    and a default route; the nodes forward, and route the addresses there ('deliver = route')
 2. in them probe-servers on port 443 as uid 65534, no capabilities, no_new_privs; agents that have
    given up theirs. TCP over IPv4 and IPv6, and TCP + TCP + UDP, move back and forth; each change
    is seen on the nodes' wires
 3. while a unit is frozen, its namespace still sends (its sockets acknowledge): the fence on the
    node's device stops that, and no packet is seen meanwhile; with the fence taken out some are
 4. A's and B's agents are killed; the next ones find the sockets by what the applications lend them,
    and the units move again
 5. an application is killed while its agent is down: when the next one has registered from that
    namespace, its units are known to have ended
 6. who lends no sock_diag socket, or offers an address that is not routed, is refused
 7. the clients end; no node holds a unit or a flow
"""
import os
import resource
import signal
import socket
import time

from net import VIP, wait_for
from peer import inside
from probe import Client, server
from rights import (APP, MESSAGE, VERSION, HELLO, Rights, as_user, connect, offer, only,
                    register, status)
from wire import FLAGGED, Capture, Wires, boot_offset, closes, migrations

FRESH = 60  # messages: more than its receive buffer holds
PODS = {"pa": ("a", "10.0.0.2", "10.0.0.1", "2001:db8:a::2", "2001:db8:a::1"),
        "pb": ("b", "10.0.0.2", "10.0.0.1", "2001:db8:a::2", "2001:db8:a::1")}
ROWS = (("v4", 4, ("--tcp", "1", "--rate", "200", "--pause-read", "150/250")),
        ("v6", 6, ("--tcp", "1", "--rate", "200", "--pause-read", "150/250")),
        ("set4", 4, ("--tcp", "2", "--rate", "200", "--udp", "unconnected", "--udp-rate", "200")),
        ("set6", 6, ("--tcp", "2", "--rate", "200", "--udp", "connected", "--udp-rate", "200")))
LEGS = 2
SETTLED_NS = 2000000  # what was on its way when a unit was fenced has passed the switch
NETLINK_SOCK_DIAG = 4


class Spaces(Rights):
    """A fleet with a network namespace behind A and one behind B."""

    def build(self):
        super().build()
        for pod, (node, v4, gw4, v6, gw6) in PODS.items():
            self.add(pod)
            self.link(pod, "eth0", node, "pod0", 1500)
            self.address(pod, "eth0", v4, v6)
            self.address(node, "pod0", gw4, gw6)
            self.at(pod, "ip", "route", "add", "default", "via", gw4)
            self.at(pod, "ip", "-6", "route", "add", "default", "via", gw6)
            self.at(pod, "sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=0")
            self.at(node, "sysctl", "-qw", "net.ipv4.ip_forward=1",
                    "net.ipv6.conf.all.forwarding=1")
            self.address(pod, "lo", VIP[4], VIP[6], "32", "128")
            self.at(node, "ip", "route", "add", VIP[4], "via", v4)
            self.at(node, "ip", "-6", "route", "add", VIP[6], "via", v6)
        return self

    def write_config(self):
        super().write_config()
        with open(self.config) as f:
            text = f.read()
        with open(self.config, "w") as f:
            f.write(text.replace(f"node = {self.name('a')}\n",
                                 f"node = {self.name('a')}\ndeliver = route\n"))

    def serve(self, pod, name=None):
        node = PODS[pod][0]
        s = server(self, pod, "--rate", "1000", "--pacing", "5000000", agent=node, name=name or f"server-{node}",
                   before=only((), APP, os.stat(self.socket(node)).st_gid))
        rights = status(s.process.pid)
        assert not any(int(str(rights[k]), 16) for k in ("CapPrm", "CapEff", "CapAmb")), rights
        return s


def start_streams(fleet, servers):
    clients, units = [], []
    for name, family, argv in ROWS:
        clients.append(Client(fleet, family, *argv, name=name))
        units.append(servers["a"].wait("offered", count=len(units) + 1)[-1]["unit"])
    return clients, units


def move_all(fleet, clients, units, origin, to):
    for client, unit in zip(clients, units):
        fleet.move(unit, origin, to)
        client.wait_for_more(FRESH)


def moved(fleet):
    """Just that: each unit to B and back."""
    fleet.up()
    wires, wire = Wires(fleet), Capture(fleet, "c", "eth0", FLAGGED)
    servers = {PODS[pod][0]: fleet.serve(pod) for pod in PODS}
    clients, units = start_streams(fleet, servers)
    for origin, to in (("a", "b"), ("b", "a")):
        move_all(fleet, clients, units, origin, to)
    stopped_at = time.time_ns()
    reports = [c.finish() for c in clients]
    wires.stop()
    fin, rst = closes(wire.stop(), stopped_at)
    return {"moves": 2 * len(units), "migrated": sum(seen(wires, reports, 2)),
            "mismatches": mismatches(reports), "fin": fin, "rst": rst}


def seen(wires, reports, moves):
    """Per client, of so many moves those that are seen on the nodes' wires."""
    runs = wires.runs()
    return [min(migrations(runs.get((6, int(c["local"].rsplit(":", 1)[1])), []), "a", moves)
                for c in r["connections"]) for r in reports]


def mismatches(reports):
    return sum(r[k] for r in reports for k in
               ("lost", "duplicated", "reordered", "crc_errors", "reconnects"))


def restarted(fleet, servers, faults=None):
    """New agents on A and B; what their applications hold is theirs again."""
    before = {h: len(servers[h].events("registered")) for h in ("a", "b")}
    for host in ("a", "b"):
        fleet.kill_agent(host)
    fleet.faults = {h: faults for h in ("a", "b")} if faults else {}
    for host in ("a", "b"):
        fleet.start_agent(host)
    for host in ("a", "b"):
        wait_for(f"agent {host}", lambda h=host: fleet.ready(h), 15)
        wait_for(f"the application of {host}",
                 lambda h=host: len(servers[h].events("registered")) > before[h])


def fenced(fleet):
    return sum(fleet.counter(h, "egress-fenced") for h in ("a", "b"))


def register_with_diag(s, pod_ns, kind):
    """HELLO as libferry says it, with a sock_diag socket of that namespace."""
    socket.send_fds(s, [MESSAGE.pack(HELLO, VERSION, 0, 0, 0, 0, 0, b"", kind.encode())], [pod_ns])
    return MESSAGE.unpack(s.recv(8192))[4]


def refusals(fleet):
    group = os.stat(fleet.socket("a")).st_gid

    def udp(address):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
        s.bind((address, 20000))
        return s

    def diag():
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)

    served, other = (inside(fleet, "pa", lambda a=a: udp(a)) for a in (VIP[4], "203.0.113.99"))
    ask = inside(fleet, "pa", diag)

    def offers():
        without, lent = connect(fleet.socket("a")), connect(fleet.socket("a"))
        register(without, "without")
        register_with_diag(lent, ask.fileno(), "lent")
        return [offer(without, 1, served.fileno()), offer(lent, 1, other.fileno()),
                offer(lent, 2, served.fileno())]

    return as_user(APP, [group], offers) == ["other-netns", "addr-unavailable", ""]


def sent_frozen(wires, moves):
    """Packets that left the nodes for the clients' TCP connections while their unit was frozen."""
    offset, sent = boot_offset(), 0
    for client, move in moves:
        ports = {int(c["local"].rsplit(":", 1)[1]) for c in client.interim()["connections"]}
        since = move["fenced_ns"] + offset + SETTLED_NS
        until = move["local_ns"] + offset - SETTLED_NS
        sent += sum(since < p.time < until and p.proto == 6 and p.dport in ports
                    for capture in wires.captures.values() for p in capture.packets())
    return sent


def held(fleet, servers, clients, units, fault=""):
    """Moves that stay frozen for a while, under streams: what was sent meanwhile, and stopped."""
    # with the send queue not selected, a paced socket sends on while it is frozen
    restarted(fleet, servers, "hold-ms=250,no-send-queue" + fault)
    before, wires, moves = fenced(fleet), Wires(fleet), []
    for origin, to in (("a", "b"), ("b", "a")):
        for client, unit in zip(clients, units):
            wait_for("the application to hold it", lambda: unit in
                     [u["unit"] for u in fleet.units(origin, "local")])
            moves.append((client, fleet.move(unit, origin, to)))
            if not fault:  # else it may be broken
                client.wait_for_more(FRESH)
    wires.stop(running=True)
    return sent_frozen(wires, moves), fenced(fleet) - before


def forgotten(fleet, servers):
    """A's application dies while its agent is down: how many units were kept until there was
    somebody to ask."""
    clients = [Client(fleet, family, *argv, name=f"gone{family}") for _, family, argv in ROWS[:2]]
    wait_for("A to hold units", lambda: len(fleet.units("a", "local")) == 2)
    fleet.kill_agent("a")
    fleet.stop(servers["a"].process, signal.SIGKILL)
    fleet.start_agent("a")
    wait_for("agent a", lambda: fleet.ready("a"), 15)
    kept = len(fleet.units("a", "local"))
    for client in clients:
        fleet.stop(client.process, signal.SIGKILL)
    fleet.at("pa", "ss", "-K", "state", "time-wait")  # else it were a minute
    servers["a"] = fleet.serve("pa", "server-a-again")
    wait_for("what it had to be known to have ended", lambda: empty(fleet), 30)
    return kept


def empty(fleet):
    return not any(len(fleet.units(h)) + fleet.ferry(h, "flow", "list")["total"]
                   for h in ("a", "b", "i"))


def test(fleet):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    fleet.up()
    fleet.faults = {}
    # windows close, so that there is always something to be sent again, or to probe for
    fleet.at("c", "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 32768 65536")
    wires, wire = Wires(fleet), Capture(fleet, "c", "eth0", FLAGGED)
    servers = {PODS[pod][0]: fleet.serve(pod) for pod in PODS}
    clients, units = start_streams(fleet, servers)
    sent, stopped = held(fleet, servers, clients, units)
    for leg in range(LEGS):
        move_all(fleet, clients, units, *(("a", "b") if leg % 2 == 0 else ("b", "a")))
    restarted(fleet, servers)
    move_all(fleet, clients, units, "a", "b")
    stopped_at = time.time_ns()
    reports = [c.finish() for c in clients]
    wires.stop()
    fin, rst = closes(wire.stop(), stopped_at)
    migrated = seen(wires, reports, LEGS + 3)
    refused = refusals(fleet)
    wait_for("every node to be empty", lambda: empty(fleet), 20)
    kept = forgotten(fleet, servers)
    offers = len(servers["a"].events("offered"))
    last = [Client(fleet, family, *argv, name=f"last{family}") for _, family, argv in ROWS[:2]]
    units = [e["unit"] for e in servers["a"].wait("offered", count=offers + 2)[-2:]]
    control, _ = held(fleet, servers, last, units, ",no-egress-fence")
    for client in last:
        fleet.stop(client.process, signal.SIGKILL)
    restarted(fleet, servers)
    result = {"moves": len(ROWS) * (LEGS + 3), "migrated": sum(migrated),
              "sent_frozen": sent, "fenced": stopped, "control_sent_frozen": control,
              "refused": refused, "kept_until_asked": kept,
              "messages": sum(r["received"]["messages"] + r["sent"]["messages"] for r in reports),
              "mismatches": mismatches(reports), "fin": fin, "rst": rst}
    result["ok"] = (result["moves"] == result["migrated"] and not sent and stopped > 0 and
                    control > 0 and refused and kept == 2 and result["messages"] > 0 and
                    not result["mismatches"] and not fin and not rst and all(r["tcp_ok"] for r in reports))
    return result


def main():
    fleet = Spaces()
    try:
        return test(fleet)
    finally:
        fleet.close()
