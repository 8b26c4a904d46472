# SPDX-License-Identifier: BSD-2-Clause
"""
HTTP clients in a network namespace, one connection a request, and what became of each: answered
with what it asked for, refused, reset, cut (closed before the answer was whole), wrong, or none of
that yet. One thread serves all of them, by epoll.
"""
import collections
import errno
import re
import select
import socket
import struct
import threading

from net import Failure, enter, wait_for

ABORT = struct.pack("ii", 1, 0)  # a struct linger: close() resets
FILE = b"file\n"  # what a server of files has at "/"


class Connection:
    def __init__(self, number, address):
        self.path = f"/?{number}".encode()
        self.got = b""
        self.is_sent = False
        self.socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET,
                                    socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.error = self.socket.connect_ex(address)

    def step(self):
        """What has become of it, or None."""
        try:
            if not self.is_sent:
                error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, "connect")
                self.socket.send(b"GET " + self.path + b" HTTP/1.0\r\n\r\n")
                self.is_sent = True
                return None
            data = self.socket.recv(65536)
        except BlockingIOError:
            return None
        except OSError as e:
            return {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "resets",
                    errno.EPIPE: "resets"}.get(e.errno, errno.errorcode[e.errno])
        self.got += data
        return self.judge(bool(data))

    def judge(self, more):
        head, gap, body = self.got.partition(b"\r\n\r\n")
        size = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
        whole = gap and (len(body) >= int(size.group(1)) if size else not more)
        if not whole:
            return None if more else "cut"
        good = re.match(rb"HTTP/1\.[01] 200 ", head) and body in (self.path, FILE)
        return "answered" if good else "wrong"

    def server(self):
        """Which process has answered, where it says so."""
        said = re.search(rb"\r\nx-pid: *(\d+)", self.got, re.I)
        return int(said.group(1)) if said else None


class Clients(threading.Thread):
    """So many connections at a time; again: a new one takes the place of one that has ended."""

    def __init__(self, net, address, port, count, again=False):
        super().__init__(daemon=True)
        self.namespace, self.address, self.count, self.again = net, (address, port), count, again
        self.ended = collections.Counter()
        self.by = collections.Counter()  # answers by process
        self.begun = self.sent = 0
        self.open = {}
        self.failure = None
        self.leaving = False
        self.start()

    def run(self):
        try:
            enter(f"/run/netns/{self.namespace}")
            self.serve()
        except Exception as e:  # whoever waits hears of it
            self.failure = e

    def serve(self):
        poll = select.epoll()
        for _ in range(self.count):
            self.begin(poll)
        while self.open:
            for fd, _ in poll.poll(0.2):
                c = self.open[fd]
                was_sent = c.is_sent
                fate = c.step()
                if c.is_sent and not was_sent:
                    self.sent += 1
                    poll.modify(fd, select.EPOLLIN)
                if fate:
                    self.end(fd, c, fate, poll)
            if self.leaving:
                for fd, c in list(self.open.items()):
                    c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                    self.end(fd, c, "left", poll)
        poll.close()

    def begin(self, poll):
        c = Connection(self.begun, self.address)
        self.begun += 1
        self.open[c.socket.fileno()] = c
        poll.register(c.socket, select.EPOLLOUT)

    def end(self, fd, c, fate, poll):
        self.ended[fate] += 1
        if fate == "answered":
            self.by[c.server()] += 1
        poll.unregister(fd)
        c.socket.close()
        del self.open[fd]
        if self.again:
            self.begin(poll)

    def check(self):
        if self.failure:
            raise self.failure
        return True

    def wait_sent(self, seconds=20):
        wait_for(f"{self.count} clients to have sent, {self.sent} have",
                 lambda: self.check() and self.sent + self.ended["refused"] >= self.count, seconds)

    def wait_answered(self, more, seconds=30):
        """So many more answers than there are now."""
        goal = self.ended["answered"] + more
        try:
            wait_for(f"{more} more answers",
                     lambda: self.check() and self.ended["answered"] >= goal, seconds)
        except Failure as e:
            raise Failure(f"{e}: {self.figures()}") from None

    def figures(self):
        fates = ("answered", "refused", "resets", "cut", "wrong")
        return {**{f: self.ended[f] for f in fates},
                **{f: n for f, n in self.ended.items() if f not in fates}}

    def end_sending(self):
        """A FIN of each that is open."""
        for c in list(self.open.values()):
            c.socket.shutdown(socket.SHUT_WR)

    def leave(self):
        """A RST of each that is open."""
        self.again, self.leaving = False, True
        self.join(5)
        self.check()

    def finish(self, seconds=30):
        """No new ones; waits for those under way. Who has heard nothing then is "waiting"."""
        self.again = False
        self.join(seconds)
        self.check()
        figures = {**self.figures(), "waiting": len(self.open)}
        if self.open:  # the thread ends with the last of them
            for c in list(self.open.values()):
                c.socket.shutdown(socket.SHUT_RDWR)
            self.join(5)
        return figures


def sums(crowds, *kinds):
    """What became of all clients of several crowds, once they have ended."""
    rows = [c.finish() for c in crowds]
    return {k: sum(r.get(k, 0) for r in rows) for k in {*kinds, *(k for r in rows for k in r)}}


def lost(figures):
    """Clients that did not get their answer."""
    return sum(n for fate, n in figures.items() if fate != "answered")
