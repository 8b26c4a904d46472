# SPDX-License-Identifier: BSD-2-Clause
"""
CVE-2026-46015: Linux before 6.1.175 does not wake who waits for a listener when a connection moves
to it. On such a kernel, in a virtual machine, a guarded server is woken by ferry all the same.

Steps, over IPv4 and IPv6, for a server that waits in accept() (busybox httpd) and one that waits in
epoll (nginx):
 1. the kernel forgets: selftests/kernel/reuseport_wake fails, `ferry guard list` says "wakes":
    false; control: on 6.1 as it is now the rule holds, and it says true
 2. a server stands still, eight clients queue, SIGKILL: held. While the agent stands still, the
    next server is started, and waits, asleep; then the agent goes on: all eight are answered
 3. two servers of one address; the newer one stands still with eight clients, SIGKILL: they move to
    the older one, which sleeps, and all are answered
 4. control, FERRY_FAULT=no-wake: in 2 and 3 the eight are queued at a server that sleeps, none of
    them is answered in three seconds; then another client comes, and all nine are answered
"""
import json
import os
import tempfile

from net import BUILD, ROOT, Failure, run, wait_for
from vm import Guest

QUEUED = 8
PORT = 8080
SOCKET = "/run/guard.sock"
AT = {4: f"127.0.0.1:{PORT}", 6: f"[::1]:{PORT}"}
SLEEPS_IN = {"43": "accept", "288": "accept4", "232": "epoll_wait", "281": "epoll_pwait"}  # x86-64
SILENT_S = 3
NGINX = """
daemon off;
master_process off;
user root;
pid /run/nginx.pid;
error_log /run/nginx.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f;
    uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s;
    server {{ listen {at}; location / {{ return 200 "file\\n"; }} }}
}}
"""


def servers(family):
    return {"busybox": f"httpd -f -p {AT[family]} -h /srv", "nginx": f"nginx -c /srv/nginx{family}"}


def files():
    return {"/usr/sbin/nginx": "/usr/sbin/nginx", "/usr/sbin/ferry-guard": f"{BUILD}/ferry-guard",
            "/usr/bin/ferry": f"{BUILD}/ferry", "/srv/index.html": b"file\n",
            "/rule": f"{BUILD}/tests/kernel/reuseport_wake",
            **{f"/srv/nginx{f}": NGINX.format(at=at).encode() for f, at in AT.items()}}


class Waking(Guest):
    def start(self, server):
        """A server of that command line, once it sleeps: its pid, and where."""
        pid = int(self.sh(f"{server} >/run/server.log 2>&1 & echo $!"))
        return pid, wait_for(f"{server} to wait", lambda: self.sleeps(pid), 20, 0.1)

    def sleeps(self, pid):
        """The system call that a process waits in for whoever comes; or None."""
        code, out = self.sh(f"cat /proc/{pid}/syscall", check=False)
        return None if code else SLEEPS_IN.get(out.split()[0])

    def guard(self, *words, env=""):
        words = " ".join(map(str, words))
        return json.loads(self.sh(f"{env} ferry -j --socket {SOCKET} guard {words} 2>/run/said"))

    def one(self):
        return self.guard("list")["guards"][0]

    def queued(self, pid):
        return sum(m["queued"] for m in self.one()["members"] if m["pid"] == pid)

    def clients(self, family, count):
        self.sh(f"for i in $(seq {count}); do timeout 60 wget -q -O - http://{AT[family]}/ "
                ">>/run/answers 2>/dev/null & done")

    def answers(self):
        return self.sh("cat /run/answers").count("file")

    def wait(self, what, condition):
        try:
            return wait_for(what, condition, 30, 0.1)
        except Failure as e:
            log = self.sh(f"cat {SOCKET}.log /run/server.log")
            raise Failure(f"{e}: {self.guard('list')} {log}") from None


def queue(guest, family, pid):
    """A server that stands still, with eight clients."""
    guest.sh(f"kill -STOP {pid}; : >/run/answers")
    guest.clients(family, QUEUED)
    guest.wait("clients to queue", lambda: guest.queued(pid) == QUEUED)


def what_becomes(guest, family, pid, control):
    """Of who has been given to a server that sleeps. control: nobody wakes it."""
    found = {}
    if control:
        guest.wait("all to be given to it", lambda: guest.queued(pid) == QUEUED)
        guest.sh(f"sleep {SILENT_S}")
        found = {"silent": {"queued": guest.queued(pid), "answered": guest.answers(),
                            "asleep": bool(guest.sleeps(pid))}}
        guest.clients(family, 1)
    guest.wait("all to be answered", lambda: guest.answers() >= QUEUED + control)
    return {**found, "answered": guest.answers(), "kicked": guest.one()["counts"]["kicked"]}


def successor(guest, family, server, pid, control):
    """The next server sleeps before the agent gives it what is held."""
    agent = guest.guard("list")["agent"]
    queue(guest, family, pid)
    guest.sh(f"kill -9 {pid}")
    guest.wait("them to be held", lambda: guest.one()["held"] == QUEUED)
    guest.sh(f"kill -STOP {agent}")
    pid, _ = guest.start(server)
    guest.sh(f"kill -CONT {agent}")
    return pid, what_becomes(guest, family, pid, control)


def member(guest, family, server, pid, control):
    """The newer of two dies, the older one sleeps."""
    newer, _ = guest.start(server)
    guest.wait("it to be guarded, too", lambda: len(guest.one()["members"]) == 2)
    queue(guest, family, newer)
    guest.sh(f"kill -9 {newer}")
    return pid, what_becomes(guest, family, pid, control)


def row(guest, family, server, step, control):
    pid, where = guest.start(server)
    guest.guard("--pid", pid, env="FERRY_FAULT=no-wake" if control else "")
    wakes = guest.guard("list")["wakes"]
    pid, found = step(guest, family, server, pid, control)
    guest.guard("off")
    guest.sh(f"kill -9 {pid}")
    return {"wakes": wakes, "slept_in": where, **found}


def good(found, control):
    silent = {"queued": QUEUED, "answered": 0, "asleep": True}
    return (not found["wakes"] and found["answered"] == QUEUED + control and
            bool(found["kicked"]) != control and found.get("silent", silent) == silent)


def forgets(guest):
    """Whether the kernel's rule fails there, and what the agent says."""
    pid, _ = guest.start(servers(4)["busybox"])
    guest.guard("--pid", pid)
    wakes = guest.guard("list")["wakes"]
    guest.guard("off")
    guest.sh(f"kill -9 {pid}")
    code, said = guest.sh("/rule", check=False)
    return {"rule": code, "said": said.strip(), "wakes": wakes}


def rows(guest):
    found, wrong = {}, []
    for family in AT:
        for name, server in servers(family).items():
            for step in (successor, member):
                for control in (False, True):
                    what = f"{name}_v{family}_{step.__name__}{'_control' if control else ''}"
                    found[what] = row(guest, family, server, step, control)
                    if not good(found[what], control):
                        wrong.append(what)
    return found, wrong


def in_guest(kernel, folder, look):
    """What look(guest) finds on that kernel, and what its log complains of."""
    name = f"f{os.getpid()}wake{kernel.replace('.', '-')}"
    guest = Waking(name, kernel, folder, files())
    try:
        return look(guest.up()), guest.splats()
    finally:
        guest.close()


def main():
    run(os.path.join(ROOT, "tools/deps"), "vm", timeout=600)
    with tempfile.TemporaryDirectory(prefix=f"ferry-f{os.getpid()}-") as folder:
        now, _ = in_guest("6.1", folder, forgets)
        (there, (found, wrong)), splats = in_guest("6.1.170", folder, lambda g: (forgets(g), rows(g)))
    silent = [r for r in found.values() if "silent" in r]
    known = "sleeps on over" in there["said"] and not there["wakes"]
    return {"ok": not wrong and not splats and known and now["rule"] == 0 and now["wakes"],
            "wrong": wrong, "rows_of": len(found),
            "answered": sum(r["answered"] for r in found.values() if "silent" not in r),
            "kicked": sum(r["kicked"] for r in found.values()),
            "control_silent": sum(r["silent"]["queued"] for r in silent),
            "control_answered": sum(r["answered"] for r in silent),
            "forgets": there, "now": now, "splats": splats, "rows": found}
