# SPDX-License-Identifier: BSD-2-Clause
"""
Connections that never finish a handshake do not stop a move, nor keep a node's agent out.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; a stream over IPv4
 2. the unit moves A-B-A-..., undisturbed: the figures to compare with
 3. it moves on while a process at the ingress' address and one at B's open connections to A's agent
    as fast as they can, each with the first flight of a TLS handshake and nothing more
 4. meanwhile B's agent is killed and started again: it is let in
 5. every move succeeds, no message is lost; descriptors of A stay bounded, and are as before
"""
import resource
import socket
import ssl
import threading
import time

from attacker import PORT, context
from fleet import on_fleet
from net import FABRIC, wait_for
from peer import inside
from probe import Client, percentiles, server, stalls
from watch import Agent

STREAM = ("--rate", "200")
MOVES = 10
CONNECTIONS = 1000  # at the least, in all
HELD = 200          # at a time, by each


def client_hello():
    go = ssl.MemoryBIO()
    try:
        context(None).wrap_bio(ssl.MemoryBIO(), go).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return go.read()


class Flood(threading.Thread):
    """From one host's address to A's agent; keeps some open, whatever A does with them."""

    def __init__(self, fleet, host):
        super().__init__(daemon=True)
        self.fleet, self.host = fleet, host
        self.opened, self.stopping = 0, False
        self.hello = client_hello()
        self.start()

    def one(self):
        s = socket.socket()
        s.settimeout(1)
        s.bind((FABRIC[self.host][0], 0))
        s.connect((FABRIC["a"][0], PORT))
        s.send(self.hello)
        return s

    def run(self):
        inside(self.fleet, self.host, self.pour)

    def pour(self):
        held = []
        while not self.stopping:
            try:
                held.append(self.one())
                self.opened += 1
            except OSError:
                pass  # its backlog is full: the next one
            if len(held) > HELD:
                held.pop(0).close()
        for s in held:
            s.close()


def legs(fleet, client, unit, at):
    moves = []
    for _ in range(MOVES):
        to = "b" if at == "a" else "a"
        moves.append(fleet.move(unit, at, to))
        client.wait_for_more(20)
        at = to
    return moves


def restart_b(fleet, agent):
    fleet.kill_agent("b")
    wait_for("B to be missed", lambda: agent.ping()["connected"] == 1)
    began = time.monotonic()
    fleet.start_agent("b")
    wait_for("B to be let in", lambda: agent.ping()["connected"] == 2 and
             fleet.ferry("b", "status", check=False).get("connected") == 2, 20)
    return round(time.monotonic() - began, 2)


def test(fleet):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    fleet.up()
    servers = {h: server(fleet, h, *STREAM) for h in ("a", "b")}
    client = Client(fleet, 4, *STREAM)
    unit = servers["a"].wait("offered")[0]["unit"]
    agent = Agent(fleet)
    before = agent.state()
    quiet = legs(fleet, client, unit, "a")
    floods = [Flood(fleet, host) for host in ("b", "i")]
    most = 0
    flooded = legs(fleet, client, unit, "a")
    while sum(f.opened for f in floods) < CONNECTIONS:
        most = max(most, agent.state()["descriptors"])
    back = restart_b(fleet, agent)
    most = max(most, agent.state()["descriptors"])
    for f in floods:
        f.stopping = True
        f.join()
    wait_for("A to be as before", lambda: agent.state() == before, 10)
    refused = agent.ping()["peers_refused"]
    report = client.finish()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    result = {"moves": len(quiet) + len(flooded), "connections": sum(f.opened for f in floods),
              "refused": refused, "descriptors_more": most - before["descriptors"],
              "b_back_s": back, "lost": report["lost"],
              "freeze_us": {"quiet": percentiles([m["freeze_us"] for m in quiet]),
                            "flooded": percentiles([m["freeze_us"] for m in flooded])},
              "stall_ms": {"quiet": percentiles(stalls(report, quiet)),
                           "flooded": percentiles(stalls(report, flooded))}}
    result["ok"] = (result["moves"] == 2 * MOVES and result["connections"] >= CONNECTIONS and
                    sum(refused.values()) > 0 and result["descriptors_more"] < 40 and
                    report["tcp_ok"] and not report["lost"] and
                    result["stall_ms"]["flooded"]["p50"] < 150)
    return result


def main():
    return on_fleet(test)
