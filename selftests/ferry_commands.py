# SPDX-License-Identifier: BSD-2-Clause
"""
Every command of ferry, as text and as JSON, with what is right and what is wrong.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; a stream over IPv4 and one over IPv6
 2. each reading command on each node: text on stdout, and the same as one JSON object with its keys
 3. a move by --flow and one by unit; refusals by id; exit codes 0, 1, 2, 3 and 4
 4. ferry pki: an authority, a certificate, one that ends soon, and what is wrong
 5. without the agent, and without rights: an error that names cause and remedy, on stderr or, with
    -j, as JSON
"""
import json
import subprocess

from fleet import on_fleet
from net import BUILD, VIP
from probe import Client, server

STREAM = ("--rate", "100")


class Cases:
    def __init__(self, fleet):
        self.fleet = fleet
        self.count = 0
        self.wrong = []

    def ferry(self, host, *argv, before=()):
        f = self.fleet
        return subprocess.run(["nsenter", f"--net=/run/netns/{f.ns(host)}", *before,
                               f"{BUILD}/ferry", "--node", f.name(host), "--socket", f.socket(host),
                               *argv], capture_output=True, text=True, timeout=40)

    def check(self, what, ok, p):
        self.count += 1
        if not ok:
            self.wrong.append(f"{what}: exit {p.returncode}, {p.stdout[:200]!r} {p.stderr[:200]!r}")

    def reads(self, host, argv, keys):
        """Text says something, JSON has the keys; both exit with 0."""
        text, data = self.ferry(host, *argv), self.ferry(host, "-j", *argv)
        name = f"{host}: ferry {' '.join(argv)}"
        self.check(name, text.returncode == 0 and text.stdout and not text.stderr, text)
        try:
            answer = json.loads(data.stdout)
        except ValueError:
            answer = {}
        self.check(f"{name} -j", data.returncode == 0 and set(keys) <= set(answer) and
                   answer.get("schema") == 1, data)
        return answer

    def fails(self, host, argv, code, words, before=()):
        """The exit code, and each word in the error, as text on stderr and as JSON on stdout."""
        for extra in ((), ("-j",)):
            p = self.ferry(host, *extra, *argv, before=before)
            said = p.stdout if extra else p.stderr
            ok = p.returncode == code and all(w in said for w in words)
            if extra:
                try:
                    ok = ok and "error" in json.loads(p.stdout)
                except ValueError:
                    ok = False
            self.check(f"{host}: ferry {' '.join(extra + tuple(argv))}", ok, p)


def moves(cases, fleet, unit, tuple4):
    moved = cases.ferry("a", "-j", "move", "--flow", tuple4, "--to", fleet.name("b"))
    keys = {"unit", "from", "to", "epoch", "sockets", "freeze_us", "queued_bytes",
            "lost_in_freeze", "fenced_ns", "local_ns"}
    cases.check("move --flow", moved.returncode == 0 and keys <= set(json.loads(moved.stdout)),
                moved)
    text = cases.ferry("b", "move", unit, "--to", fleet.name("a"))
    cases.check("move UNIT", text.returncode == 0 and "freeze_us" in text.stdout, text)


def pki(cases, fleet):
    """Exit codes 0 to 4, without node, pins or agent."""
    where = ("--dir", f"{fleet.dir}/pki-of-commands/deep")
    keys = ("node", "state", "file", "subject", "from", "to", "days_left", "fingerprint")
    cases.fails("c", ("pki", "issue", "n1", *where), 3, ("no-ca", "ferry pki init"))
    cases.fails("c", ("pki", "show", *where), 3, ("no-certificate", "ferry pki"))
    p = cases.ferry("c", "-j", "pki", "init", *where, "--days", "30")
    cases.check("pki init", p.returncode == 0 and set(keys) <= set(json.loads(p.stdout)), p)
    cases.fails("c", ("pki", "init", *where), 1, ("ca-exists", "ca.crt"))
    for replaced in ("no", "yes"):
        p = cases.ferry("c", "pki", "issue", "n1", *where)
        cases.check("pki issue", p.returncode == 0 and f"replaced: {replaced}" in p.stdout, p)
    answer = cases.reads("c", ("pki", "show", *where), ("dir", "certificates"))
    rows = answer["certificates"]
    cases.check("pki show: keys", all(set(keys) <= set(r) for r in rows) and
                [r["node"] for r in rows] == ["", "n1"] and
                all(r["days_left"] in (29, 30) for r in rows), p)
    p = cases.ferry("c", "pki", "issue", "n2", *where, "--days", "6")
    cases.check("pki issue --days", p.returncode == 0, p)
    for argv, code in ((("show",), 4), (("show", "n2"), 4), (("show", "n1"), 0),
                       (("show", "n3"), 3), (("issue",), 2), (("issue", "ca"), 2),
                       (("issue", "../x"), 2), (("issue", "n1", "--days", "0"), 2),
                       (("issue", "n1", "--days", "1826"), 2), (("init", "--days", "7301"), 2),
                       (("init", "n1"), 2), (("show", "--days", "3"), 2)):
        p = cases.ferry("c", "pki", *argv, *where)
        cases.check(f"pki {argv}: {code}", p.returncode == code and
                    bool(p.stdout) == (code in (0, 4)), p)


def wrong_arguments(cases, fleet, unit):
    for argv in (("fly",), ("flow",), ("flow", "show"), ("flow", "list", "--limit", "x"),
                 ("unit", "show", "nonsense"), ("move",), ("move", unit),
                 ("move", unit, "--flow", "tcp a > b", "--to", "x"), ("status", "now")):
        p = cases.ferry("a", *argv)
        cases.check(f"usage: {argv}", p.returncode == 2 and p.stderr and not p.stdout, p)
    cases.fails("a", ("flow", "show", "tcp 192.0.2.99:1 > 192.0.2.98:2"), 3, ("no-such-flow",))
    cases.fails("a", ("unit", "show", "0" * 32), 3, ("no-such-unit",))
    cases.fails("a", ("move", unit, "--to", "nowhere"), 3, ("no-such-node",))
    cases.fails("a", ("move", "0" * 32, "--to", fleet.name("b")), 3, ("no-such-unit",))
    cases.fails("a", ("move", unit, "--to", fleet.name("a")), 3, ("no-such-node",))


def test(fleet):
    fleet.up()
    servers = {h: server(fleet, h, *STREAM) for h in ("a", "b")}
    clients = [Client(fleet, family, *STREAM) for family in (4, 6)]
    unit = servers["a"].wait("offered", count=2)[0]["unit"]
    cases = Cases(fleet)
    for host in ("a", "b", "i"):
        cases.reads(host, ("status",), ("verdict", "node", "number", "agent", "nodes", "resolved",
                                        "services", "flows", "units"))
        cases.reads(host, ("node", "list"), ("node", "number", "nodes"))
        cases.reads(host, ("flow", "list"), ("node", "total", "shown", "flows"))
        cases.reads(host, ("unit", "list"), ("node", "units"))
        cases.reads(host, ("counters",), ("node", "counters"))
    flows = cases.reads("a", ("flow", "list", "--limit", "5"), ("flows",))["flows"]
    tuple4 = next(f["flow"] for f in flows if VIP[4] in f["flow"])
    for flow in flows:
        cases.reads("a", ("flow", "show", flow["flow"]), ("flow", "unit", "state", "epoch", "hop"))
    cases.reads("a", ("unit", "show", unit), ("unit", "state", "epoch", "tuples", "peer"))
    moves(cases, fleet, unit, tuple4)
    wrong_arguments(cases, fleet, unit)
    pki(cases, fleet)
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    cases.fails("a", ("unit", "list"), 1, ("no-pins",), before=nobody)
    cases.fails("a", ("move", unit, "--to", fleet.name("b")), 1, ("no-agent",), before=nobody)
    fleet.kill_agent("a")
    cases.fails("a", ("move", unit, "--to", fleet.name("b")), 1, ("no-agent", "ferryd"))
    p = cases.ferry("a", "status")
    cases.check("status without an agent", p.returncode == 4 and "DEGRADED" in p.stdout, p)
    reports = [c.finish() for c in clients]
    return {"cases": cases.count, "wrong": cases.wrong,
            "ok": not cases.wrong and cases.count > 60 and all(r["tcp_ok"] for r in reports)}


def main():
    return on_fleet(test)
