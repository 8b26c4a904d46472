# SPDX-License-Identifier: BSD-2-Clause
"""
What each part of a move is for: taken out, by a fault point, each lets exactly its own harm happen.

Steps, for each control, over IPv4 and over IPv6:
 1. client, ingress, node A, node B; ferryd with the control's fault points; probe-http on A and B
 2. a plain TCP client makes a connection, then it is idle or downloads, as the control wants
 3. the unit is moved A to B and held frozen for 60 ms; in the freeze the client writes
 4. the named symptom is looked for, on the client's socket and on the wires
And once with nothing taken out but the 60 ms held: the same steps, and no symptom.
"""
import json
import subprocess
import time

from fleet import HTTP_PORT, Fleet
from net import BUILD, VIP, Failure, wait_for
from peer import Reader, answer, connect, unacknowledged
from pins import Words
from probe import http_server
from wire import FROM_SERVICE, Capture, Wires, boot_offset, closes

SMALL = 1000
BODY = 64 << 20
UNSENT = 500000
QUIET = 1.0  # seconds: longer than any retransmission that could still help
PACED = ("--pacing", "5000000", "--sndbuf", "400000")  # so that more than UNSENT is unsent
# The harm of one control has to be met: where the pacing timer fires in the tenth of a millisecond
# in which the queue is read, and so selected, the kernel marks its window's worth as sent without
# sending it, and nothing leaves later. Then another connection is tried.
ATTEMPTS = {"no_egress_fence": 6}
NO_FENCE = "no-ingress-fence,no-egress-fence,no-arrival-check,hold-ms=60"


def request(size):
    return f"GET /bytes/{size}?seed=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()


class Scene:
    """One connection of one family on a fleet that is up."""

    def __init__(self, fleet, family, servers):
        self.fleet = fleet
        self.family = family
        before = {e["unit"] for e in servers["a"].events("offered")}
        self.socket = connect(fleet, VIP[family], HTTP_PORT)
        self.port = self.socket.getsockname()[1]
        self.unit = wait_for("the connection to be offered", lambda: [
            e["unit"] for e in servers["a"].events("offered") if e["unit"] not in before])[0]
        self.index = fleet.ferry("a", "unit", "show", self.unit)["index"]
        self.words = Words(fleet.name("a"))

    def small(self, seconds=5):
        """One small request and its whole answer, or what came instead."""
        self.socket.sendall(request(SMALL))
        return self.head_and_body(seconds)

    def head_and_body(self, seconds):
        data = b""
        end = time.monotonic() + seconds
        while b"\r\n\r\n" not in data:
            self.socket.settimeout(max(0.001, end - time.monotonic()))
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                return "reset"
            except TimeoutError:
                return "silence"
            if not more:
                return "end"
            data += more
        left = SMALL - len(data.split(b"\r\n\r\n", 1)[1])
        got = answer(self.socket, left, max(0.001, end - time.monotonic())) if left else left
        return "answer" if got == left else got

    def held(self):
        """How often A's agent has said that it holds a frozen unit."""
        with open(f"{self.fleet.dir}/ferryd-a.log") as f:
            return f.read().count("holding a frozen unit")

    def move(self):
        """Starts the move; returns once A's agent has done what comes before the hold."""
        f = self.fleet
        before = self.held()
        self.mover = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{f.ns('a')}", f"{BUILD}/ferry", "-j", "--node",
             f.name("a"), "--socket", f.socket("a"), "move", self.unit, "--to", f.name("b")],
            stdout=subprocess.PIPE, text=True)
        wait_for("the unit to be held", lambda: self.held() > before, 5, every=0.0005)
        if self.words.state(self.index) not in ("fenced", "remote"):
            raise Failure(f"held, and then {self.words.state(self.index)}")

    def moved(self):
        out, _ = self.mover.communicate(timeout=20)
        return json.loads(out)

    def close(self):
        self.words.close()
        self.socket.close()


def write_in_freeze(scene):
    """An idle client writes once in the freeze: what its socket and the wire saw."""
    if scene.small() != "answer":
        raise Failure("no answer before the move")
    wire = Capture(scene.fleet, "c", "eth0", FROM_SERVICE)
    scene.move()
    scene.socket.sendall(request(SMALL))
    result = scene.moved()
    came = scene.head_and_body(QUIET)
    seen = {"came": came, "acknowledged": came != "reset" and unacknowledged(scene.socket) == 0,
            "moved": "error" not in result}
    seen["rst"] = closes(wire.stop())[1]
    return seen


def stream_in_freeze(scene):
    """A paced download goes on in the freeze: what left which wire, and how long it was silent."""
    wires = Wires(scene.fleet)
    offset = boot_offset()
    scene.socket.sendall(request(BODY))
    reader = Reader(scene.socket)
    wait_for("the download to run", lambda: reader.octets > 1000000)
    scene.move()
    fenced = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    result = scene.moved()
    fenced = result.get("fenced_ns", fenced)
    end = time.monotonic() + QUIET + 0.5
    while time.monotonic() < end and not reader.broken:
        time.sleep(0.05)
    silence = max([b - a for a, b in zip(reader.times, reader.times[1:]) if b > fenced] +
                  [time.clock_gettime_ns(time.CLOCK_BOOTTIME) - reader.times[-1]]) / 1e9
    wires.stop(running=True)
    after = {host: sum(1 for p in c.packets() if p.dport == scene.port and p.time > fenced + offset)
             for host, c in wires.captures.items()}
    return {"silence_s": round(silence, 2), "packets_after_fence": after,
            "unsent": result.get("queued_bytes", {}).get("unsent", 0),
            "moved": "error" not in result, "broken": reader.broken}


# name: (fault points of A, of B, arguments of probe-http, what happens, the symptom in words, and
# as a predicate of what was seen)
CONTROLS = {
    "no_ingress_fence": (NO_FENCE, "", (), write_in_freeze, "acknowledged and lost",
                         lambda s: s["moved"] and s["acknowledged"] and s["came"] == "silence"),
    "no_egress_fence": ("no-egress-fence,no-send-queue,no-arrival-check,hold-ms=60", "",
                        PACED, stream_in_freeze,
                        "bytes leave the frozen socket, then silence over a second",
                        lambda s: s["moved"] and s["packets_after_fence"]["a"] > 0 and
                        s["unsent"] >= UNSENT and s["silence_s"] > 1.0),
    "close_before_flip": ("close-before-flip," + NO_FENCE, "", (), write_in_freeze, "RST",
                          lambda s: s["came"] == "reset" and s["rst"] > 0),
    "flip_before_restore": ("flip-before-restore,hold-ms=60", "", (), write_in_freeze, "RST",
                            lambda s: s["came"] == "reset" and s["rst"] > 0),
    "thaw_before_flip": ("abort-before-flip,hold-ms=60", "thaw-before-flip",
                         PACED, stream_in_freeze,
                         "one flow's segments leave both nodes",
                         lambda s: not s["moved"] and s["packets_after_fence"]["a"] > 0 and
                         s["packets_after_fence"]["b"] > 0),
}


def on_scenes(a, b, argv, work, symptom=None, attempts=1):
    """Runs work on a fleet of its own, over IPv4 and then over IPv6, each until the symptom shows
    or attempts are used up."""
    fleet = Fleet(faults={host: f for host, f in (("a", a), ("b", b)) if f})
    seen = {}
    try:
        fleet.up()
        for host in ("a", "b"):  # its window grows while nothing is lost: much may leave at once
            fleet.at(host, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
        servers = {host: http_server(fleet, host, *argv) for host in ("a", "b")}
        for family in (4, 6):
            for attempt in range(1, attempts + 1):
                scene = Scene(fleet, family, servers)
                try:
                    seen[f"v{family}"] = {**work(scene), "attempts": attempt}
                finally:
                    scene.close()
                if symptom is None or symptom(seen[f"v{family}"]):
                    break
    finally:
        fleet.close()
    return seen


def control(name, a, b, argv, work, expected, symptom):
    seen = on_scenes(a, b, argv, work, symptom, ATTEMPTS.get(name, 1))
    return {"expected": expected, "seen": seen, "ok": all(symptom(s) for s in seen.values())}


def baseline():
    """Nothing taken out: a write in the freeze is answered, a download goes on."""
    write = on_scenes("hold-ms=60", "", (), write_in_freeze)
    stream = on_scenes("hold-ms=60", "", PACED, stream_in_freeze)
    ok = (all(s["moved"] and s["came"] == "answer" and not s["rst"] for s in write.values()) and
          all(s["moved"] and s["silence_s"] < 1.0 and not s["broken"] and
              s["packets_after_fence"]["b"] > 0 for s in stream.values()))
    return {"write": write, "stream": stream, "ok": ok}


def main():
    base = baseline()
    controls = {name: control(name, *row) for name, row in CONTROLS.items()}
    return {"controls": controls, "baseline": base,
            "ok": base["ok"] and all(c["ok"] for c in controls.values())}
