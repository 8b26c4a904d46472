# SPDX-License-Identifier: BSD-2-Clause
"""
A `ferry watch` and what it says, and a server whose queues a test fills: forked here, so that it
has its listeners to itself. Both in the network namespace that the calling process is in.
"""
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess

from net import BUILD, Failure, wait_for

FERRY = f"{BUILD}/ferry"
PINS = "/sys/fs/bpf/ferry-witness"
SO_NETNS_COOKIE = 71
TCPI_UNACKED = 24  # of a listener: how many are queued
LINGER = struct.pack("ii", 1, 0)


def netns_cookie():
    with socket.socket() as s:
        return struct.unpack("Q", s.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8))[0]


class Watch:
    """`ferry -j watch`, from the moment on from which it counts."""

    def __init__(self, name, *words, before=(), env=None):
        self.name, self.rest = name, b""
        self.netns = netns_cookie()
        self.closes, self.clients, self.end = [], [], None
        self.process = subprocess.Popen([*before, FERRY, "-j", "watch", "--name", name, *words],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, **(env or {})})
        self.begun = None
        try:
            wait_for("ferry watch to watch", lambda: self.read() or self.begun)
        except Failure as e:
            self.process.kill()
            raise Failure(f"{e}: {self.process.communicate()}") from None

    def read(self):
        """Takes what it has said; returns nothing."""
        while select.select([self.process.stdout], [], [], 0)[0]:
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                break
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                self.take(json.loads(line))
        if self.process.poll() is not None and not self.begun:
            raise Failure(f"ferry watch has ended: {self.process.communicate()}")

    def take(self, o):
        kind = o["event"]
        if kind == "watching":
            self.begun = o
        elif kind == "end":
            self.end = o
        elif o["netns"] == self.netns:
            (self.closes if kind == "close" else self.clients).append(o)

    def wait_close(self, port, count=1):
        """The records of all closes of that port, once there are so many."""
        def there():
            self.read()
            rows = [c for c in self.closes if c["port"] == port]
            return rows if len(rows) >= count else None

        return wait_for(f"{count} closes of port {port} to be told", there)

    def reset_ports(self, port):
        """Ports of clients that were told as reset there."""
        return sorted(c["client_port"] for c in self.clients if c["port"] == port)

    def stop(self, sig=signal.SIGINT):
        """Its last words; exit code and stderr."""
        self.process.send_signal(sig)
        wait_for("ferry watch to end", lambda: self.read() or self.process.poll() is not None)
        self.read()
        return self.process.returncode, self.process.stderr.read().decode()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        forget(self.name)


def forget(name):
    shutil.rmtree(os.path.join(PINS, name), ignore_errors=True)


def show(name, *words):
    """Exit code, and what it says."""
    p = subprocess.run([FERRY, *words, "watch", "show", "--name", name], capture_output=True,
                       text=True, timeout=10)
    return p.returncode, json.loads(p.stdout) if "-j" in words else p.stdout + p.stderr


def listener(address, port, backlog=512):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind((address, port))
    s.listen(backlog)
    return s


def queued(s):
    info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return struct.unpack_from("I", info, TCPI_UNACKED)[0]


class Server:
    """A process with listeners, which does what it is told, a line of JSON each."""

    def __init__(self, addresses):
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            try:
                ours.close()
                serve(theirs.makefile("rw"), [listener(*a) for a in addresses])
            finally:
                os._exit(1)
        theirs.close()
        self.channel = ours.makefile("rw")
        ours.close()
        self.answer()

    def tell(self, *words):
        self.channel.write(json.dumps(words) + "\n")
        self.channel.flush()

    def answer(self):
        line = self.channel.readline()
        if not line:
            raise Failure(f"the server {self.pid} has ended")
        return json.loads(line)

    def ask(self, *words):
        self.tell(*words)
        return self.answer()

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        if self.pid:
            os.waitpid(self.pid, 0)
        self.pid = None
        self.channel.close()


def serve(channel, listeners):
    kept = []

    def accept(which, count, how):
        """Accepts, and ends that in one of the ways that are no loss of the listener's."""
        for _ in range(count):
            s, _ = listeners[which].accept()
            if how == "abort":
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
            if how == "left":
                s.recv(1)  # else its close would be an abort, as that of "unread" is
            if how == "keep":
                kept.append(s)
            else:
                s.close()

    def answer(which):
        """Accepts all that is queued, and writes to each; how many."""
        count = queued(listeners[which])
        for _ in range(count):
            s, _ = listeners[which].accept()
            try:
                s.send(b"y")
            except OSError:  # its client has gone
                pass
            s.close()
        return count

    def end(how):
        for s in listeners:
            if how == "shutdown":
                s.shutdown(socket.SHUT_RDWR)
            else:
                s.close()

    channel.write('"ready"\n')
    channel.flush()
    for line in channel:
        verb, *words = json.loads(line)
        said = (accept(*words) if verb == "accept" else answer(*words) if verb == "answer" else
                end(*words) if verb == "end" else [queued(s) for s in listeners])
        channel.write(json.dumps(said) + "\n")
        channel.flush()
    os._exit(0)
