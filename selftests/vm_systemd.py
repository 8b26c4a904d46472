# SPDX-License-Identifier: BSD-2-Clause
"""
An agent under systemd, with the units that ferryd(8) prints, in a virtual machine whose pid 1 is
systemd.

Steps:
 1. node A is a guest with Debian 12 and its 6.1; client, ingress and node B are namespaces here
 2. for both units of the manual page, the one started as root and the one started as its user:
    systemctl start comes back when the agent is up, and it has the rights that the page says
 3. two-way streams over IPv4 and IPv6 move to B and back after each of: a reload (another program is
    installed; the same process runs it), a kill -9 (systemd starts the agent again), a restart, and a
    change from the one unit to the other
 4. an agent that cannot start fails its unit, and the journal says why, as an error
 5. control: where the agent cannot tell systemd that it is up, start does not come back as done
"""
import os
import re
import time

from guests import PKI, Guests, GuestServer
from net import ROOT, Failure, run, wait_for
from probe import Client, percentiles, server
from wire import FLAGGED, Capture, Wires, closes, migrations

STREAM = ("--rate", "50")
FRESH = 20
SERVE = (1 << 10) | (1 << 12) | (1 << 38) | (1 << 39)  # BIND_SERVICE, NET_ADMIN, PERFMON, BPF


def manual_units(node):
    """The two units of the manual page, for that node."""
    with open(os.path.join(ROOT, "docs/man/ferryd.8"), encoding="utf-8") as f:
        section = f.read().split(".SS Under a service manager")[1].split(".SH ")[0]
    whole, instead = (re.sub(r"\\(.)", r"\1", b).strip().replace("web1", node)
                      for b in re.findall(r"\.EX\n(.*?)\.EE", section, re.S))
    return {"root": whole, "user": whole.replace("[Service]\n", f"[Service]\n{instead}\n")}


class Managed(Guests):
    """Node A's agent is systemd's to start, by one of the units of the manual page."""

    def __init__(self):
        super().__init__({"a": "6.1"}, systemd=("a",))
        self.unit = "root"

    def files(self, host):
        rows, node = super().files(host), self.name(host)
        units = manual_units(node)
        units["unheard"] = units["user"].replace(
            "ExecStart=/", "TimeoutStartSec=5\nExecStart=/usr/bin/env -u NOTIFY_SOCKET /").replace(
            "Restart=on-failure", "Restart=no")
        return rows | {"/usr/local/sbin/ferryd": rows["/usr/sbin/ferryd"]} | {
            f"/etc/systemd/system/ferryd-{name}.service": text.encode()
            for name, text in units.items()}

    def start_agent(self, host):
        if host != "a":
            super().start_agent(host)
            return
        self.guests["a"].sh("useradd --system --user-group --no-create-home ferry && "
                            f"chown ferry {PKI}/*.key")
        self.control("start")

    def log(self, host):
        if host != "a":
            return super().log(host)
        return self.guests["a"].sh(f"journalctl -q -u ferryd-{self.unit} -o cat",
                                   check=False)[1][-2000:]

    def control(self, verb, check=True):
        return self.guests["a"].sh(f"systemctl {verb} ferryd-{self.unit}", 60, check=check)

    def shown(self):
        """What systemd says of the agent, and who answers commands."""
        lines = self.guests["a"].sh(
            f"systemctl show -p ActiveState -p MainPID -p StatusText -p NRestarts ferryd-{self.unit}; "
            f"echo agent=$(ferry --node {self.name('a')} status | sed -n 's/^agent: //p'); "
            "echo program=$(readlink /proc/$(pidof ferryd)/exe)").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def is_up(self, shown):
        return (shown["ActiveState"] == "active" and "is up" in shown["StatusText"] and
                shown["agent"] == shown["MainPID"])

    def back(self, where):
        """Waits for an agent that is up, and as where(what is shown) says."""
        def there():
            shown = self.shown()
            return self.is_up(shown) and where(shown)

        wait_for("systemd's agent to be back", there, 30, 0.05)

    def rights(self):
        """Whether the agent has what the manual page says, and no more."""
        lines = self.guests["a"].sh(
            "cat /proc/$(pidof ferryd)/status; id -u ferry; id -g ferry").splitlines()
        user, group = lines[-2:]
        said = dict(line.split(":\t", 1) for line in lines[:-2] if ":\t" in line)
        masks = {int(said[k], 16) for k in ("CapEff", "CapPrm", "CapBnd")}
        return (masks == {SERVE} and said["NoNewPrivs"] == "1" and
                set(said["Uid"].split()) == {user} and set(said["Gid"].split()) == {group})


def reload(fleet):
    """Another file of the program: the same process runs it afterwards."""
    before = fleet.shown()
    fleet.guests["a"].sh("cd /usr/local/sbin && cp ferryd new && mv new ferryd")
    if "(deleted)" not in fleet.shown()["program"]:
        raise Failure("the program was not exchanged")
    fleet.control("reload")
    fleet.back(lambda now: now["MainPID"] == before["MainPID"] and "(deleted)" not in now["program"])


def kill(fleet):
    """systemd starts it again."""
    fleet.control("reset-failed")
    before = fleet.shown()
    fleet.guests["a"].sh(f"kill -9 {before['MainPID']}")
    fleet.back(lambda now: int(now["NRestarts"]) == int(before["NRestarts"]) + 1)


def restart(fleet):
    before = fleet.shown()
    fleet.control("restart")
    fleet.back(lambda now: now["MainPID"] != before["MainPID"])


def cannot_start(fleet):
    """A unit whose agent cannot start fails, and the journal has its sentence as an error."""
    guest = fleet.guests["a"]
    fleet.control("stop")
    guest.sh("mv /etc/ferry/ferry.conf /etc/ferry/kept")
    code, _ = fleet.control("start", check=False)
    fleet.control("stop")  # it would be tried again
    said = guest.sh(f"mv /etc/ferry/kept /etc/ferry/ferry.conf; systemctl reset-failed; "
                    f"journalctl -q -u ferryd-{fleet.unit} -p err -o cat")
    return bool(code) and "ferry.conf" in said


def unheard(fleet):
    """Control: whether the unit starts where the agent does not know whom to tell that it is up."""
    kept, fleet.unit = fleet.unit, "unheard"
    code, _ = fleet.control("start", check=False)
    fleet.unit = kept
    return not code


class Streams:
    """Two clients, one a family, whose units move to B and back."""

    def __init__(self, fleet):
        self.fleet, self.moves, self.legs = fleet, [], 0
        self.servers = {"a": GuestServer(fleet, "a", *STREAM), "b": server(fleet, "b", *STREAM)}
        self.clients, self.units = [], []
        for family in (4, 6):
            self.clients.append(Client(fleet, family, *STREAM))
            offers = self.servers["a"].wait("offered", count=len(self.clients))
            self.units.append(offers[-1]["unit"])

    def there_and_back(self):
        for origin, to in (("a", "b"), ("b", "a")):
            self.legs += 1
            for client, unit in zip(self.clients, self.units):
                self.moves.append(wait_for(f"unit {unit} to move", lambda: self.tried(unit, origin, to),
                                           30, 0.1))
                client.wait_for_more(FRESH)

    def tried(self, *move):
        """The move's figures; None where it is refused: applications and nodes come back by and by."""
        answer = self.fleet.move(*move, check=False)
        return None if "error" in answer else answer


def managed(fleet):
    fleet.up()
    wires, wire = Wires(fleet), Capture(fleet, "c", "eth0", FLAGGED)
    streams, at_once, rights = Streams(fleet), [], []
    for unit in ("root", "user"):
        fleet.control("stop")
        fleet.unit = unit
        fleet.control("start")
        at_once.append(fleet.is_up(fleet.shown()))
        rights.append(fleet.rights())
        streams.there_and_back()
        for what in (reload, kill, restart):
            what(fleet)
            rights.append(fleet.rights())
            streams.there_and_back()
    failed, heard = cannot_start(fleet), unheard(fleet)
    fleet.control("start")
    streams.there_and_back()
    stopped = time.time_ns()
    reports = [c.finish() for c in streams.clients]
    wires.stop()
    runs = wires.runs()
    fin, rst = closes(wire.stop(), stopped)
    migrated = [migrations(runs.get((6, int(c["local"].rsplit(":", 1)[1])), []), "a", streams.legs)
                for r in reports for c in r["connections"]]
    result = {"at_once": sum(at_once), "rights": sum(rights),
              "rights_of": len(rights), "moves": len(streams.moves), "migrated": sum(migrated),
              "messages": sum(r["received"]["messages"] + r["sent"]["messages"] for r in reports),
              "mismatches": sum(r[k] for r in reports for k in
                                ("lost", "duplicated", "reordered", "crc_errors", "reconnects")),
              "fin": fin, "rst": rst, "stall_ms": percentiles(
                  [(to - since) / 1e6 for r in reports for _, since, to in r["gaps"]]),
              "failed_with_reason": failed, "control_started": heard, "splats": fleet.splats()}
    result["ok"] = (sum(at_once) == 2 and all(rights) and failed and not heard and
                    result["moves"] == result["migrated"] > 0 and
                    not any(result[k] for k in ("mismatches", "fin", "rst", "splats")) and
                    all(r["tcp_ok"] for r in reports))
    return result


def main():
    run(os.path.join(ROOT, "tools/deps"), "vm", timeout=600)
    fleet = Managed()
    try:
        return managed(fleet)
    finally:
        fleet.close()
