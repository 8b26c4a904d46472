# SPDX-License-Identifier: BSD-2-Clause
"""
Every program and every rule of the kernel that is relied on, on every kernel that is promised.

Steps, for each kernel of lib/vm.py in a virtual machine, two at a time, and for this machine's own:
 1. each program of selftests/kernel, one rule of the kernel each: a red one explains later reds
 2. each BPF object is loaded: verified instructions and stack, within the bounds of tools/info
 3. the packet tests, by BPF_PROG_TEST_RUN
 4. in a guest: an agent on a veth pair, as its own user: it loads, attaches natively, answers, and
    its node is taken off again
 5. the kernel's log has no complaint in it
 6. docs/KERNELS.md says what was found: its tables are made from this (WRITE=1: written)

A kernel is a row in lib/vm.py; programs and rules are found where they are.
"""
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading

from net import BUILD, ROOT, Failure, bpffs, run
from vm import Guest
from vm_store import KERNELS

BPF = os.path.join(BUILD, "bpf")
RULES = os.path.join(BUILD, "tests/kernel")
HERE = ".".join(os.uname().release.split(".")[:2])
DOC = os.path.join(ROOT, "docs/KERNELS.md")
# busybox's shell takes its own ip before any other
AGENT = "ip() { /usr/sbin/ip \"$@\"; }; ip link add v0 type veth peer name v1; ip link set v0 up; " \
    "ip link set v1 up; ip addr add 192.0.2.1/24 dev v0; " \
    "printf '[node one]\\nnumber = 1\\naddress = 192.0.2.1\\ninterfaces = v0\\nunits = 64\\n" \
    "buckets4 = 64\\nbuckets6 = 64\\n' > /tmp/ferry.conf; " \
    "ferryd --node one --config /tmp/ferry.conf --user 64899:64899 2>/tmp/ferryd.log & agent=$!; " \
    "for i in $(seq 200); do ferry --node one status >/tmp/status 2>&1 && break; usleep 50000; done; " \
    "ferry --node one status && ip link show v0 | grep 'prog/xdp id'; good=$?; " \
    "cat /tmp/ferryd.log; kill $agent; wait $agent; " \
    "ferryd --node one --detach 2>&1 && test ! -e /sys/fs/bpf/ferry && exit $good"


def names(folder, end=""):
    return sorted(f[:len(f) - len(end)] for f in os.listdir(folder) if f.endswith(end) and
                  (end or "." not in f))


def files():
    """What a guest is given."""
    rows = {f"/t/kernel/{r}": os.path.join(RULES, r) for r in names(RULES)}
    rows |= {f"/t/bpf/{p}.bpf.o": os.path.join(BPF, f"{p}.bpf.o") for p in names(BPF, ".bpf.o")}
    rows |= {"/t/test_packet": f"{BUILD}/tests/test_packet", "/t/info": f"{ROOT}/tools/info",
             "/t/tests/packet/frames.tsv": f"{ROOT}/tests/packet/frames.tsv",
             "/usr/sbin/ferryd": f"{BUILD}/ferryd", "/usr/bin/ferry": f"{BUILD}/ferry"}
    for program in ("bpftool", "ip"):
        rows[f"/usr/sbin/{program}"] = os.path.realpath(shutil.which(program))
    return rows


class Own:
    """This machine, as if it were a guest."""

    def sh(self, command, seconds=60, check=False):
        p = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True,
                           timeout=seconds, errors="replace")
        return p.returncode, p.stdout + p.stderr

    def splats(self):
        return []


def look(machine, rules, bpf, packet, info):
    """What this kernel does."""
    found = {"rules": {}, "info": {}, "wrong": []}
    for rule in names(RULES):
        code, out = machine.sh(f"timeout 60 {rules}/{rule}", 70, check=False)
        found["rules"][rule] = not code
        if code:
            found["wrong"].append(f"{rule}: {out.strip()[-200:]}")
    objects = " ".join(f"{bpf}/{p}.bpf.o" for p in names(BPF, ".bpf.o"))
    code, out = machine.sh(f"{info} {objects}", 90, check=False)
    found["info"] = {row["program"]: [row["instructions"], row["stack"]] for row in
                     (json.loads(line) for line in out.splitlines() if line.startswith("{"))}
    if code:
        found["wrong"].append(f"info: {out[-300:]}")
    code, out = machine.sh(packet, 120, check=False)
    found["packet_tests"] = sum(int(n) for n in re.findall(r"\[  PASSED  \] (\d+) test", out))
    if code:
        found["wrong"].append(f"packet tests: {out[-600:]}")
    found["packet_ok"] = not code
    return found


def in_guest(name, folder, results):
    guest = None
    try:
        guest = Guest("g" + name.replace(".", "-"), name, folder, files()).up()
        found = look(guest, "/t/kernel", "/t/bpf", "cd /t && ./test_packet", "sh /t/info")
        code, out = guest.sh(AGENT, 60, check=False)
        found["agent"] = not code
        if code:
            found["wrong"].append(f"agent: {out[-900:]}")
        found["splats"], found["boot_s"] = guest.splats(), round(guest.boot_s, 1)
        results[name] = found
    except (Failure, OSError, subprocess.SubprocessError, StopIteration) as e:
        results[name] = {"failed": f"{type(e).__name__}: {e}"}
    finally:
        if guest:
            guest.close()


def summary(found):
    if "failed" in found:
        return found
    return {"programs": len(names(BPF, ".bpf.o")), "loaded": len(found["info"]),
            "packet_tests": found["packet_tests"], "rules": sum(found["rules"].values()),
            "rules_of": len(found["rules"]), "splats": len(found["splats"]),
            "agent": found.get("agent"), "instructions": {p: n for p, (n, _) in found["info"].items()},
            "stack": {p: s for p, (_, s) in found["info"].items()}, "wrong": found["wrong"]}


def sentence(rule):
    """The rule that a program is about: its comment's first sentence."""
    with open(os.path.join(ROOT, "selftests/kernel", rule + ".c"), encoding="utf-8") as f:
        comment = re.search(r"/\*\n(.*?)\*/", f.read(), re.S).group(1)
    text = " ".join(line.strip().lstrip("* ").strip() for line in comment.splitlines())
    return re.match(r".*?[.:](?= |$)", text).group(0).rstrip(".:")


def document(results):
    kernels = [*KERNELS, HERE]
    head = "| " + " | ".join(["", *kernels]) + " |\n|" + " --- |" * (len(kernels) + 1)

    def row(what, have):
        return "| " + " | ".join([what, *("yes" if have(results[k]) else "**no**"
                                          for k in kernels)]) + " |"

    lines = ["# Kernels", "",
             "Made by `selftests/run vm_matrix` from what it found; it fails where this page says",
             "otherwise (`WRITE=1 selftests/run vm_matrix` writes it). 6.1 and 6.12 are Debian 12's, in",
             f"virtual machines; {HERE} is a machine's own.", "", "## Programs", "", head]
    lines += [row(f"`{p}` loads", lambda f, p=p: p in f["info"]) for p in names(BPF, ".bpf.o")]
    lines += [row("packet tests", lambda f: f["packet_ok"]),
              row("an agent loads, attaches natively, is taken off", lambda f: f.get("agent", True)),
              "", "## Rules", "", "One program each in `selftests/kernel/`.", "", head]
    lines += [row(f"`{r}`: {sentence(r)}", lambda f, r=r: f["rules"].get(r)) for r in names(RULES)]
    return "\n".join(lines) + "\n"


def matrix():
    bpffs()
    folder = tempfile.mkdtemp(prefix=f"ferry-f{os.getpid()}-")
    results = {}
    try:
        guests = [threading.Thread(target=in_guest, args=(k, folder, results)) for k in KERNELS]
        for g in guests:
            g.start()
        for g in guests:
            g.join()
        results[HERE] = look(Own(), RULES, BPF, f"{BUILD}/tests/test_packet", f"{ROOT}/tools/info")
        results[HERE]["splats"] = []
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def good(found):
    return ("failed" not in found and not found["wrong"] and not found["splats"] and
            all(found["rules"].values()) and len(found["rules"]) > 40 and
            len(found["info"]) == len(names(BPF, ".bpf.o")) and found["packet_tests"] > 300)


def main():
    run(os.path.join(ROOT, "tools/deps"), "vm", timeout=600)
    results = matrix()
    whole = all("failed" not in f for f in results.values())
    said = whole and document(results)
    if whole and os.environ.get("WRITE"):
        with open(DOC, "w", encoding="utf-8") as f:
            f.write(said)
    current = os.path.exists(DOC) and open(DOC, encoding="utf-8").read() == said
    return {"ok": all(good(f) for f in results.values()) and current, "document": current,
            "kernels": {k: summary(f) for k, f in results.items()}}
