# SPDX-License-Identifier: BSD-2-Clause
"""
What left which wire, by tcpdump: independent of ferry and of its counters.
"""
import os
import re
import signal
import socket
import struct
import time
from collections import namedtuple

from net import VIP, Failure, counters as kernel_counters, wait_for

Packet = namedtuple("Packet", "time proto src sport dst dport flags")
FIN, SYN, RST, ACK = 1, 2, 4, 16


class Capture:
    """One device of one host. direction: "in", "out" or "inout", as tcpdump's -Q."""

    def __init__(self, net, host, device, what, direction="inout", snaplen=96, path=None):
        self.net = net
        self.direction = direction
        self.path = path or os.path.join(net.dir, f"{host}-{device}-{len(os.listdir(net.dir))}.pcap")
        self.log = os.path.basename(self.path) + ".log"
        self.process = net.start(host, "tcpdump", "-i", device, "-Q", direction, "-n", "-U",
                                 "--immediate-mode", "-s",
                                 str(snaplen), "-B", "32768", "--time-stamp-precision=nano", "-Z",
                                 "root", "-w", self.path, what, log=self.log)
        wait_for(f"tcpdump on {device}", lambda: "listening on" in self.said())

    def said(self):
        try:
            with open(os.path.join(self.net.dir, self.log)) as f:
                return f.read()
        except OSError:
            return ""

    def said_counts(self):
        """Packets captured, received by the filter, dropped: each time that tcpdump said so."""
        return list(zip(*([int(n) for n in re.findall(rf"(\d+) packets? {what}", self.said())]
                          for what in ("captured", "received by filter", "dropped by kernel"))))

    def counts(self):
        """The same, now."""
        before = len(self.said_counts())
        self.process.send_signal(signal.SIGUSR1)
        return wait_for("tcpdump to answer", lambda: self.said_counts()[before:])[-1]

    def stop(self, running=False):
        """Ends it; a capture that has lost packets, or left some unread, proves nothing. running:
        traffic goes on meanwhile, so that what came last may be unread."""
        counts = [None]
        if not running and self.process.poll() is None:
            wait_for("the capture to come to rest",
                     lambda: counts.append(self.counts()) or counts[-1] == counts[-2] and
                     (self.direction != "inout" or counts[-1][0] == counts[-1][1]), every=0.05)
        if self.process.poll() is None:
            self.net.stop(self.process, signal.SIGINT)
        counts = self.said_counts()[-1]
        # with a direction, what went the other way counts as received, too
        unread = counts[0] < counts[1] and self.direction == "inout" and not running
        if counts[2] or unread:
            raise Failure(f"tcpdump lost packets: {self.said()}")
        return self

    def packets(self):
        with open(self.path, "rb") as f:
            data = f.read()
        if len(data) < 24 or struct.unpack_from("<I", data)[0] != 0xa1b23c4d:
            raise Failure(f"{self.path} is no capture")
        at = 24
        while at + 16 <= len(data):
            sec, nsec, size, _ = struct.unpack_from("<IIII", data, at)
            at += 16
            packet = parse(data[at:at + size], sec * 1000000000 + nsec)
            at += size
            if packet:
                yield packet


def parse(frame, when):
    """TCP and UDP without options or extension headers in front; anything else is None."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        proto, l4 = frame[23], 14 + (frame[14] & 15) * 4
        src, dst = frame[26:30], frame[30:34]
    elif kind == b"\x86\xdd":
        proto, l4 = frame[20], 54
        src, dst = frame[22:38], frame[38:54]
    else:
        return None
    if proto not in (6, 17) or len(frame) < l4 + 4:
        return None
    sport, dport = struct.unpack_from("!HH", frame, l4)
    flags = frame[l4 + 13] if proto == 6 and len(frame) > l4 + 13 else 0
    return Packet(when, proto, src, sport, dst, dport, flags)


def closes(capture, before=None):
    """FIN and RST on a wire, until a time of time.time_ns()."""
    fin = rst = 0
    for p in capture.packets():
        if p.proto == 6 and (before is None or p.time < before):
            fin += bool(p.flags & FIN)
            rst += bool(p.flags & RST)
    return fin, rst


FLAGGED = ("(ip and tcp and (tcp[13] & 5 != 0)) or (ip6 and ip6[6] = 6 and (ip6[53] & 5 != 0))")

FROM_SERVICE = f"(src host {VIP[4]} or src host {VIP[6]}) and ({FLAGGED})"


class Wires:
    """Which node's wire the service's packets leave by, seen in the switch."""

    def __init__(self, net):
        what = f"(tcp or udp) and (src host {VIP[4]} or src host {VIP[6]})"
        self.captures = {host: Capture(net, "s", f"to_{host}", what, "in") for host in ("a", "b")}

    def stop(self, running=False):
        for c in self.captures.values():
            c.stop(running)

    def runs(self):
        """Flow (proto, client's port) -> [(wire, first time, last time, packets)], in the order
        of time: one entry for each unbroken run of packets from one wire."""
        merged = sorted(((p.time, host, p) for host, c in self.captures.items()
                         for p in c.packets()), key=lambda row: row[0])
        flows = {}
        for when, host, p in merged:
            runs = flows.setdefault((p.proto, p.dport), [])
            if runs and runs[-1][0] == host:
                runs[-1] = (host, runs[-1][1], when, runs[-1][3] + 1)
            else:
                runs.append((host, when, when, 1))
        return flows


def migrations(runs, origin, moves):
    """How many moves of one flow can be seen on the wires: it starts on the origin's, and each
    move is one change of wire. More changes than moves is two nodes sending in turn: none count."""
    changes = len(runs) - 1
    if not runs or runs[0][0] != origin or changes > moves:
        return 0
    return changes


def counters(net, host):
    """The kernel's TCP counters of a namespace: packets without a route, retransmitted
    segments, timeouts, checksum errors."""
    rows = kernel_counters(*(net.at(host, "cat", f"/proc/net/{f}").stdout for f in ("snmp", "netstat")))
    for line in net.at(host, "cat", "/proc/net/snmp6").stdout.splitlines():
        name, value = line.split()
        rows[name] = int(value)
    return {"no_route": rows["Ip6InNoRoutes"] + rows["Ip.InAddrErrors"], "retransmits": rows["Tcp.RetransSegs"], "rto": rows["TcpExt.TCPTimeouts"],
            "checksum": rows["Tcp.InCsumErrors"]}


def address(data):
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)


def boot_offset():
    """time.time_ns() less CLOCK_BOOTTIME, to hold captures against agents' clocks."""
    best = None
    for _ in range(5):
        one = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        real = time.time_ns()
        two = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if best is None or two - one < best[0]:
            best = (two - one, real - (one + two) // 2)
    return best[1]
