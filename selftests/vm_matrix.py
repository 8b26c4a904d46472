# SPDX-License-Identifier: BSD-2-Clause
"""
Every program, every rule of the kernel that is relied on, and every test that is about the kernel, on
every kernel that is promised.

Steps, for each kernel of lib/vm_store.py in a virtual machine, two at a time, and for this machine's:
 1. each program of selftests/kernel, one rule of the kernel each: a red one explains later reds
 2. each BPF object is loaded: verified instructions and stack, within the bounds of tools/info
 3. ROWS: the packet tests, by BPF_PROG_TEST_RUN, and the unit tests with sockets and maps in them
 4. in a guest: GUEST_ROWS
 5. the kernel's log has no complaint in it; control: one that is written there is found
 6. docs/KERNELS.md says what was found: its tables are made from this (WRITE=1: written)

A kernel is a row in lib/vm_store.py, a test a row here; programs and rules are found where they are.
"""
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading

from net import BUILD, ROOT, Failure, bpffs, run, wait_for
from vm import Guest
from vm_store import KERNELS

BPF = os.path.join(BUILD, "bpf")
RULES = os.path.join(BUILD, "tests/kernel")
OWN = ".".join(os.uname().release.split(".")[:2])
OWN += " (here)" if OWN in KERNELS else ""
DOC = os.path.join(ROOT, "docs/KERNELS.md")
UNIT = ("test_adopt", "test_diag", "test_libferry_arrive", "test_libferry_resume", "test_limits",
        "test_pins", "test_repair", "test_repair_check", "test_resume", "test_resume_hostile",
        "test_rights", "test_tls", "test_unit_word", "test_witness", "test_witness_guarded")
# What a row is called in docs/KERNELS.md: its command, in a directory with all of files().
ROWS = {"packet tests": "./test_packet", **{f"`{t}`": f"./{t}" for t in UNIT}}
AGENT = """
ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up
ip addr add 192.0.2.1/24 dev v0
cat >/tmp/ferry.conf <<END
[node one]
number = 1
address = 192.0.2.1
interfaces = v0
units = 64
buckets4 = 64
buckets6 = 64
END
ferryd --node one --config /tmp/ferry.conf --user 64899:64899 2>/tmp/ferryd.log &
agent=$!
for i in $(seq 200); do ferry --node one status >/tmp/status 2>&1 && break; usleep 50000; done
ferry --node one status && ip link show v0 | grep 'prog/xdp id'; good=$?
cat /tmp/ferryd.log
kill $agent; wait $agent
ferryd --node one --detach 2>&1 && test ! -e /sys/fs/bpf/ferry && exit $good
"""
# Eight clients are queued at a server that stands still, which is killed: the next one answers them.
GUARD = """
guard() { ferry --socket /tmp/guard.sock guard "$@"; }
echo file >/tmp/index.html
guard --port 8080 -- httpd -f -p $1 -h /tmp 2>/tmp/guard.said &
for i in $(seq 100); do wget -q -O - http://$2/ && break; usleep 50000; done
server=$(guard list | sed -n 's/.*(pid \\([0-9]*\\)).*/\\1/p')
kill -STOP $server
for i in $(seq 8); do timeout 30 wget -q -O - http://$2/ >>/tmp/answers & done
for i in $(seq 100); do guard list | grep -q ' 8 queued' && break; usleep 50000; done
kill -9 $server
for i in $(seq 100); do guard list | grep -q ' 8 held' && break; usleep 50000; done
guard list
httpd -f -p $1 -h /tmp & server=$!
for i in $(seq 100); do [ "$(wc -l </tmp/answers)" = 8 ] && break; usleep 50000; done
guard list; cat /tmp/guard.sock.log
guard off; good=$?
kill $server
[ "$(wc -l </tmp/answers)" = 8 ] && rm /tmp/answers && exit $good
"""
GUEST_ROWS = {"an agent loads, attaches natively, is taken off": "dash ./agent",
              "a guarded listener's queue goes to the next server, IPv4":
              "dash ./guard 127.0.0.1:8080 127.0.0.1:8080",
              "a guarded listener's queue goes to the next server, IPv6":
              "dash ./guard '[::1]:8080' '[::1]:8080'"}


def names(folder, end=""):
    return sorted(f[:len(f) - len(end)] for f in os.listdir(folder) if f.endswith(end) and
                  (end or "." not in f))


def files():
    """What all commands find in their directory."""
    rows = {f"kernel/{r}": os.path.join(RULES, r) for r in names(RULES)}
    rows |= {f"bpf/{p}.bpf.o": os.path.join(BPF, f"{p}.bpf.o") for p in names(BPF, ".bpf.o")}
    rows |= {t: f"{BUILD}/tests/{t}" for t in ("test_packet", *UNIT)}
    return rows | {"info": f"{ROOT}/tools/info",
                   "tests/packet/frames.tsv": f"{ROOT}/tests/packet/frames.tsv"}


def guest_files():
    tools = {f"/usr/sbin/{t}": os.path.realpath(shutil.which(t)) for t in ("bpftool", "ip")}
    return {**{f"/t/{name}": path for name, path in files().items()}, **tools,
            "/t/agent": AGENT.encode(), "/t/guard": GUARD.encode(),
            "/usr/sbin/ferryd": f"{BUILD}/ferryd", "/usr/bin/ferry-guard": f"{BUILD}/ferry-guard",
            "/usr/bin/ferry": f"{BUILD}/ferry"}


class Own:
    """This machine, as if it were a guest."""

    def __init__(self, folder):
        self.folder = folder
        for name, path in files().items():
            to = os.path.join(folder, name)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            os.symlink(path, to)

    def sh(self, command, seconds=60, check=False):
        p = subprocess.run(["sh", "-c", command], cwd=self.folder, capture_output=True, text=True,
                           timeout=seconds, errors="replace")
        return p.returncode, p.stdout + p.stderr


def look(machine, rows, at="."):
    """What this kernel does."""
    found = {"rules": {}, "rows": {}, "wrong": [], "splats": []}

    def ask(command, what, seconds):
        code, out = machine.sh(f"cd {at} && timeout {seconds} {command}", seconds + 10, check=False)
        if code:
            found["wrong"].append(f"{what}: exit {code}: {out.strip()[-900:]}")
        return not code, out

    for rule in names(RULES):
        found["rules"][rule], _ = ask(f"./kernel/{rule}", rule, 60)
    _, out = ask(f"sh ./info {' '.join(f'bpf/{p}.bpf.o' for p in names(BPF, '.bpf.o'))}", "info", 90)
    found["info"] = {row["program"]: row for row in
                     (json.loads(line) for line in out.splitlines() if line.startswith("{"))}
    for what, command in rows.items():
        found["rows"][what], out = ask(command, what, 120)
        if what == "packet tests":
            found["packet_tests"] = sum(int(n) for n in re.findall(r"\[  PASSED  \] (\d+) test", out))
    return found


def in_guest(name, folder, results):
    guest = None
    try:
        guest = Guest("g" + name.replace(".", "-"), name, folder, guest_files()).up()
        found = look(guest, ROWS | GUEST_ROWS, "/t")
        found["splats"] = guest.splats()
        guest.sh("echo '<4>BUG: of a test' >/dev/kmsg")
        wait_for("the log's complaint to be found", lambda: len(guest.splats()) > len(found["splats"]))
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
            "rules_of": len(found["rules"]), "rows": sum(found["rows"].values()),
            "rows_of": len(found["rows"]), "splats": len(found["splats"]),
            "wrong": found["wrong"] + found["splats"]}


def sentence(rule):
    """The rule that a program is about: its comment's first sentence."""
    with open(os.path.join(ROOT, "selftests/kernel", rule + ".c"), encoding="utf-8") as f:
        comment = re.search(r"/\*\n(.*?)\*/", f.read(), re.S).group(1)
    text = " ".join(line.strip().lstrip("* ").strip() for line in comment.splitlines())
    return re.match(r".*?[.:](?= |$)", text).group(0).rstrip(".:")


def document(results):
    head = "| " + " | ".join(["", *results]) + " |\n|" + " --- |" * (len(results) + 1)

    def row(what, cell):
        return "| " + " | ".join([what, *(cell(f) for f in results.values())]) + " |"

    def said(good):
        return "yes" if good else "-" if good is None else "**no**"

    def work(found, program):
        i = found["info"].get(program)
        return f"{i['instructions']}, {i['stack']}" if i else "**no**"

    lines = ["# Kernels", "",
             "Made by `selftests/run vm_matrix` from what it found; it fails where this page says",
             "otherwise (`WRITE=1 selftests/run vm_matrix` writes it). 6.1 and 6.12 are Debian 12's,",
             f"in virtual machines; {OWN} is a machine's own.", "", "## Programs", "",
             "Each loads: instructions that the verifier walked, octets of stack.", "", head]
    lines += [row(f"`{p}`", lambda f, p=p: work(f, p)) for p in names(BPF, ".bpf.o")]
    lines += ["", "## Tests", "", head]
    lines += [row(r, lambda f, r=r: said(f["rows"].get(r))) for r in [*ROWS, *GUEST_ROWS]]
    lines += ["", "## Rules", "", "One program each in `selftests/kernel/`.", "", head]
    lines += [row(f"`{r}`: {sentence(r)}", lambda f, r=r: said(f["rules"].get(r)))
              for r in names(RULES)]
    return "\n".join(lines) + "\n"


def tables(text):
    """{(row, kernel): cell}"""
    found, kernels = {}, []
    for line in text.splitlines():
        if line.startswith("| "):
            first, *cells = (c.strip() for c in line[1:-1].split("|"))
            if not first:
                kernels = cells
            found |= {(first, kernel): cell for kernel, cell in zip(kernels, cells) if first}
    return found


def same(one, other):
    """Figures change with a kernel's updates: a tenth is allowed."""
    numbers = [[int(n) for n in re.findall(r"\d+", cell)] for cell in (one, other)]
    return one == other or len(numbers[0]) == len(numbers[1]) > 0 and all(
        abs(a - b) <= max(a, b) / 10 for a, b in zip(*numbers))


def out_of_date(written, found):
    """What the page does not say as it was found. Of this machine's own kernel it need not speak."""
    written = {k: v for k, v in written.items() if k[1] in KERNELS or k[1] == OWN}
    return [f"{row}, {kernel}: {written.get((row, kernel))}, not {found.get((row, kernel))}"
            for row, kernel in sorted({**written, **found})
            if not same(written.get((row, kernel), ""), found.get((row, kernel), "")) and
            (kernel in KERNELS or any(k == kernel for _, k in written))]


def matrix(folder):
    """{kernel: what it does}"""
    results = dict.fromkeys(KERNELS)
    guests = [threading.Thread(target=in_guest, args=(k, folder, results)) for k in KERNELS]
    for g in guests:
        g.start()
    for g in guests:
        g.join()
    results[OWN] = look(Own(folder), ROWS)
    return results


def good(found):
    return ("failed" not in found and not found["wrong"] and not found["splats"] and
            len(found["rules"]) > 40 and len(found["info"]) == len(names(BPF, ".bpf.o")) and
            found["packet_tests"] > 300)


def main():
    run(os.path.join(ROOT, "tools/deps"), "vm", timeout=600)
    bpffs()
    with tempfile.TemporaryDirectory(prefix=f"ferry-f{os.getpid()}-") as folder:
        results = matrix(folder)
    stale = ["not all kernels could be asked"]
    if all("failed" not in f for f in results.values()):
        said = document(results)
        if os.environ.get("WRITE"):
            with open(DOC, "w", encoding="utf-8") as f:
                f.write(said)
        with open(DOC, encoding="utf-8") as f:
            stale = out_of_date(tables(f.read()), tables(said))
    return {"ok": all(good(f) for f in results.values()) and not stale, "document": not stale,
            "stale": stale, "kernels": {k: summary(f) for k, f in results.items()}}
