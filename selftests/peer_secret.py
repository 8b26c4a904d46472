# SPDX-License-Identifier: BSD-2-Clause
"""
What a connection carries is not to be read between two nodes' agents.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; probe-http on A and on B
 2. a stock client, over IPv4 and over IPv6, asks for a file and reads nothing; when the server's send
    queue is full it asks, with a marker in the request, for another one, so that both queues are
 3. each connection moves A to B, with everything in its queues; all that the agents say to each
    other is captured in the switch, whole
 4. the client reads it all: the marker and 1,000 pieces of the file do not occur in the capture
 5. the control: they do occur on the client's own wire, and the queues were not empty
"""
import random

from fleet import HTTP_PORT, on_fleet
from net import VIP, Failure, wait_for
from peer import connect
from probe import http_server
from wire import Capture

SIZE = 1 << 20
PIECE = 24
PIECES = 1000


class Download:
    def __init__(self, fleet, family, http):
        self.marker = b"marker-%d-" % family + bytes(random.choices(b"abcdefghij", k=32))
        before = {e["unit"] for e in http["a"].events("offered")}
        self.socket = connect(fleet, VIP[family], HTTP_PORT)
        self.ask(family, SIZE, b"")
        # it does not read while it has something to send: the second request waits in the kernel
        wait_at_rest(fleet, lambda rows: len(rows) == len(before) + 1 and all(s for _, s in rows))
        self.ask(family, PIECE, b"X-Marker: " + self.marker + b"\r\n")
        wait_at_rest(fleet, lambda rows: all(r and s for r, s in rows))
        self.unit = wait_for("the unit", lambda: [
            e["unit"] for e in http["a"].events("offered") if e["unit"] not in before])[0]

    def ask(self, family, size, more):
        self.socket.sendall(b"GET /bytes/%d?seed=%d HTTP/1.1\r\nHost: x\r\n%s\r\n"
                            % (size, family, more))

    def read(self):
        """The first answer whole, and the second, which shows that the second request came over."""
        got = b""
        while got.count(b"HTTP/1.1 200") < 2 or len(got) < self.ends(got):
            data = self.socket.recv(1 << 20)
            if not data:
                raise Failure("the download ended early")
            got += data
        self.socket.close()
        return got[got.index(b"\r\n\r\n") + 4:][:SIZE]

    def ends(self, got):
        return got.rindex(b"\r\n\r\n") + 4 + PIECE


def queues(fleet):
    """Octets that each connection of the server has received and not read, and not sent yet or
    unacknowledged."""
    rows = fleet.at("a", "ss", "-Htn", "state", "established", "sport", "=", f":{HTTP_PORT}").stdout
    return [tuple(map(int, r.split()[:2])) for r in rows.splitlines()]


def wait_at_rest(fleet, right):
    """The queues are as they should be, and change no more."""
    seen = [None]
    wait_for("the queues of each connection to be full and at rest", lambda: seen.append(
        queues(fleet)) or (seen[-1] == seen[-2] and right(seen[-1])), every=0.05)


def occurrences(path, pieces):
    with open(path, "rb") as f:
        data = f.read()
    return sum(p in data for p in pieces), len(data)


def test(fleet):
    fleet.up()
    agents = [Capture(fleet, "s", f"to_{h}", "tcp port 7946", snaplen=0) for h in ("a", "b")]
    clients = Capture(fleet, "c", "eth0", f"tcp port {HTTP_PORT}", snaplen=0)
    http = {h: http_server(fleet, h) for h in ("a", "b")}
    downloads = [Download(fleet, family, http) for family in (4, 6)]
    moves = [fleet.move(d.unit, "a", "b") for d in downloads]
    pieces = []
    for d in downloads:
        octets = d.read()
        at = random.sample(range(len(octets) - PIECE), PIECES // 2)
        pieces += [octets[k:k + PIECE] for k in at]
    for c in (*agents, clients):
        c.stop()
    markers = [d.marker for d in downloads]
    seen = [occurrences(c.path, pieces + markers) for c in agents]
    control, _ = occurrences(clients.path, pieces)
    control_markers, _ = occurrences(clients.path, markers)
    queued = {k: sum(m["queued_bytes"][k] for m in moves) for k in ("recv", "sent", "unsent")}
    result = {"moves": len(moves), "queued_bytes": queued, "pieces": len(pieces),
              "seen": sum(n for n, _ in seen), "captured": sum(n for _, n in seen),
              "control_pieces": control, "control_markers": control_markers}
    carried = sum(queued.values())
    result["ok"] = (result["seen"] == 0 and result["captured"] > carried > 100000 and
                    queued["recv"] > 0 and queued["unsent"] > 0 and
                    control > len(pieces) * 3 // 4 and control_markers == 2)
    return result


def main():
    return on_fleet(test)
