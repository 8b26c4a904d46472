# SPDX-License-Identifier: BSD-2-Clause
"""
A node's list of what it knows may have been on its way for longer than a move takes: what has moved
to that node since it connected is not taken to have ended.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; a stream over IPv4 on A
 2. B's agent is killed; at its address, with its certificate, is one of the test's own, which
    connects to A and to the ingress, and answers A's move as B would
 3. the unit moves from A to it: A and the ingress say that it lives on B
 4. on the connections of step 2 it sends the list that it would have made before the move, without
    the unit: both keep their entries
 5. negative control: it connects anew and sends the same list: both drop them
"""
import frames
from attacker import Forge, Said, Server, context, dial
from fleet import on_fleet
from net import NUMBER, wait_for
from probe import Client, server

STREAM = ("--rate", "100")
HELLO = frames.hello(NUMBER["b"])
KNOWS = frames.frame(frames.KNOWS, frames.message([(1, b"u" * 16), (2, b"m" * 16), (16, 1)]))
# one that is refused: its answer says that what came before has been read
ASKED = frames.move(frames.PREFLIGHT, app=b"nobody", sockets=[
    frames.socket(("198.51.100.7", 40000, "203.0.113.10", 443))])
ANSWERS = {frames.PREFLIGHT: frames.READY, frames.PREPARE: frames.PREPARED,
           frames.FLIPPED: frames.DONE}


class Node:
    """B's agent as far as a move to it goes."""

    def __init__(self, pair):
        self.ctx = context(pair, server=True)
        self.done = []

    def serve(self, s):
        s.settimeout(20)
        with self.ctx.wrap_socket(s, server_side=True) as tls:
            tls.sendall(HELLO)
            got = b""
            while data := tls.recv(1 << 18):
                got += data
                while len(got) >= 16 and len(got) >= frames.size(got):
                    got = got[self.answer(tls, got):]

    def answer(self, tls, got):
        kind = frames.kind(got)
        if kind in ANSWERS:  # the ids are the first two fields
            tls.sendall(frames.move(ANSWERS[kind], uuid=got[18:34], move_id=got[36:52]))
        if kind == frames.FLIPPED:
            self.done.append(kind)
        return frames.size(got)


def connect(fleet, pair, to):
    tls = context(pair).wrap_socket(dial(fleet, to))
    tls.sendall(HELLO)
    said = Said(tls)
    said.next(frames.HELLO)
    return said


def say_list(said):
    """And waits until it has been acted on."""
    said.tls.sendall(KNOWS + ASKED)
    said.next(frames.REFUSED)


def holds(fleet, host, unit):
    return any(u["unit"] == unit and u["state"] == "remote" for u in fleet.units(host))


def test(fleet):
    fleet.up()
    serving = server(fleet, "a", *STREAM)
    client = Client(fleet, 4, *STREAM)
    unit = serving.wait("offered")[0]["unit"]
    client.wait_for_more(20)
    fleet.kill_agent("b")
    pair = Forge(fleet).own("b")
    node = Node(pair)
    listener = Server(fleet, node.serve)
    early = {h: connect(fleet, pair, h) for h in ("a", "i")}
    wait_for("A to be connected with B", lambda: fleet.ferry(
        "a", "status", check=False).get("connected") == 2)
    fleet.move(unit, "a", "b")
    wait_for("the ingress to have heard of it", lambda: holds(fleet, "i", unit))
    for said in early.values():
        say_list(said)
    kept = sum(holds(fleet, h, unit) for h in early)
    late = {h: connect(fleet, pair, h) for h in ("a", "i")}
    for said in late.values():
        say_list(said)
    dropped = sum(not holds(fleet, h, unit) for h in late)
    for said in (*early.values(), *late.values()):
        said.tls.close()
    fleet.stop(client.process)
    for host in early:
        fleet.kill_agent(host)  # which ends what it has dialed
    listener.close()
    return {"moved": len(node.done), "kept": kept, "control_dropped": dropped,
            "ok": len(node.done) > 0 and kept == 2 and dropped == 2}


def main():
    return on_fleet(test)
