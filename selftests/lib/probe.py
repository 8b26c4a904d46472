# SPDX-License-Identifier: BSD-2-Clause
"""The probes as processes of a fleet: servers on the nodes, stock clients on the client's host."""
import json
import os
import signal
import time

from fleet import HTTP_PORT, PORT, UDP_PORT
from net import BUILD, VIP, Failure, wait_for


class Lines:
    """A process whose stdout is JSON lines."""

    def __init__(self, net, host, name, *argv):
        self.net = net
        self.path = os.path.join(net.dir, f"{name}.jsonl")
        with open(self.path, "wb") as out:
            self.process = net.start(host, *argv, log=f"{name}.log", stdout=out)
        self.rows = []
        self.read = 0  # octets of whole lines

    def events(self, kind):
        with open(self.path, "rb") as f:
            f.seek(self.read)
            whole = f.read().rpartition(b"\n")[0]
        if whole:
            self.rows += [json.loads(line) for line in whole.split(b"\n")]
            self.read += len(whole) + 1
        return [r for r in self.rows if r["event"] == kind]

    def wait(self, kind, seconds=10, count=1):
        def there():
            if len(self.events(kind)) >= count:
                return self.events(kind)
            if self.process.poll() is not None:
                raise Failure(f"{self.path}: ended with {self.process.returncode} before '{kind}'")
            return None

        return wait_for(f"'{kind}' of {self.path}", there, seconds)


def server(fleet, host, *argv, kind="probe", port=PORT, name=None, before=(), agent=None):
    """probe-server on a node, registered with its agent (or agent's); before: words in front."""
    s = Lines(fleet, host, name or f"server-{host}-{kind}", *before, f"{fleet.bin}/probe-server",
              "--listen", "0.0.0.0", "--listen", "::", "--port", str(port), "--udp-port", str(UDP_PORT),
              "--agent", fleet.socket(agent or host), "--kind", kind, *argv)
    s.wait("registered")
    return s


def http_server(fleet, host, *argv):
    s = Lines(fleet, host, f"http-{host}", f"{BUILD}/probe-http", "--listen", "0.0.0.0", "--listen",
              "::", "--port", str(HTTP_PORT), "--agent", fleet.socket(host), *argv)
    s.wait("registered")
    return s


class Client(Lines):
    """probe-client: stock, knows nothing of ferry."""

    def __init__(self, fleet, family, *argv, name=None, port=PORT, address=None):
        self.name = name or f"client{family}"
        self.report_path = os.path.join(fleet.dir, f"{self.name}.report")
        super().__init__(fleet, "c", self.name, f"{BUILD}/probe-client", "--connect",
                         address or VIP[family],
                         "--port", str(port), "--udp-port", str(UDP_PORT), "--seconds", "0",
                         "--report", self.report_path, *argv)
        self.wait("ready")

    def interim(self, lists=False):
        """What it has seen so far; with lists, its gaps and missing datagrams too."""
        before = len(self.events("report"))
        self.process.send_signal(signal.SIGUSR2 if lists else signal.SIGUSR1)
        return self.wait("report", count=before + 1)[-1]

    def received(self):
        """Messages by connection."""
        return [c["received"] for c in self.interim()["connections"]]

    def wait_for_more(self, messages):
        """Until every connection has received that many: choose more than can still be on their
        way from where the unit lived before."""
        before = self.received()
        wait_for(f"{self.name} to receive {messages} more messages in each connection",
                 lambda: all(now >= was + messages for now, was in zip(self.received(), before)),
                 seconds=20, every=0.05)

    def finish(self, seconds=30):
        """Ends it politely: every octet of both directions is accounted for."""
        self.net.stop(self.process, signal.SIGTERM, seconds)
        with open(self.report_path) as f:
            return json.load(f)


def percentiles(values):
    """p50, p99 and max, by nearest rank."""
    rows = sorted(values)
    if not rows:
        return {"p50": None, "p99": None, "max": None}
    return {"p50": round(rows[len(rows) // 2], 3),
            "p99": round(rows[min(len(rows) - 1, len(rows) * 99 // 100)], 3),
            "max": round(rows[-1], 3)}


def stalls(report, moves, after_ns=250000000):
    """The longest silence of each move in ms, as the client saw it: of all gaps that touch the time
    from its fence to a quarter of a second after its LOCAL, in which all begins that a move does to
    a stream; each gap counts whole, however long it lasts."""
    rows = []
    for m in moves:
        end = m["local_ns"] + after_ns
        rows.append(max((to - since for _, since, to in report["gaps"]
                         if to > m["fenced_ns"] and since < end), default=0) / 1e6)
    return rows


def settle(seconds):
    """A dwell that is part of what is measured, not a wait for something."""
    time.sleep(seconds)
