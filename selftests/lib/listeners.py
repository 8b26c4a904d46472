# SPDX-License-Identifier: BSD-2-Clause
"""
Listeners and clients in a network namespace of their own, in this process: who is queued where, and
what becomes of each client. Nothing here knows what ferry is.
"""
import os
import select
import socket
import struct
import time

from net import counters, enter, wait_for
from pins import link_xdp, load_xdp

PORT = 8000
LOOPBACK = {4: "127.0.0.1", 6: "::1"}
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
ESTABLISHED, SYN_RECV = 1, 3
COUNTED = ("TCPMigrateReqSuccess", "TCPMigrateReqFailure", "ListenOverflows", "ListenDrops")
LINGER_RESET = struct.pack("ii", 1, 0)


def counted():
    """The kernel's counters of what becomes of queues, in this thread's namespace."""
    with open("/proc/thread-self/net/netstat") as f:
        rows = counters(f.read())
    return {name: rows[f"TcpExt.{name}"] for name in COUNTED}


def sysctl(name, value):
    with open(f"/proc/sys/net/ipv4/{name}", "w") as f:
        f.write(str(value))


def queue(listener):
    """How many wait, and the backlog."""
    return struct.unpack_from("<II", listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32), 24)


def drop_acks(family, port=PORT):
    """What a client sends there on lo that is not a SYN does not arrive, until the descriptor that is
    returned is closed."""
    at = 14 + (20 if family == 4 else 40)
    return link_xdp(load_xdp(
        (0xb7, 0, 0, 2),                        # r0 = XDP_PASS
        (0x61, 0x12, 0, 0),                     # r2 = data
        (0x61, 0x13, 4, 0),                     # r3 = data_end
        (0xbf, 0x24, 0, 0),                     # r4 = r2
        (0x07, 4, 0, at + 14),                  # r4 += up to the flags' end
        (0x2d, 0x34, 5, 0),                     # if r4 > r3: end
        (0x69, 0x24, at + 2, 0),                # r4 = destination port
        (0x55, 4, 3, socket.htons(port)),
        (0x71, 0x24, at + 13, 0),               # r4 = flags
        (0x45, 4, 1, 2),                        # if r4 & SYN: end
        (0xb7, 0, 0, 1),                        # r0 = XDP_DROP
        (0x95, 0, 0, 0)), 1)


class Space:
    """A namespace, which this thread is in from with to its end."""
    made = 0

    def __init__(self, net, family, migrate):
        Space.made += 1
        self.net, self.host, self.family = net, f"l{Space.made}", family
        self.migrate = migrate
        self.sockets = []

    def __enter__(self):
        self.net.add(self.host)
        self.back = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        enter(f"/run/netns/{self.net.ns(self.host)}")
        sysctl("tcp_migrate_req", int(self.migrate))
        return self

    def __exit__(self, *_):
        for s in self.sockets:
            s.close()
        enter(f"/proc/thread-self/fd/{self.back}")
        os.close(self.back)
        self.net.delete(self.host)

    def keep(self, s):
        self.sockets.append(s)
        return s

    def socket(self):
        return self.keep(socket.socket(FAMILY[self.family], socket.SOCK_STREAM))

    def listener(self, backlog=128, port=PORT, reuse=True, options=()):
        s = self.socket()
        s.setblocking(False)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(reuse))
        for option in options:
            s.setsockopt(socket.IPPROTO_TCP, *option)
        s.bind((LOOPBACK[self.family], port))
        s.listen(backlog)
        return s

    def clients(self, count, port=PORT, first=0, wait=True, fastopen=False):
        """Each has connected and sent its number. first: of the ports they connect from. Not
        waiting, they may still be about to connect, and have sent nothing."""
        made = []
        for i in range(count):
            s = self.socket()
            made.append(s)
            if first:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind((LOOPBACK[self.family], first + i))
            s.setblocking(wait)
            at = (LOOPBACK[self.family], port)
            if fastopen:
                s.sendto(b"%03d" % i, socket.MSG_FASTOPEN, at)
                continue
            if wait:
                s.connect(at)
                s.send(b"%03d" % i)
            else:
                s.connect_ex(at)
        return made

    def held(self, count, listener, **kw):
        """Clients, all of which wait in this listener's queue."""
        made = self.clients(count, **kw)
        wait_for(f"{count} queued, {queue(listener)}", lambda: queue(listener)[0] == count)
        return made

    def close(self, sockets):
        """Without a trace: who connects next can have their ports."""
        for s in sockets:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            s.close()

    def is_connected(self, s):
        try:
            return bool(s.getpeername())
        except OSError:
            return False

    def accept(self, listener):
        """Who comes is answered. Their port, and whether their number came with them; or None."""
        try:
            s, name = listener.accept()
        except BlockingIOError:
            return None
        self.keep(s).setblocking(False)
        try:
            number = s.recv(100)
        except (BlockingIOError, ConnectionError):
            number = b""
        try:
            s.send(b"ok")
        except ConnectionError:
            pass
        return name[1], len(number) == 3

    def fates(self, clients, listeners, seconds=20):
        """The listeners accept whoever comes, until it is known of each client what becomes of it.
        How many of each, and the accepted ones' ports in their order."""
        fate, accepted = {}, []
        end = time.monotonic() + seconds
        while len(fate) < len(clients) and time.monotonic() < end:
            left = [c for c in clients if c not in fate]
            ready = select.select([*listeners, *left], [], [], 0.05)[0]
            for s in ready:
                if s in listeners:
                    accepted += filter(None, [self.accept(s)])
                    continue
                try:
                    fate[s] = {b"": "closed", b"ok": "answered"}[s.recv(100)]
                except ConnectionError:
                    fate[s] = "reset"
        for s in listeners:
            while (one := self.accept(s)):
                accepted.append(one)
        count = {f: list(fate.values()).count(f) for f in ("answered", "reset", "closed")}
        return {**count, "silent": len(clients) - len(fate), "accepted": len(accepted),
                "with_data": sum(data for _, data in accepted)}, [port for port, _ in accepted]

    def states(self, state, port=PORT):
        """How many sockets of the server's side are in it."""
        with open(f"/proc/thread-self/net/tcp{'6' if self.family == 6 else ''}") as f:
            rows = [line.split() for line in f.readlines()[1:]]
        return sum(int(r[1].split(":")[1], 16) == port and int(r[3], 16) == state for r in rows)

    def no_acks(self):
        return drop_acks(self.family)
