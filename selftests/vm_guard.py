# SPDX-License-Identifier: BSD-2-Clause
"""
systemd's fd store keeps what a guard holds, in a virtual machine where systemd is pid 1.

Steps, by the unit of tools/systemd, over IPv4 and IPv6:
 1. guard.conf names a port; a server (busybox httpd) that runs already is guarded from the start of
    ferry-guard on
 2. eight clients queue at the server, which is killed: they are held
 3. ferry-guard is killed: systemd starts it again, and it holds the eight; then it is restarted by
    systemctl, and holds them still; and so it does when its configuration has become wrong meanwhile
 4. the server is started again, and answers all of them
 5. control: the same without the store (FileDescriptorStoreMax=0): none of the eight is held afterwards
"""
import os
import re
import tempfile

from net import BUILD, ROOT, run
from vm import Guest

QUEUED = 8
UNIT = "ferry-guard.service"
HTTPD = "/usr/bin/busybox httpd -f -p 8080 -h /srv"
URL = {4: "http://127.0.0.1:8080/", 6: "http://[::1]:8080/"}
# until a command says what is wanted; its last words in any case
WAIT = """
until_says() { for i in $(seq 60); do "$@" >/run/said 2>&1; grep -q "$want" /run/said && return 0
sleep 0.1; done; cat /run/said; return 1; }
guard() { ferry --socket /run/ferry/guard.sock guard "$@"; }
pid() { systemctl show -p MainPID --value ferry-guard; }
"""


def files():
    with open(f"{ROOT}/tools/systemd/{UNIT}", encoding="ascii") as f:
        unit = f.read()
    without = unit.replace("FileDescriptorStoreMax=4096", "FileDescriptorStoreMax=0")
    return {"/usr/local/sbin/ferry-guard": f"{BUILD}/ferry-guard", "/usr/bin/ferry": f"{BUILD}/ferry",
            "/usr/bin/busybox": "/bin/busybox", "/srv/index.html": b"file\n",
            "/etc/ferry/guard.conf": b"[guard web]\nport = 8080\nprogram = /usr/bin/busybox\n",
            f"/etc/systemd/system/{UNIT}": unit.encode(), "/without": without.encode()}


def held(guest):
    return sum(map(int, re.findall(r"(\d+) held", guest.sh(f"{WAIT} guard list"))))


def until(guest, want, *command):
    guest.sh(f"{WAIT} want='{want}'; until_says {' '.join(command)}", 90)


def queue(guest, url):
    """A server that stands still, with eight clients; killed."""
    guest.sh("rm -f /run/answers")
    guest.sh(f"{HTTPD} >/dev/null 2>&1 & echo $! >/run/httpd")
    until(guest, "busybox (pid", "guard", "list")
    guest.sh("kill -STOP $(cat /run/httpd)")
    guest.sh(f"for i in $(seq {QUEUED}); do timeout 60 busybox wget -q -O - {url} >>/run/answers "
             "2>>/run/said & done")
    until(guest, f" {QUEUED} queued", "guard", "list")
    guest.sh("kill -9 $(cat /run/httpd)")


def family(guest, url):
    """How many are held after each step, and how many are answered."""
    queue(guest, url)
    until(guest, f" {QUEUED} held", "guard", "list")
    steps = [held(guest)]
    for how in ("kill -9 $(pid)", "systemctl restart ferry-guard",
                "echo nonsense >>/etc/ferry/guard.conf; systemctl restart ferry-guard"):
        before = guest.sh(f"{WAIT} pid").strip()
        guest.sh(f"{WAIT} {how}")
        until(guest, "^active [^0]", f"sh -c 'echo $(systemctl show -p ActiveState --value ferry-guard) "
              f"$(systemctl show -p MainPID --value ferry-guard | grep -v ^{before}$)'")
        until(guest, "held", "guard", "list")
        steps.append(held(guest))
    guest.sh("sed -i /nonsense/d /etc/ferry/guard.conf")
    guest.sh(f"{HTTPD} >/dev/null 2>&1 & echo $! >/run/httpd")
    until(guest, f"^{QUEUED}$", "grep -c file /run/answers")
    guest.sh("kill $(cat /run/httpd)")
    return {"held": steps, "answered": int(guest.sh("grep -c file /run/answers"))}


def control(guest):
    """What is held by an agent that nobody has kept anything for."""
    guest.sh(f"systemctl stop ferry-guard; cp /without /etc/systemd/system/{UNIT}; "
             "systemctl daemon-reload; systemctl start ferry-guard", 60)
    queue(guest, URL[4])
    until(guest, f" {QUEUED} held", "guard", "list")
    guest.sh(f"{WAIT} kill -9 $(pid)")
    until(guest, "waiting", "guard", "list")
    return held(guest)


def guarded(guest):
    guest.up()
    # it runs before ferry-guard does
    guest.sh(f"{HTTPD} >/dev/null 2>&1 & echo $! >/run/httpd; systemctl start ferry-guard", 60)
    until(guest, "busybox (pid", "guard", "list")
    guest.sh("kill $(cat /run/httpd)")
    until(guest, "^holding", "guard", "list")
    rows = {f"v{f}": family(guest, url) for f, url in URL.items()}
    without = control(guest)
    return {"ok": all(r == {"held": [QUEUED] * 4, "answered": QUEUED} for r in rows.values()) and
            without == 0 and not guest.splats(), **rows, "control_held": without,
            "splats": guest.splats()}


def main():
    run(os.path.join(ROOT, "tools/deps"), "vm", timeout=600)
    with tempfile.TemporaryDirectory(prefix=f"ferry-f{os.getpid()}-") as folder:
        guest = Guest(f"f{os.getpid()}guard", "6.1", folder, files(), systemd=True)
        try:
            return guarded(guest)
        finally:
            guest.close()
