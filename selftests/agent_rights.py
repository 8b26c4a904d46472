# SPDX-License-Identifier: BSD-2-Clause
"""
The agent serves with four capabilities, as a user of nothing else, and applications with none; who
may not do something is refused.

Steps:
 1. a mount namespace with a bpffs that only root gets into; client, ingress, node A, node B. The
    agents of A and of the ingress are started as root and become another user; B's is started as
    that user, with the four as ambient capabilities. A's and B's RLIMIT_MEMLOCK is 0
 2. each agent stops before it gives rights up, and is looked at; then again when it serves: the
    masks are those of ferryd(8), and each has told its service manager that it is up
 3. probe-servers as uid 65534, no capabilities, no_new_privs; when they have opened their ports,
    those below 1024 are closed to them. TCP over IPv4 and IPv6, and TCP + TCP + UDP, move A-B-A
 4. users: another user's move, a kind of another's, a user outside the group, one that opens too
    many connections or offers too much, or an address that is not this node's
 5. controls: an agent without one of the capabilities says which; made to start without it, it is
    the kernel that refuses; one that keeps its rights, or meets a foreign XDP program, does not
    serve
 6. once more with the applications in network namespaces of their own (agent_netns has all of that)
"""
import os
import resource
import signal
import socket
import time

import agent_netns
from fleet import AGENT_USER, HTTP_PORT, PORT
from net import BUILD, VIP, Failure, run, wait_for
from peer import inside
from probe import Client, server
from rights import (AGENT, APP, OFFERED, OTHER, SERVE, UNITS, Rights, as_user, command, connect, documented,
                    offer, only, register, status)
from wire import FLAGGED, Capture, Wires, closes, migrations

FRESH = 40
ROWS = (("v4", 4, ("--tcp", "1", "--rate", "200", "--pause-read", "30/170")),
        ("v6", 6, ("--tcp", "1", "--rate", "200", "--pause-read", "30/170")),
        ("set4", 4, ("--tcp", "2", "--rate", "200", "--udp", "unconnected", "--udp-rate", "200")))
IP_FREEBIND, ADDRESS = 15, "192.0.2.77"


def masks_right(fleet):
    """Per phase: the agents whose rights are as ferryd(8) says; B has what it was started with."""
    page = documented()
    user = {"Uid": [str(AGENT)] * 4, "Gid": [str(AGENT)] * 4, "Groups": []}
    right = {"start": 0, "serve": 0}
    for host in ("a", "i", "b"):
        fleet.seen["serve"][host] = status(fleet.agents[host].pid)
        for phase in right:
            have = fleet.seen[phase][host]
            masks = page["serve" if host == "b" else phase]
            ok = have["owner"] == 0 and masks == (have["CapPrm"], have["CapInh"], have["CapBnd"])
            ok = ok and have["CapEff"] == have["CapPrm"] and have["CapAmb"] == have["CapInh"]
            if phase == "serve" or host == "b":
                ok = ok and have["NoNewPrivs"] == 1 and all(have[k] == v for k, v in user.items())
            right[phase] += ok
    return right


def serve(fleet):
    """The applications, with no right at all; once they have their ports, nobody is given one."""
    group = os.stat(fleet.socket("a")).st_gid
    for host in ("a", "b"):
        fleet.at(host, "sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=0")
    servers = {h: server(fleet, h, "--rate", "200", before=only((), APP, group))
               for h in ("a", "b")}
    clients, units = [], []
    for name, family, argv in ROWS:
        clients.append(Client(fleet, family, *argv, name=name))
        units.append(servers["a"].wait("offered", count=len(units) + 1)[-1]["unit"])
    for host in ("a", "b"):
        fleet.at(host, "sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=1024")
        s = status(servers[host].process.pid)
        if any(s[k] for k in ("CapPrm", "CapEff", "CapInh", "CapAmb", "CapBnd")) or \
                s["Uid"] != [str(APP)] * 4 or not s["NoNewPrivs"]:
            raise Failure(f"the application of {host} has rights: {s}")
    return servers, clients, units, group


def move(fleet, clients, units, origin, to):
    for client, unit in zip(clients, units):
        fleet.move(unit, origin, to)
        client.wait_for_more(FRESH)


def flood(fleet, group):
    """Another user's connections cost root's silent one nothing; nor its kinds."""
    first = connect(fleet.socket("a"))

    def many():
        rows = [connect(fleet.socket("a")) for _ in range(200)]
        kinds, answers = [], []
        for i in range(66):
            kinds.append(connect(fleet.socket("a")))
            answers.append(register(kinds[-1], f"kind{i}"))
        return [len(rows), answers.count(0), answers.count(-122)]  # EDQUOT

    opened = as_user(OTHER, [group], many)
    answered = command(first, command="ping").get("node") == fleet.name("a")
    return opened == [200, 64, 2] and answered


def too_much(fleet, group):
    """How many units another user may have: half of the table, while root has the rest."""
    def sockets():
        rows = []
        for port in range(20000, 20000 + UNITS // 2 + 4):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind((VIP[4], port))
            rows.append(s)
        return rows

    rows = inside(fleet, "a", sockets)

    def offers():
        s = connect(fleet.socket("a"))
        register(s, "greedy")
        return [offer(s, i + 1, udp.fileno()) for i, udp in enumerate(rows)]

    answers = as_user(OTHER, [group], offers)
    mine = connect(fleet.socket("a"))
    register(mine, "root")
    return (answers.count(""), answers.count("user-limit"), offer(mine, 1, rows[-1].fileno()))


def claimed(fleet, group):
    """While its application is held up and its agent is new, another user says that a unit is
    theirs, with a socket of that tuple, which they can have in a namespace of their own."""
    held = server(fleet, "a", kind="held", port=HTTP_PORT)
    client = Client(fleet, 6, "--idle", name="held", port=HTTP_PORT)
    unit = held.wait("offered")[-1]["unit"]
    _, remote, _, local = fleet.ferry("a", "unit", "show", unit)["tuples"][0].split()
    before = len(held.events("registered"))
    os.kill(held.process.pid, signal.SIGSTOP)
    try:
        fleet.faults.pop("a", None)
        fleet.kill_agent("a")
        fleet.start_agent("a")
        for host in ("a", "b"):
            wait_for(f"agent {host}", lambda h=host: fleet.ready(h), 15)
        tuples = [part.strip("[]") for end in (local, remote) for part in end.rsplit(":", 1)]
        said = fleet.at("a", *only((), OTHER, group), "unshare", "-U", "-r", "-n",
                        "/usr/bin/python3", f"{fleet.bin}/claim.py", fleet.socket("a"), unit,
                        *tuples).stdout.split()
    finally:
        os.kill(held.process.pid, signal.SIGCONT)
    wait_for("the application to be back", lambda: len(held.events("registered")) > before)
    for process in (client.process, held.process):
        fleet.stop(process, signal.SIGKILL)
    return said == [str(OFFERED), "flow-owned"]


def foreign_address(fleet, group):
    """A socket that an unprivileged user binds to an address which is not this node's."""
    def bound():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_IP, IP_FREEBIND, 1)
        s.bind((ADDRESS, 20000))
        return s

    udp = inside(fleet, "a", bound)

    def offers():
        s = connect(fleet.socket("a"))
        register(s, "freebind")
        return offer(s, 1, udp.fileno())

    answer = as_user(OTHER - 1, [group], offers)
    return answer, ADDRESS in fleet.at("a", "ip", "-br", "addr", "show", "dev", "lo").stdout


def users(fleet, unit, group):
    """Each row true: who may not is refused, and who may is not."""
    path, to = fleet.socket("a"), fleet.name("b")

    def ask(uid, groups=(), **words):
        return as_user(uid, list(groups), lambda: command(connect(path), **words))

    def kind(uid, name, groups=(group,)):
        return as_user(uid, list(groups), lambda: register(connect(path), name))

    ordered = fleet.at("a", *only((), OTHER, group), f"{fleet.bin}/ferry", "-j", "--node",
                       fleet.name("a"), "--socket", path, "move", unit, "--to", to, check=False)
    with open(os.path.join(fleet.dir, "ferryd-a.log")) as f:
        logged = f.read()
    bounded = too_much(fleet, group)
    return {
        "move_of_another": ordered.returncode == 1 and '"error":"not-allowed"' in ordered.stdout and
        len(fleet.units("a", "local")) >= len(ROWS),
        "move_is_logged": f"uid {OTHER} " in logged and f"may not move unit {unit}" in logged,
        "kind_of_another": kind(OTHER, "probe") == kind(0, "probe") == -13,
        "kind_of_nobody": kind(OTHER, "free") == 0,
        "outside_the_group": kind(OTHER, "free", ()) == -13,
        "ping_of_another": ask(OTHER, [group], command="ping").get("node") == fleet.name("a"),
        "look_into_it": as_user(AGENT, [], lambda: os.open(
            f"/proc/{fleet.agents['a'].pid}/mem", os.O_RDONLY)) == -13,
        "flood": flood(fleet, group),
        "units": bounded == (UNITS // 2, 4, ""),
        "foreign_address": foreign_address(fleet, group) == ("addr-unavailable", False),
        "claimed": claimed(fleet, group),
        # last: it moves it
        "move_of_its_own": "freeze_us" in ask(APP, [group], command="move", unit=unit, to=to),
    }


def missing_is_named(fleet):
    rows = {}
    for cap in SERVE:
        argv = [*only([c for c in SERVE if c != cap], AGENT), f"{fleet.bin}/ferryd"]
        code, said = fleet.ends("a", argv)
        rows[f"named_{cap}"] = code == 1 and f"CAP_{cap.upper()} is missing" in said
    return rows


def kernel_refuses(fleet, servers, clients, units):
    """B's agent without one right, its own check taken out."""
    rows, argv = {}, dict(fleet.argv)
    fleet.kill_agent("b")
    os.chmod("/sys/fs/bpf", 0o711)
    for cap in ("net_admin", "bpf", "perfmon"):
        less = [*only([c for c in SERVE if c != cap], AGENT), f"{fleet.bin}/ferryd"]
        code, said = fleet.ends("b", less, "no-rights-check")
        rows[f"without_{cap}"] = code == 1 and "cannot load the programs" in said
    fleet.faults["b"] = "no-rights-check"
    fleet.argv["b"] = [*only([c for c in SERVE if c != "net_bind_service"], AGENT),
                       f"{fleet.bin}/ferryd"]
    rows["without_net_bind_service"] = rejoin(fleet, servers, "b", 1) and fleet.move(
        units[0], "a", "b", check=False).get("error") == "socket-restore"
    clients[0].wait_for_more(FRESH)
    fleet.faults.pop("b")
    fleet.argv["b"] = argv["a"]  # as root, on what the user's agent has left
    fleet.kill_agent("b")
    rejoin(fleet, servers, "b", 2)
    move(fleet, clients[:1], units[:1], "a", "b")  # with it, it does move
    return rows


def rejoin(fleet, servers, host, before):
    fleet.start_agent(host)
    for h in ("a", "b"):
        wait_for(f"agent {h} to be up", lambda h=h: fleet.ready(h), 15)
    wait_for("the application to be back",
             lambda: len(servers[host].events("registered")) > before)
    return True


def foreign_program(fleet):
    """A device of the client's host that another XDP program owns."""
    pin, node = "/sys/fs/bpf/foreign", fleet.name("x")
    fleet.at("c", "ip", "link", "add", "x0", "type", "veth", "peer", "name", "x1")
    run("bpftool", "prog", "load", f"{BUILD}/bpf/steer.bpf.o", pin)
    fleet.at("c", "bpftool", "net", "attach", "xdpdrv", "pinned", pin, "dev", "x0")
    config = os.path.join(fleet.dir, "x.conf")
    with open(config, "w") as f:
        f.write(f"[node {node}]\nnumber = 9\naddress = 127.0.0.1\ninterfaces = x0\nunits = 16\n")
    os.chmod(config, 0o644)
    os.makedirs(f"/sys/fs/bpf/ferry/{node}")
    os.chown(f"/sys/fs/bpf/ferry/{node}", AGENT, AGENT)
    argv = ["--node", node, "--config", config, "--socket", fleet.socket("x")]

    def said(*start):
        return fleet.at("c", *start, f"{fleet.bin}/ferryd", *argv, check=False, timeout=15).stderr

    user = said(*only(SERVE, AGENT))
    root = fleet.at("c", f"{fleet.bin}/ferryd", "--user", AGENT_USER, *argv, check=False).stderr
    fleet.at("c", f"{fleet.bin}/ferryd", "--node", node, "--detach")
    os.unlink(pin)
    return {"foreign_named": "('ferry_steer', tag " in root and "owns it" in root,
            "foreign_numbered": "XDP program " in user and "owns it" in user and
            "ferry_steer" not in user}


def controls(fleet, servers, clients, units):
    rows = missing_is_named(fleet)
    rows.update(kernel_refuses(fleet, servers, clients, units))
    fleet.kill_agent("i")
    code, said = fleet.ends("i", fleet.agent_argv("i"), "keep-rights")
    rows["kept_rights"] = code == 1 and "rights were not given up" in said
    rows.update(foreign_program(fleet))
    return rows


def memlock_zero(fleet):
    rows = []
    for host in ("a", "b"):
        with open(f"/proc/{fleet.agents[host].pid}/limits") as f:
            rows += [line.split()[3:5] == ["0", "0"] for line in f if "locked memory" in line]
    return rows == [True, True]


def test(fleet):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    fleet.up()
    masks, memlock = masks_right(fleet), memlock_zero(fleet)
    ready = [fleet.told(host) for host in ("a", "b", "i")]
    wires, wire = Wires(fleet), Capture(fleet, "c", "eth0", f"({FLAGGED}) and port {PORT}")
    servers, clients, units, group = serve(fleet)
    move(fleet, clients, units, "a", "b")
    move(fleet, clients, units, "b", "a")
    rows = users(fleet, units[1], group)
    clients[1].wait_for_more(FRESH)
    fleet.move(units[1], "b", "a")
    clients[1].wait_for_more(FRESH)
    checks = controls(fleet, servers, clients, units)
    stopped_at = time.time_ns()
    reports = [c.finish() for c in clients]
    wires.stop()
    runs = wires.runs()
    fin, rst = closes(wire.stop(), stopped_at)
    legs = (3, 4, 2)
    migrated = [min(migrations(runs.get((6, int(c["local"].rsplit(":", 1)[1])), []), "a", n)
                    for c in report["connections"]) for report, n in zip(reports, legs)]
    result = {"masks": masks, "memlock_zero": memlock, "ready": sum(ready),
              "ready_early": fleet.early, "moves": sum(legs), "migrated": sum(migrated),
              "messages": sum(r["received"]["messages"] + r["sent"]["messages"] for r in reports),
              "mismatches": sum(r[k] for r in reports for k in
                                ("lost", "duplicated", "reordered", "crc_errors", "reconnects")),
              "fin": fin, "rst": rst, "users": rows, "controls": checks}
    result["ok"] = (masks == {"start": 3, "serve": 3} and memlock and ready == [1, 1, 1] and
                    not result["ready_early"] and result["moves"] == result["migrated"] and
                    result["messages"] > 0 and not result["mismatches"] and not fin and not rst and
                    all(r["tcp_ok"] for r in reports) and all(rows.values()) and
                    all(checks.values()))
    return result


def main():
    fleet = Rights()
    try:
        result = test(fleet)
    finally:
        fleet.close()
    fleet = agent_netns.Spaces()
    try:
        result["namespaces"] = spaces = agent_netns.moved(fleet)
    finally:
        fleet.close()
    result["ok"] = (result["ok"] and spaces["moves"] == spaces["migrated"] > 0 and
                    not any(spaces[k] for k in ("mismatches", "fin", "rst")))
    return result
