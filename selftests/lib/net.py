# SPDX-License-Identifier: BSD-2-Clause
"""
The topology that the end-to-end tests run on: four hosts and a switch, each a network namespace.

    client --- ingress --- switch --- node a
               (router)       \\------ node b

Every name carries the run's pid, so that two runs can share a machine. What is made is taken away
by close(), whatever happened in between. Nothing here knows what a move is.
"""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
VIP = {4: "203.0.113.10", 6: "2001:db8:0:1::10"}
CLIENT = {4: "198.51.100.7", 6: "2001:db8:c::7"}
GATEWAY = {4: "198.51.100.1", 6: "2001:db8:c::1"}
FABRIC = {"a": ("192.0.2.1", "2001:db8:f::1"), "b": ("192.0.2.2", "2001:db8:f::2"),
          "i": ("192.0.2.3", "2001:db8:f::3")}
NUMBER = {"a": 1, "b": 2, "i": 3}
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
FABRIC_MTU = 1600  # 1500 and the tunnel's 76 octets over IPv6


class Failure(Exception):
    """A step did not do what it must; the message says which and how."""


def run(*argv, check=True, timeout=30):
    p = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    if check and p.returncode:
        raise Failure(f"{' '.join(argv)}: exit {p.returncode}: {p.stderr.strip()}")
    return p


def wait_for(what, condition, seconds=10.0, every=0.005):
    """Waits for a state; condition returns something true once it is reached."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"timeout: {what}")
        time.sleep(every)


def enter(path):
    """The calling thread, and what it starts from here on, is in that network namespace."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(fd, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {path}")
    finally:
        os.close(fd)


def counters(*texts):
    """The kernel's counters, of /proc/net/snmp and netstat as they are: "Tcp.RetransSegs" and so on."""
    rows = {}
    for text in texts:
        lines = text.splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            prefix, *names = names.split()
            rows.update(zip((prefix.replace(":", ".") + n for n in names),
                            map(int, values.split()[1:])))
    return rows


class Net:
    def __init__(self, fabric_mtu=FABRIC_MTU):
        self.tag = f"f{os.getpid()}"
        # in memory where that is to be had: a client that waits for a disk measures the disk
        memory = "/dev/shm" if os.path.ismount("/dev/shm") else None
        self.dir = tempfile.mkdtemp(prefix=f"ferry-{self.tag}-", dir=memory)
        os.chmod(self.dir, 0o755)  # agents become users of their own
        self.processes = []
        self.spaces = []
        self.fabric_mtu = fabric_mtu
        self.bin = BUILD  # where programs are started from

    def ns(self, host):
        return f"{self.tag}{host}"

    def at(self, host, *argv, **kw):
        return run("nsenter", f"--net=/run/netns/{self.ns(host)}", *argv, **kw)

    def start(self, host, *argv, log=None, env=None, stdin=None, stdout=None):
        """A process in a host's namespace; its stderr goes to DIR/log."""
        err = open(os.path.join(self.dir, log or "log"), "ab")
        p = subprocess.Popen(["nsenter", f"--net=/run/netns/{self.ns(host)}", *argv],
                             stdin=stdin or subprocess.DEVNULL, stdout=stdout or err, stderr=err,
                             env={**os.environ, **(env or {})})
        err.close()
        self.processes.append(p)
        return p

    def stop(self, p, sig=signal.SIGTERM, seconds=10):
        """Ends a process that was started here; its exit code."""
        if p.poll() is None:
            p.send_signal(sig)
            try:
                p.wait(seconds)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        if p in self.processes:
            self.processes.remove(p)
        return p.returncode

    def add(self, host):
        run("ip", "netns", "add", self.ns(host))
        self.spaces.append(host)
        self.at(host, "ip", "link", "set", "lo", "up")
        for key in ("net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
                    "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0",
                    "net.ipv6.conf.default.accept_ra=0"):
            self.at(host, "sysctl", "-qw", key)

    def link(self, one, one_name, other, other_name, mtu):
        run("ip", "link", "add", one_name, "netns", self.ns(one), "type", "veth", "peer", "name",
            other_name, "netns", self.ns(other))
        for host, name in ((one, one_name), (other, other_name)):
            self.at(host, "ip", "link", "set", name, "mtu", str(mtu), "up")
            # an XDP redirect or XDP_TX vanishes where the receiving end has no NAPI
            self.at(host, "ethtool", "-K", name, "gro", "on")

    def address(self, host, device, v4, v6, bits4="24", bits6="64"):
        self.at(host, "ip", "addr", "add", f"{v4}/{bits4}", "dev", device)
        self.at(host, "ip", "-6", "addr", "add", f"{v6}/{bits6}", "dev", device, "nodad")

    def build(self):
        self.add("s")
        self.at("s", "ip", "link", "add", "br0", "type", "bridge")
        self.at("s", "ip", "link", "set", "br0", "mtu", str(self.fabric_mtu), "up")
        for host in ("i", "a", "b"):
            self.join(host)
        self.add("c")
        self.link("c", "eth0", "i", "eth0", 1500)
        # frames that leave XDP have lost the mark of a checksum still to be computed
        self.at("c", "ethtool", "-K", "eth0", "tx", "off")
        self.address("c", "eth0", CLIENT[4], CLIENT[6])
        self.address("i", "eth0", GATEWAY[4], GATEWAY[6])
        self.at("i", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        self.at("c", "ip", "route", "add", "default", "via", GATEWAY[4])
        self.at("c", "ip", "-6", "route", "add", "default", "via", GATEWAY[6])
        return self

    def join(self, host):
        """Puts a host on the switch; a node sends to clients by way of the ingress."""
        self.add(host)
        device = "eth1" if host == "i" else "eth0"
        self.link(host, device, "s", f"to_{host}", self.fabric_mtu)
        self.at("s", "ip", "link", "set", f"to_{host}", "master", "br0")
        self.address(host, device, *FABRIC[host])
        if host != "i":
            self.at(host, "ip", "route", "add", "198.51.100.0/24", "via", FABRIC["i"][0])
            self.at(host, "ip", "-6", "route", "add", "2001:db8:c::/64", "via", FABRIC["i"][1])

    def delete(self, host):
        self.spaces.remove(host)
        run("ip", "netns", "del", self.ns(host), timeout=60)

    def received(self, device):
        """Packets that came into the switch by this port."""
        out = self.at("s", "ip", "-j", "-s", "link", "show", device).stdout
        return json.loads(out)[0]["stats64"]["rx"]["packets"]

    def close(self):
        for p in list(self.processes):
            self.stop(p)
        for host in list(self.spaces):
            try:
                self.delete(host)
            except (Failure, subprocess.TimeoutExpired) as e:
                print(f"cannot delete {self.ns(host)}: {e}", file=sys.stderr)
        shutil.rmtree(self.dir, ignore_errors=True)


def bpffs():
    """The pins' file system, mounted where it is not."""
    if not os.path.ismount("/sys/fs/bpf"):
        run("mount", "-t", "bpf", "bpf", "/sys/fs/bpf")
