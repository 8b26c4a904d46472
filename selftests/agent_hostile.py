# SPDX-License-Identifier: BSD-2-Clause
"""
Processes that may open the agent's socket, and say there what no application says; the agent and a
stream through it do not notice.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; a stream through A
 2. at A's socket, each of these: RESUME before HELLO; HELLO twice, with a file, with two sockets;
    RESUME of the stream's unit with sockets of one's own, with 253 of them, with none, without its
    memfd, twice; memfds that nothing follows, that are none, or are cut short meanwhile
 3. a thousand of them, as fast as they go, while the unit moves to B and back
 4. afterwards A holds the descriptors that it held, the unit is its application's, and it moves; the
    control is a RESUME by the same words of a socket that the process does hold
"""
from fleet import on_fleet
from net import VIP, wait_for
from probe import Client, server
from rights import HELLO, MESSAGE, OFFERED, SOCKET, VERSION, connect
import array
import os
import socket
import threading
import uuid

from peer import inside

STREAM = ("--rate", "200")
FRESH = 20
BUNDLE, RESUME, DISCARD = 14, 18, 17
OURS, QUIESCED, LENT = range(3)
FLOOD = 1000


def say(s, kind, result=0, unit=bytes(16), fds=(), sockets=None, text=b"", handle=1):
    n = len(fds) if sockets is None else sockets
    m = MESSAGE.pack(kind, VERSION, handle, 0, result, n, 0, unit, text)
    m += SOCKET.pack(0, 0, b"") * n if kind == RESUME else b""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    s.sendmsg([m], rights)


def answer(s):
    """Type and text of the next message, or None at the end."""
    try:
        m = s.recv(8192)
    except ConnectionResetError:
        return None
    return (MESSAGE.unpack(m)[0], MESSAGE.unpack(m)[8].rstrip(b"\0").decode()) if m else None


class Hostile:
    def __init__(self, fleet, unit):
        self.fleet, self.unit, self.n = fleet, uuid.UUID(unit).bytes, 0
        self.file = os.open("/dev/null", os.O_RDONLY)
        # connections of its own, to the service's address, in A's namespace
        self.listener = inside(fleet, "a", lambda: self.listen())
        self.own = inside(fleet, "a", lambda: self.pair())

    def listen(self):
        s = socket.socket()
        s.bind((VIP[4], 0))
        s.listen()
        return s

    def pair(self):
        a = socket.socket()
        a.connect(self.listener.getsockname())
        return a, self.listener.accept()[0]

    def open(self, hello=True):
        s = connect(self.fleet.socket("a"))
        if hello:
            self.n += 1
            say(s, HELLO, text=f"hostile{self.n}".encode())
            assert answer(s)[0] == 2
        return s

    def memfd(self, size=4096):
        fd = os.memfd_create("bundle")
        os.ftruncate(fd, size)
        return fd

    def rows(self):
        """name -> what was answered, and what should have been."""
        fd = self.own[1].fileno()
        rows = {}

        def row(name, expected, *messages, hello=True):
            with self.open(hello) as s:
                try:
                    for m in messages:
                        m(s)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                rows[name] = (answer(s), expected)

        mem = self.memfd()
        resume = lambda was, fds, **kw: lambda s: say(s, RESUME, was, self.unit, fds, **kw)
        bundle = lambda fd: lambda s: say(s, BUNDLE, fds=(fd,), sockets=0, handle=0)
        hello = lambda *fds: lambda s: say(s, HELLO, fds=fds, sockets=0, text=b"hostile")
        row("before HELLO", None, resume(OURS, (fd,)), hello=False)
        row("HELLO twice", None, hello())
        row("HELLO with a file", None, hello(self.file), hello=False)
        row("HELLO with a TCP socket", None, hello(fd), hello=False)
        row("HELLO with two", None, hello(fd, fd), hello=False)
        row("none", None, resume(OURS, ()))
        row("fewer than said", None, resume(OURS, (fd,), sockets=2))
        row("another word", None, resume(3, (fd,)))
        row("a negative word", None, resume(-1, (fd,)))
        row("lent, without a memfd", (DISCARD, ""), resume(LENT, (fd,)))
        row("lent, an empty memfd", (DISCARD, ""), bundle(mem), resume(LENT, (fd,)))
        row("lent, a file for a memfd", (DISCARD, ""), bundle(self.file), resume(LENT, (fd,)))
        row("lent, cut short", (DISCARD, ""), bundle(mem), lambda s: os.ftruncate(mem, 0),
            resume(LENT, (fd,)))
        row("253 of one", (OFFERED, "flow-owned"), resume(OURS, (fd,) * 253))
        row("at rest, a file", (OFFERED, "not-inet"), resume(QUIESCED, (self.file,)))
        row("memfds and nothing", None, *[bundle(mem)] * 20, lambda s: s.shutdown(1))
        os.close(mem)
        # the control: what it does hold is a unit of its own, by another uuid
        with self.open() as s:
            say(s, RESUME, OURS, self.unit, (fd,))
            rows["its own socket"] = (answer(s), (OFFERED, ""))
        return rows

    def flood(self, done):
        said = 0
        while said < FLOOD or not done.is_set():
            with self.open() as s:
                mem = self.memfd()
                for was in (OURS, QUIESCED, LENT):
                    say(s, BUNDLE, fds=(mem,), sockets=0, handle=0)
                    say(s, RESUME, was, self.unit, [self.own[0].fileno()] * 8, handle=said + 1)
                    said += 2
                os.close(mem)
        return said


def descriptors(fleet):
    return len(os.listdir(f"/proc/{fleet.agents['a'].pid}/fd"))


def test(fleet):
    fleet.up()
    servers = {h: server(fleet, h, *STREAM) for h in ("a", "b")}
    client = Client(fleet, 4, *STREAM)
    unit = servers["a"].wait("offered")[0]["unit"]
    client.wait_for_more(FRESH)
    before = descriptors(fleet)
    hostile = Hostile(fleet, unit)
    rows = hostile.rows()
    wrong = {k: v for k, v in rows.items() if v[0] != v[1]}
    done, said, moves = threading.Event(), [], 0
    flood = threading.Thread(target=lambda: said.append(hostile.flood(done)))
    flood.start()
    for _ in range(5):
        for origin, to in (("a", "b"), ("b", "a")):
            moves += "error" not in fleet.move(unit, origin, to, check=False)
    done.set()
    flood.join()
    for s in (*hostile.own, hostile.listener):
        s.close()
    wait_for("the agent to let go", lambda: descriptors(fleet) <= before)
    client.wait_for_more(FRESH)
    report = client.finish()
    result = {"rows": len(rows), "wrong": wrong, "flood": sum(said), "moves": moves,
              "messages": report["received"]["messages"], "resets": report["reconnects"],
              "mismatches": report["lost"] + report["duplicated"] + report["crc_errors"],
              "ended": sum(p.poll() is not None for p in fleet.agents.values())}
    result["ok"] = (not wrong and moves == 10 and sum(said) >= FLOOD and report["tcp_ok"] and
                    not any(result[z] for z in ("resets", "mismatches", "ended")) and
                    result["messages"] > FRESH)
    return result


def main():
    return on_fleet(test)
