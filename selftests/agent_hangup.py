# SPDX-License-Identifier: BSD-2-Clause
"""
SIGHUP at the wrong moment, with the wrong configuration, and descriptors handed on from outside: the
agent is upgraded, or the one that is there goes on and says why not; a connection notices neither.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; A's runs from a copy of the program;
    a stream through A
 2. A is told to upgrade with a configuration that the next agent could not start with (another
    number, a device or an address that is not there): refused beforehand, by a sentence; with other
    sizes of its tables, which are kept: done
 3. ... ten times at once; while a unit is frozen, whose move is aborted; while it starts, and has
    read nothing yet; and right before it is told to end
 4. an agent is started with LISTEN_* of somebody else's making: with wrong numbers, which are
    nothing to it; with a file, or another node's pins, for its own, which it refuses
 5. the program that takes over ends at once: nobody serves, the stream goes on, the next one adopts
"""
from fleet import AGENT_USER, on_fleet
from net import BUILD, FABRIC, run, wait_for
from probe import Client, server
import os
import shutil
import signal
import threading

STREAM = ("--rate", "200")
FRESH = 20
HOLD_MS = 2000
STARTS = 5
UP = "is up, on "


def whole_log(fleet):
    with open(os.path.join(fleet.dir, "ferryd-a.log"), errors="replace") as f:
        return f.read()


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def hangup(fleet, times=1):
    for _ in range(times):
        fleet.agents["a"].send_signal(signal.SIGHUP)


def upgraded(fleet, times=1):
    """Whether another agent is up, in the same process."""
    pid, ups = fleet.agents["a"].pid, whole_log(fleet).count(UP)
    hangup(fleet, times)
    wait_for(f"another agent: {fleet.log('a')[-500:]}",
             lambda: whole_log(fleet).count(UP) > ups and fleet.ready("a"))
    return fleet.agents["a"].pid == pid


def refused(fleet, good, old, new, words):
    """With the configuration changed so, A is not upgraded, and says it."""
    log = whole_log(fleet)
    section = good.index(f"[node {fleet.name('a')}]")
    changed = good[:section] + good[section:].replace(old, new, 1)
    assert changed != good
    write(fleet.config, changed)
    hangup(fleet)
    try:
        wait_for(words, lambda: words in whole_log(fleet)[len(log):] or
                 whole_log(fleet).count(UP) > log.count(UP) or fleet.agents["a"].poll() is not None)
    finally:
        write(fleet.config, good)
    said = whole_log(fleet)[len(log):]
    return "not upgraded" in said and words in said and UP not in said and fleet.ready("a")


def configurations(fleet):
    with open(fleet.config) as f:
        good = f.read()
    result = {
        "number": refused(fleet, good, "number = 1", "number = 9", "--detach"),
        "device": refused(fleet, good, "interfaces = eth0", "interfaces = eth0 eth77",
                          "no device eth77"),
        "address": refused(fleet, good, f"address = {FABRIC['a'][0]}", "address = 192.0.2.99",
                           "192.0.2.99"),
    }
    sizes = good
    for old, new in (("units = 1024", "units = 2048"), ("buckets4 = 1024", "buckets4 = 4096"),
                     ("buckets6 = 1024", "buckets6 = 4096\nstash = 512")):
        sizes = sizes.replace(old, new)
    write(fleet.config, sizes)
    result["sizes"] = upgraded(fleet)
    write(fleet.config, good)
    return {**result, "back": upgraded(fleet)}


def restart(fleet, faults=None):
    fleet.stop(fleet.agents.pop("a"))
    fleet.faults = {"a": faults} if faults else {}
    fleet.start_agent("a")
    wait_for(f"A: {fleet.log('a')[-500:]}", lambda: fleet.ready("a"))


def while_frozen(fleet, unit):
    """The move is aborted before the exec: its command hears of it, and the unit is not frozen."""
    restart(fleet, f"hold-ms={HOLD_MS}")
    wait_for("the application", lambda: fleet.move(unit, "a", "nowhere", False)["error"] ==
             "no-such-node")
    answer = []
    mover = threading.Thread(target=lambda: answer.append(fleet.move(unit, "a", "b", False)))
    mover.start()
    wait_for("fenced", lambda: any(u["state"] == "fenced" for u in fleet.units("a")))
    done = upgraded(fleet)
    mover.join()
    at = [u["state"] for u in fleet.units("a") if u["unit"] == unit]
    restart(fleet)
    return done and answer[0].get("error") == "agent-stopping" and at == ["local"]


def blocks_hangup(pid):
    """Whether the process is ferryd, and would not die of SIGHUP."""
    try:
        with open(f"/proc/{pid}/comm") as f, open(f"/proc/{pid}/status") as status:
            rows = dict(line.split(":", 1) for line in status)
            return f.read().strip() == "ferryd" and int(rows["SigBlk"], 16) & 1
    except (OSError, KeyError):
        return False


def has_pins(pid):
    """Whether it holds the pin directory; what it opens and closes while it starts may be gone when
    it is looked at."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/sys/fs/bpf"):
                return True
        except FileNotFoundError:
            continue
    return False


def while_starting(fleet):
    """As soon as it can be told. In how many starts that was before it had its pins; in how many
    there was a second agent in the end."""
    early = done = 0
    for _ in range(STARTS):
        fleet.stop(fleet.agents.pop("a"))
        ups = whole_log(fleet).count(UP)
        fleet.start_agent("a")
        pid = fleet.agents["a"].pid
        wait_for("a process that can be told", lambda: blocks_hangup(pid), every=0)
        early += not has_pins(pid)
        hangup(fleet)
        wait_for(f"two agents, one after the other: {fleet.log('a')[-500:]}",
                 lambda: whole_log(fleet).count(UP) == ups + 2 and fleet.ready("a"))
        done += fleet.agents["a"].pid == pid
    return early, done


def then_ended(fleet):
    agent = fleet.agents.pop("a")
    agent.send_signal(signal.SIGHUP)
    agent.send_signal(signal.SIGTERM)
    code = fleet.stop(agent)
    fleet.start_agent("a")
    wait_for("A", lambda: fleet.ready("a"))
    return code == 0


def handed(fleet, fds, names, *argv, count=None):
    """An agent of A that is started with these as descriptors from 3 on, as if by a service
    manager: its exit code and what it says, or None where it serves."""
    lists = " ".join(f"{3 + i}<{path}" for i, path in enumerate(fds))
    script = (f"export LISTEN_PID=$$ LISTEN_FDS={count or len(fds)} LISTEN_FDNAMES={names}; "
              f"exec \"$@\" {lists}")
    before = len(whole_log(fleet))
    fleet.agents["a"] = fleet.start("a", "sh", "-c", script, "sh", *fleet.agent_argv("a"), *argv,
                                    "--socket", fleet.socket("a"), log="ferryd-a.log")
    p = fleet.agents["a"]
    wait_for("it to serve, or to end",
             lambda: p.poll() is not None or UP in whole_log(fleet)[before:], 15)
    if p.poll() is None:
        fleet.stop(fleet.agents.pop("a"))
        return None
    fleet.processes.remove(fleet.agents.pop("a"))
    return p.returncode, whole_log(fleet)[before:]


def from_outside(fleet):
    """Descriptors that are nobody's, or another node's."""
    fleet.stop(fleet.agents.pop("a"))
    own = ("--node", fleet.name("a"), "--config", fleet.config)
    pins = f"/sys/fs/bpf/ferry/{fleet.name('a')}"
    other = os.path.join(fleet.dir, "other.conf")
    with open(fleet.config) as f:  # a node of the same number, with another name
        write(other, f.read().replace(fleet.name("a"), "other"))
    for ending in ("crt", "key"):
        shutil.copy2(f"{fleet.pki}/{fleet.name('a')}.{ending}", f"{fleet.pki}/other.{ending}")
    run(f"{BUILD}/ferry", "pki", "issue", "other", "--dir", fleet.pki)
    os.chown(f"{fleet.pki}/other.key", int(AGENT_USER.split(":")[0]), -1)
    before = sorted(os.listdir(pins))
    code, said = handed(fleet, [fleet.config], "pins", *own)
    result = {"file": code == 1 and "no directory of a bpf file system" in said}
    code, said = handed(fleet, [pins], "pins", "--node", "other", "--config", other)
    result["other_node"] = code == 1 and f"of node {fleet.name('a')}" in said
    result["no_listeners"] = handed(fleet, ["/dev/null"] * 2, "app:node", *own) is None
    result["too_many"] = handed(fleet, [fleet.config], "pins:app", *own, count=9) is None
    result["too_few_names"] = handed(fleet, [fleet.config, fleet.config], "pins", *own) is None
    result["unknown"] = handed(fleet, [fleet.config], "somebody", *own) is None
    result["pins_kept"] = sorted(os.listdir(pins)) == before
    fleet.start_agent("a")
    wait_for("A", lambda: fleet.ready("a"))
    return result


def ends_at_once(fleet, client):
    """A program that can be run, and serves nobody."""
    shutil.copy("/bin/true", f"{fleet.installed}/next")
    os.rename(f"{fleet.installed}/next", f"{fleet.installed}/ferryd")
    agent = fleet.agents.pop("a")
    agent.send_signal(signal.SIGHUP)
    agent.wait(10)
    fleet.processes.remove(agent)
    client.wait_for_more(FRESH)
    install(fleet)
    fleet.start_agent("a")
    wait_for("A", lambda: fleet.ready("a"))
    return True


def install(fleet):
    shutil.copy(f"{BUILD}/ferryd", f"{fleet.installed}/ferryd.new")
    os.rename(f"{fleet.installed}/ferryd.new", f"{fleet.installed}/ferryd")


def test(fleet):
    fleet.installed = os.path.join(fleet.dir, "bin")
    os.mkdir(fleet.installed)
    install(fleet)
    argv = fleet.agent_argv
    fleet.agent_argv = lambda host: ((f"{fleet.installed}/ferryd", "--user", AGENT_USER)
                                     if host == "a" else argv(host))
    fleet.up()
    servers = {h: server(fleet, h, *STREAM) for h in ("a", "b")}
    client = Client(fleet, 4, *STREAM)
    unit = servers["a"].wait("offered")[0]["unit"]
    rows = configurations(fleet)
    rows["at_once"] = upgraded(fleet, times=10)
    rows["while_frozen"] = while_frozen(fleet, unit)
    early, started = while_starting(fleet)
    rows["then_ended"] = then_ended(fleet)
    rows.update(from_outside(fleet))
    rows["ends_at_once"] = ends_at_once(fleet, client)
    wait_for("the application", lambda: fleet.move(unit, "a", "nowhere", False)["error"] ==
             "no-such-node")
    fleet.move(unit, "a", "b")
    client.wait_for_more(FRESH)
    report = client.finish()
    result = {"rows": rows, "right": sum(map(bool, rows.values())), "of": len(rows),
              "starts": STARTS, "early": early, "started": started,
              "messages": report["received"]["messages"], "resets": report["reconnects"],
              "mismatches": report["lost"] + report["duplicated"] + report["crc_errors"]}
    result["ok"] = (all(rows.values()) and started == STARTS and early > 0 and
                    report["tcp_ok"] and not result["resets"] and not result["mismatches"] and
                    result["messages"] > FRESH)
    return result


def main():
    return on_fleet(test)
