# SPDX-License-Identifier: BSD-2-Clause
"""
Other kernels: Debian's, taken from their packages and not installed, in virtual machines that qemu
emulates. A guest is a kernel, an initramfs of busybox, ours and what it links, and a shell at the
end of a serial line. One boot serves many commands; a guest has a lifetime, after which it is ended.
"""
import base64
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from net import Failure, run, wait_for
from vm_store import debian, modules, package, vmlinux

MODULES = ("virtio_pci", "virtio_net", "veth", "tun", "bridge", "tcp_diag", "udp_diag", "cls_bpf",
           "sch_ingress", "geneve", "8021q", "sch_netem", "tls", "nf_tables", "tcp_bbr")
DISK_MODULES = ("virtio_blk", "ext4")
SPLATS = re.compile(r"WARNING: |BUG: |Oops|kernel BUG|Call Trace:|refcount_t: |hung_task|"
                    r"unregister_netdevice: waiting|KASAN|soft lockup|rcu: INFO|Kernel panic")
END = re.compile(rb"<<rc=(\d+)>>\r?\n$")
MEMORY = "512"  # MiB
LIFETIME = 600  # seconds

INIT = """#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules); do insmod "$module" || echo "insmod $module failed"; done
if [ -e /dev/vda ]; then
	mount -t ext4 /dev/vda /mnt && cp -a /files/. /mnt/
	umount /proc /sys /dev
	exec switch_root /mnt /lib/systemd/systemd
fi
mkdir -p /dev/shm /tmp /run/netns /sys/fs/bpf
mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf; mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -s /proc/self/fd /dev/fd
ip link set lo up
# busybox's own shell takes its own ip before any other
exec dash /line
"""
# A command a line, in base64; after what it said, its exit code.
LINE = """#!/bin/dash
ln -sf dash /bin/sh
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
echo "<<rc=0>>" >&3
while read -r line <&3; do
	dash -c "$(echo "$line" | base64 -d)" >/tmp/out 2>&1 </dev/null 3>&-
	rc=$?
	cat /tmp/out >&3
	echo "<<rc=$rc>>" >&3
done
poweroff -f
"""
UNIT = """[Unit]
After=multi-user.target
[Service]
ExecStart=/bin/dash /line
KillMode=process
"""
KERNEL_LINE = "console=ttyS0 panic=-1 quiet loglevel=6 net.ifnames=0 mitigations=off"
# No udev: a getty would wait for its device.
SYSTEMD = " systemd.wants=line.service systemd.mask=serial-getty@ttyS0.service " \
    "systemd.mask=getty@tty1.service systemd.mask=apt-daily.timer systemd.mask=apt-daily-upgrade.timer"


def libraries(programs):
    """What the programs link, as the loader says."""
    found = set()
    for program in programs:
        for line in run("ldd", program, check=False).stdout.splitlines():
            found |= set(re.findall(r"(/\S+\.so\S*)", line))
    return found


def initramfs(where, path, files, disk):
    """files: {path in the guest: path here, or octets}; with a disk they are put on it."""
    top = path + ".d"
    shutil.rmtree(top, ignore_errors=True)
    for d in ("bin", "sbin", "dev", "proc", "sys", "mnt", "root", "lib64", "usr/bin", "usr/sbin",
              "etc", "files"):
        os.makedirs(os.path.join(top, d))
    kos = modules(where, MODULES + (DISK_MODULES if disk else ()))
    rows = {"/bin/busybox": "/bin/busybox", "/init": INIT.encode(),
            "/modules": "".join(f"/lib/modules/{name}\n" for name, _ in kos).encode(),
            **{f"/lib/modules/{name}": data for name, data in kos}}
    if disk:
        rows |= {"/files/line": LINE.encode(),
                 "/files/etc/systemd/system/line.service": UNIT.encode(),
                 **{f"/files{name}": what for name, what in files.items()}}
    else:
        rows |= {"/line": LINE.encode(), "/bin/dash": "/bin/dash",
                 "/etc/passwd": b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
                 "/etc/group": b"root:x:0:\nnogroup:x:65534:\n", **files}
        for lib in libraries(f for f in rows.values() if isinstance(f, str) and
                             os.access(f, os.X_OK)):
            rows[lib] = os.path.realpath(lib)
    for name, what in rows.items():
        to = top + name
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if isinstance(what, bytes):
            with open(to, "wb") as f:
                f.write(what)
            os.chmod(to, 0o755 if what.startswith(b"#!") else 0o644)
        else:
            shutil.copy(what, to)
    with open(path, "wb") as f:
        names = subprocess.run(["find", ".", "-print0"], cwd=top, capture_output=True).stdout
        subprocess.run(["cpio", "--null", "-o", "-H", "newc", "--quiet"], cwd=top, input=names,
                       stdout=f, check=True)
    shutil.rmtree(top)


class Guest:
    """
    taps: devices of the namespace that qemu is started in (prefix: the words for that).
    systemd: on a disk with Debian, systemd as pid 1; else busybox alone.
    """

    def __init__(self, name, kernel, folder, files, taps=(), prefix=(), systemd=False):
        self.name, self.folder = name, folder
        self.console = os.path.join(folder, f"{name}.console")
        self.control = os.path.join(folder, f"{name}.control")
        where = package(kernel)
        initrd = os.path.join(folder, f"{name}.initrd")
        initramfs(where, initrd, files, systemd)
        drive = ("-drive", f"file={debian()},format=raw,if=virtio,snapshot=on") if systemd else ()
        net = [word for i, tap in enumerate(taps) for word in
               ("-netdev", f"tap,id=n{i},ifname={tap},script=no,downscript=no", "-device",
                # native XDP takes none of the host's offloads (drivers/net/virtio_net.c)
                f"virtio-net-pci,netdev=n{i},mac=52:54:00:{sum(name.encode()) % 256:02x}:00:{i:02x},"
                "csum=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off")]
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            # ends with the test, however that ends, and in any case
            [*prefix, "setpriv", "--pdeathsig", "TERM", "timeout", "-k", "5", str(LIFETIME),
             "qemu-system-x86_64", "-M", "q35", "-cpu", "max", "-m", MEMORY, "-nodefaults",
             "-no-user-config", "-display", "none", "-no-reboot", "-kernel", vmlinux(where),
             "-initrd", initrd, "-append", KERNEL_LINE + (SYSTEMD if systemd else ""),
             "-serial", f"file:{self.console}", "-serial", f"unix:{self.control},server=on,wait=off",
             *net, *drive], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(os.path.join(folder, f"{name}.qemu"), "wb"))
        self.line = None

    def said(self):
        try:
            with open(self.console, encoding="utf-8", errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def alive(self):
        if self.process.poll() is not None:
            with open(os.path.join(self.folder, f"{self.name}.qemu")) as f:
                raise Failure(f"guest {self.name} ended: {f.read()[-300:]} {self.said()[-800:]}")
        return True

    def up(self, seconds=90):
        """Waits for its shell."""
        wait_for(f"guest {self.name}'s line", lambda: self.alive() and os.path.exists(self.control),
                 10)
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.connect(self.control)
        self.answer(seconds)
        self.boot_s = time.monotonic() - self.began
        return self

    def answer(self, seconds):
        end, data = time.monotonic() + seconds, b""
        self.line.settimeout(1)
        while not END.search(data):
            if time.monotonic() > end:
                raise Failure(f"guest {self.name} does not answer: {data[-300:]} {self.said()[-800:]}")
            try:
                data += self.line.recv(65536)
            except socket.timeout:
                self.alive()
        return int(END.search(data).group(1)), END.sub(b"", data).decode(errors="replace")

    def sh(self, command, seconds=60, check=True):
        """A command of the guest's shell: what it said, or without check its exit code and that."""
        self.line.sendall(base64.b64encode(command.encode()) + b"\n")
        code, out = self.answer(seconds)
        if check and code:
            raise Failure(f"guest {self.name}: {command}: exit {code}: {out[-500:]}")
        return (code, out) if not check else out

    def put(self, path, text):
        """Writes a file in the guest."""
        self.sh(f"cat >{path} <<'<<end>>'\n{text}\n<<end>>")

    def splats(self):
        """Lines of the kernel's log that it is not well."""
        return [line for line in self.said().splitlines() if SPLATS.search(line)]

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.line:
            self.line.close()
