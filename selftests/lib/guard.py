# SPDX-License-Identifier: BSD-2-Clause
"""
One host where ports are guarded: a network namespace, a ferry-guard of its own by its socket, and
what the kernel says of both. Servers are processes of Net; nothing here knows what they speak.
"""
import ctypes
import json
import os
import re
import signal
import socket
import subprocess

from clients import Clients
from net import BUILD, Failure, Net, counters, run, wait_for
from wire import FIN, RST, SYN, Capture

HOST = "g"
PORT = 8080
LOCAL = {4: "127.0.0.1", 6: "::1"}
ANY = {4: "0.0.0.0", 6: "::"}
WHY_ENDED = ("TCPAbortOnClose", "TCPAbortOnData", "TCPAbortOnLinger", "TCPAbortOnMemory",
             "TCPAbortOnTimeout", "EmbryonicRsts", "TCPMigrateReqFailure")
KINDS = {"prog": "prog_id", "map": "map_id", "link": "link_id"}
SO_DETACH_REUSEPORT_BPF = 68
PIDFD_GETFD = 438
libc = ctypes.CDLL(None, use_errno=True)


def state(pid):
    """One letter, as ps shows it; none of a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def alive(pid):
    return state(pid) not in ("", "Z", "X")


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(n) for n in f.read().split()]
    except OSError:
        return []


def program(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def stop(pid):
    """SIGSTOP, and waits until it is so."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(f"process {pid} to be stopped", lambda: state(pid) == "T")


def listeners(pid):
    """Duplicates of a process's listening TCP sockets."""
    pidfd, found = os.pidfd_open(pid), []
    for n in map(int, os.listdir(f"/proc/{pid}/fd")):
        fd = libc.syscall(PIDFD_GETFD, pidfd, n, 0)
        if fd < 0:
            continue
        try:
            s = socket.socket(fileno=fd)
        except OSError:  # no socket
            os.close(fd)
            continue
        if s.type == socket.SOCK_STREAM and s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            found.append(s)
        else:
            s.close()
    os.close(pidfd)
    return found


def reuse(pid):
    """SO_REUSEPORT of each listener of a process."""
    rows = [s.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) for s in listeners(pid)]
    return sorted(rows)


def has_program(pid):
    """Whether a reuseport program is at a listener; asked by detaching it."""
    found = False
    for s in listeners(pid):
        try:
            s.setsockopt(socket.SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0)
            found = True
        except OSError:
            continue
    return found


class Command:
    """A server that `ferry guard -- ARGV` runs: its process. Over when ferry is."""

    def __init__(self, ferry):
        self.ferry = ferry
        self.pid = wait_for("the command to be run", self.child, 15)

    def child(self):
        if self.ferry.poll() is not None:
            raise Failure(f"ferry guard has ended: {self.ferry.returncode}")
        # what it starts the agent by is its child for a moment, too
        return next((c for c in children(self.ferry.pid) if
                     program(c) not in ("", program(self.ferry.pid))), None)

    def send_signal(self, sig):
        try:
            os.kill(self.pid, sig)
        except ProcessLookupError:
            pass  # as Popen's

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def poll(self):
        return self.ferry.poll()

    def wait(self, timeout=None):
        return self.ferry.wait(timeout)

    @property
    def returncode(self):
        return self.ferry.returncode


class Guard(Net):
    def __init__(self):
        super().__init__()
        self.path = os.path.join(self.dir, "guard.sock")
        self.agents = set()  # every agent and keeper that was seen

    def up(self):
        self.host(HOST)
        return self

    def host(self, host):
        """A namespace in which many clients can wait."""
        self.add(host)
        self.at(host, "sysctl", "-qw", "net.core.somaxconn=4096",
                "net.ipv4.ip_local_port_range=10000 65000", "net.ipv4.tcp_max_syn_backlog=8192")

    # what a person would type

    def argv(self, *words):
        return [f"{BUILD}/ferry", "--socket", self.path, "guard", *map(str, words)]

    def ferry(self, *words, check=True, host=HOST):
        """A `ferry guard` in a namespace; its exit code and its JSON."""
        argv = self.argv(*words)
        argv.insert(1, "-j")
        # not by a pipe: who starts the agent would be waited for until that has ended
        out = os.path.join(self.dir, "answer")
        with open(out, "w+") as f, open(os.path.join(self.dir, "log"), "ab") as err:
            code = subprocess.run(["nsenter", f"--net=/run/netns/{self.ns(host)}", *argv], stdout=f,
                                  stderr=err, stdin=subprocess.DEVNULL, timeout=60).returncode
            f.seek(0)
            text = f.read()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {"error": "no-json", "text": text}
        if check and code:
            raise Failure(f"ferry guard {' '.join(map(str, words))}: exit {code}: {answer}"
                          f" | {self.log()}")
        return code, answer

    def guarded(self, *argv, port=PORT):
        """A server that is started by `ferry guard`. port: one, or some."""
        ports = port if isinstance(port, tuple) else (port,)
        words = [w for n in ports for w in ("--port", n)]
        return self.below(self.start(HOST, *self.argv(*words, "--", *argv)))

    def below(self, parent):
        """What that process runs, in its place."""
        try:
            p = Command(parent)
        except Failure as e:
            raise Failure(f"{e}: {self.log()}") from None
        self.processes[self.processes.index(parent)] = p
        return p

    def unguarded(self, *argv):
        return self.start(HOST, *argv)

    def apart(self, *argv):
        """The same as a generation of its own, whatever runs already: this process is of Python's
        program, and would be taken for a parent of workers."""
        return self.below(self.start(HOST, "timeout", "--foreground", "100", *argv))

    def attach(self, pid, *words):
        return self.ferry("--pid", pid, *words)[1]

    def list(self, check=True):
        answer = self.ferry("list", check=check)[1]
        self.agents |= {answer[k] for k in ("agent", "keeper") if k in answer}
        return answer

    def guards(self, port=PORT, check=True):
        """check: an agent has to be there, and to answer."""
        return [g for g in self.list(check).get("guards", []) if g["port"] == port]

    def one(self, port=PORT):
        """The guard of that port, of which there is one address only."""
        rows = self.guards(port)
        if len(rows) != 1:
            raise Failure(f"{len(rows)} guards of port {port}: {rows}")
        return rows[0]

    def off(self, *words):
        self.list()
        return self.ferry("off", *words)[1]

    def all_off(self):
        """Every guard off, and nothing left of them; what off said."""
        found = self.objects()
        answer = self.off()
        self.wait_gone(found)
        self.agents.clear()
        return answer

    def dies_with_a_queue(self, p, address, count):
        """A server stands still, so many clients send their requests and queue, SIGKILL: they."""
        stop(p.pid)
        crowd = Clients(self.ns(HOST), address, PORT, count)
        crowd.wait_sent()
        self.wait_queued(count)
        self.stop(p, signal.SIGKILL)
        return crowd

    def log(self):
        """The end of what servers, ferry and agent have said."""
        text = ""
        for path in (os.path.join(self.dir, "log"), f"{self.path}.log"):
            try:
                with open(path, errors="replace") as f:
                    text += f.read()[-2000:]
            except OSError:
                continue
        return text

    # states to wait for

    def wait_member(self, pid, port=PORT, addresses=1, members=1):
        """The server's listeners are members; the guards of its port."""
        def there():
            rows = [g for g in self.guards(port, check=False)
                    if sum(m["pid"] == pid for m in g["members"]) == members]
            return rows if len(rows) == addresses else None

        try:
            return wait_for(f"process {pid} to be guarded", there, 15, 0.02)
        except Failure as e:
            raise Failure(f"{e}: {self.list(False)} | {self.log()}") from None

    def wait_listening(self, port=PORT, count=1, host=HOST):
        return wait_for(f"{count} listeners on port {port}",
                        lambda: len(self.queues(port, host)) >= count, 15, 0.01)

    def queues(self, port=PORT, host=HOST):
        """Un-accepted connections of each listener there, by the kernel."""
        out = self.at(host, "ss", "-Hltn", "sport", "=", f":{port}").stdout
        return [int(line.split()[1]) for line in out.splitlines()]

    def wait_queued(self, count, port=PORT, host=HOST):
        return wait_for(f"{count} connections to be queued",
                        lambda: sum(self.queues(port, host)) >= count, 20, 0.01)

    def wait_held(self, count, port=PORT):
        """The guard says that it holds so many, on all addresses."""
        try:
            wait_for(f"{count} connections to be held",
                     lambda: sum(g["held"] for g in self.guards(port)) >= count, 20, 0.02)
        except Failure as e:
            raise Failure(f"{e}: {self.list(False)} | {self.log()}") from None

    def kernel(self, *names):
        """The sum of these counters of the namespace's TCP."""
        rows = counters(*(self.at(HOST, "cat", f"/proc/net/{f}").stdout for f in ("snmp", "netstat")))
        found = {name.partition(".")[2]: n for name, n in rows.items()}
        return sum(found[n] for n in names)

    def aborted(self):
        """Connections that a process here has closed, or sent to after a close, with data unread:
        all of them had been accepted."""
        return self.kernel("TCPAbortOnClose", "TCPAbortOnData")

    def ended(self):
        """Why the kernel has ended connections here: by its counters, and by the guard's ledger. strays:
        of the whole machine, those whose handshake ended just as their listener began to close; nobody
        is asked about these."""
        rows = [x["ledger"] for x in self.guards()]
        found = {name: self.kernel(name) for name in WHY_ENDED}
        found.update({k: sum(r[k] for r in rows) for k in ("lost", "unexplained")})
        return {**found, "strays": rows[0]["strays"]}

    def ends(self, port=PORT):
        """A capture of how the port's connections begin and end."""
        return Capture(self, HOST, "lo", f"(ip and tcp port {port} and tcp[13] & 7 != 0) or "
                       f"(ip6 and tcp port {port} and ip6[53] & 7 != 0)")

    # what is attached

    def objects(self):
        """The kernel's numbers of all programs, maps and links that agent and keeper have."""
        answer = self.list()
        found = {kind: set() for kind in KINDS}
        for pid in (answer["agent"], answer["keeper"]):
            for n in os.listdir(f"/proc/{pid}/fdinfo"):
                try:
                    with open(f"/proc/{pid}/fdinfo/{n}") as f:
                        text = f.read()
                except OSError:
                    continue
                for kind, key in KINDS.items():
                    found[kind] |= {int(v) for v in re.findall(rf"^{key}:\s+(\d+)$", text, re.M)}
        for p in show("prog"):
            if p["id"] in found["prog"]:
                found["map"] |= set(p.get("map_ids", []))
        return found

    def descriptors(self):
        """How many agent and keeper have."""
        answer = self.list()
        return [len(os.listdir(f"/proc/{answer[k]}/fd")) for k in ("agent", "keeper")]

    def wait_gone(self, found):
        """Processes and objects are gone: the kernel frees some of them a little later."""
        wait_for("agent and keeper to end", lambda: not any(map(alive, self.agents)), 10, 0.02)
        wait_for("the kernel to free all", lambda: not any(left(found).values()), 10, 0.05)

    def close(self):
        try:
            self.end()
        finally:
            super().close()

    def end(self):
        """Everything off; where that does not work, agent and keeper in one moment."""
        for p in self.processes:
            if p.poll() is None and state(p.pid) == "T":
                p.send_signal(signal.SIGCONT)
        if os.path.exists(self.path):
            try:
                self.list()
                self.ferry("off", "--force", check=False)
                wait_for("agent and keeper to end", lambda: not any(map(alive, self.agents)), 5)
            except (Failure, subprocess.TimeoutExpired) as e:
                print(f"off at the end: {e}", flush=True)
        kill_both(mine(self.path))


def kill_both(pids):
    """Agent and keeper in one moment: neither starts the other again."""
    for sig in (signal.SIGSTOP, signal.SIGKILL):
        for pid in filter(alive, pids):
            os.kill(pid, sig)


def reset_at_once(capture, port=PORT):
    """How many connections the port's server has reset without closing them before: it had not read
    what came (TCPAbortOnClose), or had not accepted them. After its FIN it has no socket any more."""
    last = [None]
    # on lo each packet is received twice and captured once: it is at rest when nothing more comes
    wait_for("the capture to come to rest",
             lambda: last.append(capture.counts()[0]) or last[-1] == last[-2], every=0.1)
    capture.stop(running=True)
    closed, found = set(), 0
    for p in capture.packets():
        client = (p.dst, p.dport) if p.sport == port else (p.src, p.sport)
        if p.flags & SYN:
            closed.discard(client)
        elif p.sport == port and p.flags & RST and client not in closed:
            found += 1
        if p.sport == port and p.flags & (FIN | RST):
            closed.add(client)
    return found


def mine(path):
    """Agents and keepers of that socket."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"ferry-guard") and path.encode() in words:
            found.append(int(pid))
    return found


def show(kind):
    """bpftool gives up where something of another test's goes while it lists: asked again."""
    def listed():
        p = run("bpftool", "-j", kind, "list", check=False)
        return None if p.returncode else p

    return json.loads(wait_for(f"bpftool to list each {kind}", listed).stdout or "[]")


def left(found):
    return {k: sorted(found[k] & {o["id"] for o in show(k)}) for k in KINDS}


def on_guard(test):
    """test(guard) in a namespace that is taken away whatever happens."""
    guard = Guard()
    try:
        return test(guard.up())
    finally:
        guard.close()
