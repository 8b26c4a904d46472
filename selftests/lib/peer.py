# SPDX-License-Identifier: BSD-2-Clause
"""Plain TCP sockets of the kernel, made inside a host's namespace: the stock peer of a test."""
import fcntl
import socket
import struct
import threading
import time

from net import enter

SIOCOUTQ = 0x5411


def inside(net, host, make):
    """Calls make() in the host's network namespace; what it opened stays there."""
    result = []

    def work():
        try:
            enter(f"/run/netns/{net.ns(host)}")
            result.append(make())
        except Exception as e:  # raised again by the caller's thread
            result.append(e)

    thread = threading.Thread(target=work)  # setns is of this thread alone
    thread.start()
    thread.join()
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def connect(net, address, port, host="c", timeout=5, proto=0):
    def make():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        s = socket.socket(family, socket.SOCK_STREAM, proto)
        s.settimeout(timeout)
        s.connect((address, port))
        return s

    return inside(net, host, make)


def unacknowledged(s):
    """Octets that the other side has not acknowledged."""
    return struct.unpack("i", fcntl.ioctl(s, SIOCOUTQ, b"\0" * 4))[0]


def answer(s, size, seconds):
    """Reads until size octets are in; what came: octets, "reset", "end" or "silence" (partly)."""
    got = 0
    end = time.monotonic() + seconds
    while got < size:
        s.settimeout(max(0.001, end - time.monotonic()))
        try:
            data = s.recv(65536)
        except ConnectionResetError:
            return "reset"
        except TimeoutError:
            return "silence"
        if not data:
            return "end"
        got += len(data)
    return got


class Reader(threading.Thread):
    """Reads as fast as it comes, and keeps the times at which it came (CLOCK_BOOTTIME, ns)."""

    def __init__(self, s):
        super().__init__(daemon=True)
        self.s = s
        self.octets = 0
        self.times = []
        self.broken = None
        s.settimeout(None)
        self.start()

    def run(self):
        while True:
            try:
                data = self.s.recv(1 << 18)
            except OSError as e:
                self.broken = type(e).__name__
                return
            if not data:
                return
            self.octets += len(data)
            self.times.append(time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def silence_after(self, when):
        """Seconds from the last octet before `when`, or from it, to the next one; or to now."""
        later = [t for t in list(self.times) if t > when]
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return ((later[0] if later else now) - when) / 1e9
