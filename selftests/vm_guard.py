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
 5. a unit (busybox httpd) is guarded by its name: a dry run says by what, a name that no unit has is
    told so; it stands still with eight clients, `systemctl restart`: all are answered; control:
    before it is guarded none is
 6. systemd-socket-proxyd, whose socket is a .socket unit's, is refused with the reason, which is
    true: it stands still with eight clients, `systemctl restart`: all are answered
 7. control: the same as 3 without the store (FileDescriptorStoreMax=0): none of the eight is held
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
WEB = {4: "http://127.0.0.1:8081/", 6: "http://[::1]:8081/"}
PROXY = {4: "http://127.0.0.1:8082/", 6: "http://[::1]:8082/"}
PROXYD = "/lib/systemd/systemd-socket-proxyd 127.0.0.1:8081"
UNITS = {"web.service": "[Service]\nExecStart=/usr/bin/busybox httpd -f -p 8081 -h /srv\n",
         "proxy.socket": "[Socket]\nListenStream=8082\n",
         "proxy.service": f"[Service]\nExecStart={PROXYD}\n"}
# until a command says what is wanted; its last words in any case
WAIT = """
until_says() { for i in $(seq 60); do "$@" >/run/said 2>&1; grep -q "$want" /run/said && return 0
sleep 0.1; done; cat /run/said; return 1; }
guard() { ferry --socket /run/ferry/guard.sock guard "$@"; }
pid() { systemctl show -p MainPID --value ${1:-ferry-guard}; }
"""


def files():
    with open(f"{ROOT}/tools/systemd/{UNIT}", encoding="ascii") as f:
        unit = f.read()
    without = unit.replace("FileDescriptorStoreMax=8256", "FileDescriptorStoreMax=0")
    return {"/usr/local/sbin/ferry-guard": f"{BUILD}/ferry-guard", "/usr/bin/ferry": f"{BUILD}/ferry",
            "/usr/bin/busybox": "/bin/busybox", "/srv/index.html": b"file\n",
            "/etc/ferry/guard.conf": b"[guard web]\nport = 8080\nprogram = /usr/bin/busybox\n",
            f"/etc/systemd/system/{UNIT}": unit.encode(), "/without": without.encode(),
            **{f"/etc/systemd/system/{name}": text.encode() for name, text in UNITS.items()}}


def held(guest):
    return sum(map(int, re.findall(r"(\d+) held", guest.sh(f"{WAIT} guard list"))))


def until(guest, want, *command):
    guest.sh(f"{WAIT} want='{want}'; until_says {' '.join(command)}", 90)


def clients(guest, url):
    """Eight, each with its exit code when it ends."""
    guest.sh("rm -f /run/answers /run/ended; : >/run/answers")
    guest.sh(f"for i in $(seq {QUEUED}); do (timeout 60 busybox wget -q -O - {url} >>/run/answers "
             "2>>/run/said; echo $? >>/run/ended) & done")


def answered(guest):
    """How many, once all have ended."""
    until(guest, f"^{QUEUED}$", "grep -c . /run/ended")
    return int(guest.sh("grep -c file /run/answers", check=False)[1])


def queue(guest, url):
    """A server that stands still, with eight clients; killed."""
    guest.sh(f"{HTTPD} >/dev/null 2>&1 & echo $! >/run/httpd")
    until(guest, "busybox (pid", "guard", "list")
    guest.sh("kill -STOP $(cat /run/httpd)")
    clients(guest, url)
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
    count = answered(guest)
    guest.sh("kill $(cat /run/httpd)")
    return {"held": steps, "answered": count}


def restarted(guest, unit, url):
    """A unit stands still, with eight clients in its queue; restarted: how many are answered."""
    port = url.rsplit(":", 1)[1].strip("/")
    guest.sh(f"{WAIT} kill -STOP $(pid {unit})")
    clients(guest, url)
    until(guest, f"^LISTEN {QUEUED} ", "sh -c", f"\"ss -Hltn sport = :{port} | tr -s ' '\"")
    guest.sh(f"systemctl restart {unit}")
    return answered(guest)


def ask(guest, *words):
    """A `ferry guard`: exit code, and what it said."""
    return guest.sh(f"{WAIT} guard {' '.join(words)}", check=False)


def by_name(guest):
    guest.sh("systemctl start web")
    found = {"control": [restarted(guest, "web", url) for url in WEB.values()],
             "none": ask(guest, "--unit", "nothing"),
             "dry": ask(guest, "--dry-run", "--unit", "web")}
    found["dry_changed"] = guest.sh(f"{WAIT} guard list").count("8081")
    guest.sh(f"{WAIT} guard --unit web")
    for family, url in WEB.items():
        found[f"v{family}"] = restarted(guest, "web", url)
        until(guest, "^running .*8081", "guard", "list")
    return found


def activated(guest):
    guest.sh("systemctl start proxy.socket")
    for url in PROXY.values():  # the first one starts it
        guest.sh(f"busybox wget -q -O - {url}")
    found = {"refused": ask(guest, "--unit", "proxy")}
    found["guarded"] = guest.sh(f"{WAIT} guard list").count("8082")
    return {**found, **{f"v{f}": restarted(guest, "proxy", url) for f, url in PROXY.items()}}


def control(guest):
    """What is held by an agent that nobody has kept anything for."""
    guest.sh(f"systemctl stop ferry-guard; cp /without /etc/systemd/system/{UNIT}; "
             "systemctl daemon-reload; systemctl start ferry-guard", 60)
    queue(guest, URL[4])
    until(guest, f" {QUEUED} held", "guard", "list")
    guest.sh(f"{WAIT} kill -9 $(pid)")
    until(guest, "waiting", "guard", "list")
    return held(guest)


def named(guest):
    """What is wrong with it, and all of it."""
    unit, proxy = by_name(guest), activated(guest)
    guest.sh(f"{WAIT} guard off --port 8081")
    none, dry, refused = unit["none"], unit["dry"], proxy["refused"]
    checks = {
        "control": unit["control"] == [0, 0],
        "none": none[0] == 3 and "no process is of the unit nothing: " in none[1],
        "dry": dry[0] == 0 and "two holders as uid 0 at [::]:8081" in dry[1] and
        not unit["dry_changed"],
        "unit": unit["v4"] == unit["v6"] == QUEUED,
        "refused": refused[0] == 1 and "systemd has its socket" in refused[1] and
        not proxy["guarded"],
        "proxy": proxy["v4"] == proxy["v6"] == QUEUED}
    return [k for k, ok in checks.items() if not ok], {"unit": unit, "proxy": proxy}


def guarded(guest):
    guest.up()
    # it runs before ferry-guard does
    guest.sh(f"{HTTPD} >/dev/null 2>&1 & echo $! >/run/httpd; systemctl start ferry-guard", 60)
    until(guest, "busybox (pid", "guard", "list")
    guest.sh("kill $(cat /run/httpd)")
    until(guest, "^holding", "guard", "list")
    rows = {f"v{f}": family(guest, url) for f, url in URL.items()}
    wrong, units = named(guest)
    without = control(guest)
    return {"ok": all(r == {"held": [QUEUED] * 4, "answered": QUEUED} for r in rows.values()) and
            not wrong and without == 0 and not guest.splats(), "wrong": wrong, **rows, **units,
            "unit_answered": units["unit"]["v4"] + units["unit"]["v6"],
            "unit_control_answered": sum(units["unit"]["control"]),
            "control_held": without, "splats": guest.splats()}


def main():
    run(os.path.join(ROOT, "tools/deps"), "vm", timeout=600)
    with tempfile.TemporaryDirectory(prefix=f"ferry-f{os.getpid()}-") as folder:
        guest = Guest(f"f{os.getpid()}guard", "6.1", folder, files(), systemd=True)
        try:
            return guarded(guest)
        finally:
            guest.close()
