# SPDX-License-Identifier: BSD-2-Clause
"""
ferryd --detach leaves nothing of a node, touches nothing of others, and refuses while connections
would break by it.

Steps:
 1. client, ingress, node A, node B; B's device has a clsact qdisc and a filter of somebody else's
 2. everything that a node could leave is listed; 50 times the agents of all three start, serve and
    end, and each node is detached; every 10th time with streams, one of which moves A to B, and
    which end before the agents do; then the same list once more, and the numbers of every program,
    map and link that there was: equal, and none is left
 3. negative control: a cycle without detach, and the list differs; then it is detached
 4. a filter that somebody adds to a clsact of the agent's keeps it, and is there afterwards
 5. the default socket: gone with the node, and /run/ferry too; one that was there before stays
 6. a device that another XDP program owns: the agent does not start, and leaves nothing on it
 7. streams that have moved: refused while an agent runs; agents ended: each node refuses, saying
    what it carries; from another node's namespace, too; with --force A goes, the stream at B goes
    on, no RST is seen; once more: code 3
 8. agents killed in mid-move: refused on both sides
 9. B's device is deleted: what is left of B is taken off all the same
"""
import json
import os
import re
import subprocess
import time

from fleet import AGENT_USER, on_fleet
from net import BUILD, VIP, Failure, bpffs, run, wait_for
from pins import Words, ids, pin_xdp
from probe import Client, server
from wire import FLAGGED, Capture, closes

CYCLES = 50
MOVE_EVERY = 10
STREAM = ("--rate", "100")
FRESH = 20
HOSTS = ("a", "b", "i")
DEVICES = {"a": ("lo", "eth0"), "b": ("lo", "eth0"), "i": ("lo", "eth0", "eth1")}
BYTECODE = ("bpf", "bytecode", "1,6 0 0 0,")  # a filter that matches nothing
OBJECTS = ("prog", "map", "link")


def listing(fleet):
    """What a node could leave behind, by kind: a set of lines. Neighbours come and go by
    themselves, and so do the counters among the sysctls."""
    commands = {
        "addresses": ["ip -o -4 addr", "ip -o -6 addr"],
        "routes": ["ip -4 route show table all", "ip -6 route show table all", "ip rule",
                   "ip -6 rule"],
        "links": ["ip -d -o link"], "qdiscs": ["tc qdisc"],
        "sysctls": ["sysctl -a --pattern ^net[.]"], "nft": ["nft list ruleset"],
        "filters": [f"tc filter show dev {{}} {side}" for side in ("ingress", "egress")]}
    rows = {kind: set() for kind in commands}
    for host in HOSTS:
        for kind, templates in commands.items():
            for t in templates:
                for device in DEVICES[host] if "{}" in t else ("",):
                    out = fleet.at(host, *t.format(device).split()).stdout
                    rows[kind] |= {f"{host} {device} {line.strip()}" for line in out.splitlines()
                                   if "nf_conntrack_count" not in line}
    root = "/sys/fs/bpf/ferry"
    rows["pins"] = {os.path.join(d, f) for d, _, files in os.walk(root) for f in (*files, "")
                    if f"/{fleet.tag}" in d}
    rows["files"] = {f for f in os.listdir(fleet.dir) if not f.startswith(("client", "server"))}
    return rows


def differences(one, other):
    return sorted(f"{kind}: {line}" for kind in one for line in one[kind] ^ other[kind])


def show(kind):
    return json.loads(run("bpftool", "-j", kind, "show").stdout or "[]")


def objects(fleet):
    """The kernel's numbers of every program, map and link that hangs off this run's pins."""
    found = {kind: set() for kind in OBJECTS}
    for host in HOSTS:
        root = f"/sys/fs/bpf/ferry/{fleet.name(host)}"
        for name in os.listdir(root):
            for key, number in ids(f"{root}/{name}").items():
                found[key[:-3]].add(number)
        for device in DEVICES[host]:
            out = fleet.at(host, "tc", "-j", "filter", "show", "dev", device, "egress").stdout
            found["prog"] |= {f["options"]["prog"]["id"] for f in json.loads(out or "[]")
                              if "prog" in f.get("options", {})}
    for p in show("prog"):
        if p["id"] in found["prog"]:
            found["map"] |= set(p.get("map_ids", []))
    return found


def left(found):
    """Those of them that are still there: the kernel frees some of them a little later."""
    return {k: sorted(found[k] & {o["id"] for o in show(k)}) for k in OBJECTS}


def start(fleet):
    for host in HOSTS:
        fleet.start_agent(host)
    for host in HOSTS:
        wait_for(f"agent {host}: {fleet.log(host)}", lambda h=host: fleet.ready(h), 15, 0.01)


def stop(fleet):
    for host in HOSTS:
        agent = fleet.agents.pop(host)
        if fleet.stop(agent):
            raise Failure(f"ferryd of {host} ended with {agent.returncode}: {fleet.log(host)}")


def detach(fleet, host, *argv, at=None):
    return fleet.at(at or host, f"{BUILD}/ferryd", "--node", fleet.name(host), "--socket",
                    fleet.socket(host), "--detach", *argv, check=False)


def detach_all(fleet):
    for host in HOSTS:
        p = detach(fleet, host)
        if p.returncode or len(p.stderr.splitlines()) != 1:
            raise Failure(f"detach of {host}: exit {p.returncode}: {p.stderr}")


class Streams:
    """An application on A and B, a stream of either family; the first one has moved to B."""

    def __init__(self, fleet, name):
        self.fleet = fleet
        self.servers = {h: server(fleet, h, *STREAM, name=f"server-{h}-{name}")
                        for h in ("a", "b")}
        self.clients = [Client(fleet, f, *STREAM, name=f"client{f}-{name}") for f in (4, 6)]
        self.units = [e["unit"] for e in self.servers["a"].wait("offered", count=2)]
        self.move = fleet.move(self.units[0], "a", "b")
        self.wait()

    def wait(self):
        for c in self.clients:
            c.wait_for_more(FRESH)

    def messages(self):
        return sum(sum(c.received()) for c in self.clients)

    def end(self):
        reports = [c.finish() for c in self.clients]
        for s in self.servers.values():
            self.fleet.stop(s.process)
        wait_for("the tables to be empty", lambda: not any(self.fleet.units(h) for h in HOSTS), 15)
        return all(r["tcp_ok"] and not r["reconnects"] for r in reports)


def cycles(fleet):
    seen = {kind: set() for kind in OBJECTS}
    moves, streams_ok = 0, True
    for n in range(CYCLES):
        start(fleet)
        if n % MOVE_EVERY == 0:
            streams = Streams(fleet, n)
            streams_ok &= streams.end()
            moves += 1
        for kind, found in objects(fleet).items():
            seen[kind] |= found
        stop(fleet)
        detach_all(fleet)
    return seen, moves, streams_ok


def clsact_of_both(fleet):
    """Ours, and then a filter of theirs: neither goes before they do."""
    start(fleet)
    fleet.at("a", "tc", "filter", "add", "dev", "eth0", "ingress", "prio", "7", *BYTECODE)
    stop(fleet)
    detach_all(fleet)
    kept = [fleet.at("a", "tc", what, "show", "dev", "eth0", *side).stdout for what, *side in
            (("qdisc",), ("filter", "ingress"), ("filter", "egress"))]
    fleet.at("a", "tc", "qdisc", "del", "dev", "eth0", "clsact")
    return "clsact" in kept[0] and "bytecode" in kept[1] and not kept[2]


def run_dir(fleet, prepare):
    """/run/ferry after start, stop, detach in a mount namespace where /run is empty, but for what
    prepare makes; and whether the socket had been there."""
    script = f"""
        mount -t tmpfs none /run && {prepare}
        {BUILD}/ferryd --node {fleet.name("a")} --config {fleet.config} --user {AGENT_USER} 2>/dev/null & agent=$!
        until [ -S /run/ferry/{fleet.name('a')}.sock ] || ! kill -0 $agent; do sleep 0.01; done
        kill $agent; wait $agent
        [ -S /run/ferry/{fleet.name('a')}.sock ] && echo served
        {BUILD}/ferryd --node {fleet.name('a')} --detach 2>/dev/null
        echo exit $?; ls -d /run/ferry; ls /run/ferry"""
    out = fleet.at("a", "unshare", "--mount", "sh", "-c", script, check=False).stdout
    return out.split()


def owned(fleet):
    """Another's XDP program is on A's device: what the agent then leaves there."""
    pin = f"/sys/fs/bpf/{fleet.tag}-other"
    pin_xdp(pin)
    try:
        fleet.at("a", "ip", "link", "set", "dev", "eth0", "xdpdrv", "pinned", pin)
        before = listing(fleet)
        p = fleet.at("a", *fleet.agent_argv("a"), "--node", fleet.name("a"), "--config", fleet.config,
                     "--socket", fleet.socket("a"), check=False)
        now = listing(fleet)
        on_device = differences({k: before[k] for k in ("qdiscs", "filters", "links")}, now)
        code = detach(fleet, "a").returncode
        rest = differences(before, listing(fleet))
        fleet.at("a", "ip", "link", "set", "dev", "eth0", "xdpdrv", "off")
    finally:
        os.unlink(pin)
    return (p.returncode == 1 and "XDP program" in p.stderr and not on_device and
            not code and not rest) or [p.returncode, p.stderr[-300:], on_device, code, rest]


def loaded(fleet):
    """Refusals while streams have moved, then --force on A."""
    # before the streams: libpcap counts what comes before its filter is set as unread
    wire = Capture(fleet, "c", "eth0", FLAGGED)
    streams = Streams(fleet, "loaded")
    running = detach(fleet, "a", "--force")
    stop(fleet)
    pins = listing(fleet)
    said = {h: detach(fleet, h) for h in HOSTS}
    elsewhere = detach(fleet, "b", "--force", at="a")
    # served here, moved away, sent on
    carried = {"a": [1, 1, 0], "b": [1, 0, 0], "i": [0, 0, 1]}
    refused = sum(p.returncode == 1 and "--force" in p.stderr and streams.units[0] in p.stderr and
                  [int(n) for n in re.findall(r": (\d+)[, ]", p.stderr)][-3:] == carried[h]
                  for h, p in said.items())
    unchanged = not differences(pins, listing(fleet))
    streams.wait()
    forced = [detach(fleet, "a", "--force").returncode, detach(fleet, "a").returncode]
    streams.clients[0].wait_for_more(FRESH)  # the one that lives on B
    fin, rst = closes(wire.stop())
    for c in streams.clients:
        fleet.stop(c.process, 9)
    for s in streams.servers.values():
        fleet.stop(s.process)
    for host in ("b", "i"):
        detach(fleet, host, "--force")
    return {"refused": refused, "unchanged": unchanged, "forced": forced, "fin": fin, "rst": rst,
            "elsewhere": elsewhere.returncode == 1 and "another one" in elsewhere.stderr,
            "running": running.returncode == 1 and "locked" in running.stderr}


def in_mid_move(fleet):
    fleet.faults["a"] = "hold-ms=20000"
    start(fleet)
    servers = [server(fleet, h, *STREAM, name=f"server-{h}-mid") for h in ("a", "b")]
    client = Client(fleet, 4, *STREAM, name="client-mid")
    unit = servers[0].wait("offered")[0]["unit"]
    words = {h: Words(fleet.name(h)) for h in ("a", "b")}
    mover = subprocess.Popen(["nsenter", f"--net=/run/netns/{fleet.ns('a')}", f"{BUILD}/ferry",
                              "--node", fleet.name("a"), "--socket", fleet.socket("a"), "move",
                              unit, "--to", fleet.name("b")], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    index = fleet.units("a")[0]["index"]
    wait_for("the freeze", lambda: words["a"].state(index) == "fenced" and any(
        u["state"] == "prepared" for u in fleet.units("b")))
    for host in HOSTS:
        fleet.kill_agent(host)
    mover.wait()
    refused = sum(p.returncode == 1 and "mid-move: 1" in p.stderr
                  for p in (detach(fleet, h) for h in ("a", "b")))
    for p in (client, *servers):
        fleet.stop(p.process, 9)
    for w in words.values():
        w.close()
    del fleet.faults["a"]
    return refused


def device_gone(fleet):
    fleet.at("b", "ip", "link", "del", "eth0")
    p = detach(fleet, "b", "--force")
    lo = fleet.at("b", "ip", "addr", "show", "dev", "lo").stdout
    routes = fleet.at("b", "ip", "-6", "route", "show", "table", "all").stdout
    return (not p.returncode and not any(v in lo + routes for v in VIP.values()) and
            not os.path.isdir(f"/sys/fs/bpf/ferry/{fleet.name('b')}"))


def test(fleet):
    bpffs()
    fleet.build()
    fleet.make_pki()
    fleet.write_config()
    fleet.at("b", "tc", "qdisc", "add", "dev", "eth0", "clsact")
    for side in ("ingress", "egress"):
        fleet.at("b", "tc", "filter", "add", "dev", "eth0", side, "prio", "7", *BYTECODE)
    for host in HOSTS:
        fleet.at(host, "nft", "add", "table", "inet", "operator")
        open(os.path.join(fleet.dir, f"ferryd-{host}.log"), "w").close()
    began = time.monotonic()
    before = listing(fleet)
    seen, moves, streams_ok = cycles(fleet)
    seconds = round(time.monotonic() - began, 1)
    after = listing(fleet)
    wait_for("the kernel to free all", lambda: not any(left(seen).values()), 10, 0.1)
    found = differences(before, after)
    start(fleet)
    stop(fleet)
    control = differences(before, listing(fleet))
    detach_all(fleet)
    both = clsact_of_both(fleet)
    runs = [run_dir(fleet, "true"), run_dir(fleet, "mkdir /run/ferry")]
    other = owned(fleet)
    found += differences(before, listing(fleet))
    start(fleet)
    load = loaded(fleet)
    mid = in_mid_move(fleet)
    result = {"cycles": CYCLES, "moves": moves, "cycles_s": seconds,
              "compared": {**{k: len(v) for k, v in before.items()},
                           **{k: len(v) for k, v in seen.items()}},
              "differences": found[:20], "control_differences": len(control),
              "control_kinds": sorted({d.split(":")[0] for d in control}),
              "foreign_kept": both, "owned_device": other, "run_dir": runs, **load,
              "mid_move_refused": mid,
              "device_gone": device_gone(fleet)}
    compared = [n for k, n in result["compared"].items() if k not in ("pins",)]
    result["ok"] = (not found and moves == CYCLES // MOVE_EVERY and streams_ok and
                    all(compared) and len(result["control_kinds"]) >= 6 and both and
                    runs == [["served", "exit", "0"],
                             ["served", "exit", "0", "/run/ferry"]] and
                    other is True and load["refused"] == 3 and load["unchanged"] and
                    load["elsewhere"] and load["running"] and
                    load["forced"] == [0, 3] and not load["fin"] and not load["rst"] and
                    mid == 2 and result["device_gone"])
    return result


def main():
    return on_fleet(test)
