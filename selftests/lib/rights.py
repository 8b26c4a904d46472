# SPDX-License-Identifier: BSD-2-Clause
"""
Processes as the kernel sees them, and as other users: what /proc says of rights, the agent's UNIX
socket spoken to under any uid, and a fleet whose agents are started as root and as their user, in a
mount namespace with bpffs as a service manager mounts it.
"""
import array
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import struct

from fleet import AGENT_USER, Fleet
from net import BUILD, ROOT, run, wait_for

CLONE_NEWNS = 0x20000
SETS = ("CapPrm", "CapEff", "CapInh", "CapAmb", "CapBnd")
AGENT, APP, OTHER = int(AGENT_USER.split(":")[0]), 65534, 65533  # uids
UNITS = 256  # of a node's table: half of it is one user's
SERVE = ("net_admin", "net_bind_service", "bpf", "perfmon")
HELLO, WELCOME, OFFER, OFFERED, RESUME = 1, 2, 3, 4, 18
VERSION = 2  # FERRY_APP_VERSION
MESSAGE = struct.Struct("<HHIIiII16s32s")
SOCKET = struct.Struct("<HH16s")


def own_mounts():
    """A mount namespace for this process and all that it starts, with a bpffs for root alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "bpf", "-o", "mode=0700", "bpf", "/sys/fs/bpf")


def status(pid):
    with open(f"/proc/{pid}/status") as f:
        rows = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    return {**{k: int(rows[k], 16) for k in SETS}, "NoNewPrivs": int(rows["NoNewPrivs"]),
            "Uid": rows["Uid"].split(), "Gid": rows["Gid"].split(),
            "Groups": rows["Groups"].split(), "State": rows["State"][0],
            # where a process is undumpable, its files in /proc are root's
            "owner": os.stat(f"/proc/{pid}/environ").st_uid, "name": rows["Name"]}


def stopped(pid):
    """Waits until the agent has stopped itself at its fault point; what it is then."""
    def at_the_point():
        s = status(pid)
        return s if s["name"] == "ferryd" and s["State"] == "T" else None

    return wait_for(f"process {pid} to stop before the drop", at_the_point)


def documented():
    """The masks of each phase in ferryd(8): (permitted and effective, inheritable and ambient,
    bounding)."""
    with open(os.path.join(ROOT, "docs/man/ferryd.8"), encoding="utf-8") as f:
        rows = re.findall(r"^(start|serve) +([0-9a-f]{16}) +([0-9a-f]{16}) +([0-9a-f]{16})$",
                          f.read(), re.M)
    return {phase: tuple(int(m, 16) for m in masks) for phase, *masks in rows}


def only(caps, uid, *groups):
    """Words that start a program as a user with these capabilities and no more."""
    listed = ",".join(["-all", *(f"+{c}" for c in caps)])
    who = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", *who, f"--inh-caps={listed}",
            f"--ambient-caps={listed}", f"--bounding-set={listed}", "--no-new-privs"]


def as_user(uid, groups, work):
    """work() in a process of that user; its result goes through JSON, an OSError is its number."""
    out, into = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            answer = work()
        except OSError as e:
            answer = -e.errno
        os.write(into, json.dumps(answer).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as f:
        answer = json.load(f)
    os.waitpid(pid, 0)
    return answer


def connect(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(path)  # waits where too many are before it
    s.settimeout(5)
    return s


def register(s, kind):
    """0 or -errno, as the agent says."""
    s.send(MESSAGE.pack(HELLO, VERSION, 0, 0, 0, 0, 0, b"", kind.encode()))
    return MESSAGE.unpack(s.recv(8192))[4]


def offer(s, handle, fd):
    """A unit of one socket: "" or the refusal's id."""
    m = MESSAGE.pack(OFFER, VERSION, handle, 0, 0, 1, 0, b"", b"") + SOCKET.pack(0, 0, b"one")
    s.sendmsg([m], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    return MESSAGE.unpack(s.recv(8192))[8].rstrip(b"\0").decode()


def command(s, **words):
    s.send(json.dumps(words).encode())
    return json.loads(s.recv(65536))


class Rights(Fleet):
    """A fleet whose agents are looked at before they give up their rights. A's is started as root,
    B's as its user, both with RLIMIT_MEMLOCK 0; programs are where every user can run them."""

    def __init__(self):
        own_mounts()
        super().__init__(faults={h: "stop-before-drop" for h in ("a", "b", "i")})
        self.seen = {"start": {}, "serve": {}}
        os.chmod(self.dir, 0o755)
        self.bin, self.run_dir = os.path.join(self.dir, "bin"), os.path.join(self.dir, "run")
        os.mkdir(self.bin)
        run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", self.bin)
        for program in ("ferryd", "ferry", "probe-server"):  # every user can run them here
            shutil.copy(f"{BUILD}/{program}", self.bin)
            os.chmod(f"{self.bin}/{program}", 0o755)
        shutil.copy(os.path.join(ROOT, "selftests/lib/claim.py"), self.bin)
        os.mkdir(self.run_dir)
        os.chown(self.run_dir, AGENT, AGENT)
        self.argv = {"a": ["prlimit", "--memlock=0:0", *super().agent_argv("a")],
                     "b": ["prlimit", "--memlock=0:0", *only(SERVE, AGENT), f"{self.bin}/ferryd"]}
        self.early, self.notices = 0, []
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.setblocking(False)
        self.notify.bind(os.path.join(self.dir, "notify"))
        os.chmod(os.path.join(self.dir, "notify"), 0o777)
        os.environ["NOTIFY_SOCKET"] = os.path.join(self.dir, "notify")

    def socket(self, host):
        return os.path.join(self.run_dir, f"{host}.sock")

    def agent_argv(self, host):
        return self.argv.get(host) or super().agent_argv(host)

    def write_config(self):
        super().write_config()
        with open(self.config) as f:
            text = f.read().replace("units = 1024", f"units = {UNITS}")
        with open(self.config, "w") as f:
            f.write(text + f"[application probe]\nuser = {APP}\n")
        os.chmod(self.config, 0o644)

    def start_agent(self, host):
        """As a unit with User= has it prepared: its directory, and a way to it for the start."""
        pins = f"/sys/fs/bpf/ferry/{self.name(host)}"
        os.makedirs(pins, mode=0o711, exist_ok=True)
        if "setpriv" in self.agent_argv(host):
            os.chmod(pins, 0o700)
            os.chown(pins, AGENT, AGENT)
            os.chmod("/sys/fs/bpf", 0o711)
        super().start_agent(host)
        if "stop-before-drop" in self.faults.get(host, ""):
            self.seen["start"][host] = stopped(self.agents[host].pid)
            self.early += self.told(host)
            os.chmod("/sys/fs/bpf", 0o700)
            self.agents[host].send_signal(signal.SIGCONT)

    def told(self, host):
        """How often the host's agent has told its service manager that it is up."""
        while True:
            try:
                self.notices.append(self.notify.recv(4096).decode())
            except BlockingIOError:
                break
        return sum("READY=1" in n and f" {self.name(host)} " in n for n in self.notices)

    def close(self):
        try:
            super().close()
        finally:
            run("umount", self.bin, check=False)
            shutil.rmtree(self.dir, ignore_errors=True)

    def ends(self, host, argv, fault=""):
        """Exit code and last line of an agent that should not come to serve."""
        p = self.at(host, "env", f"FERRY_FAULT={fault}", *argv, "--node", self.name(host),
                    "--config", self.config, "--socket", self.socket("x"), check=False, timeout=15)
        return p.returncode, p.stderr.strip().rpartition("\n")[2]
