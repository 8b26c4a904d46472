# SPDX-License-Identifier: BSD-2-Clause
"""
Other kernels: Debian's, taken from their packages and not installed, in virtual machines that qemu
emulates. A guest is a kernel, an initramfs of busybox, ours and what it links, and a shell at the
end of a serial line. One boot serves many commands; a guest has a lifetime, after which it is ended.

What is expensive is kept under build/vm: packages, kernels taken out of their images, modules.
"""
import lzma
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

from net import BUILD, ROOT, Failure, run, wait_for

STORE = os.path.join(BUILD, "vm")
# A row a kernel: what it is called here, and the packages it is in; the newest is taken.
KERNELS = {"6.1": r"linux-image-6\.1\.0-[0-9]+-cloud-amd64",
           "6.12": r"linux-image-6\.12\.[0-9]+[+]deb12-cloud-amd64"}
MODULES = ("virtio_pci", "virtio_net", "veth", "tun", "bridge", "tcp_diag", "udp_diag", "cls_bpf",
           "sch_ingress", "geneve", "8021q", "sch_netem", "tls", "nf_tables", "tcp_bbr")
MAGIC = ((b"\x28\xb5\x2f\xfd", ["zstd", "-dcq"]), (b"\x02\x21\x4c\x18", ["lz4", "-dcq"]),
         (b"\x1f\x8b", ["gzip", "-dcq"]), (b"\xfd7zXZ\0", ["xz", "-dcq"]))
SPLATS = re.compile(r"WARNING: |BUG: |Oops|kernel BUG|Call Trace:|refcount_t: |hung_task|"
                    r"unregister_netdevice: waiting|KASAN|soft lockup|rcu: INFO|Kernel panic")
END = re.compile(rb"<<rc=(\d+)>>\r?\n$")
MEMORY = "512"  # MiB
LIFETIME = 600  # seconds

INIT = """#!/bin/busybox sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm /tmp /run/netns /sys/fs/bpf
mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf; mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -s /proc/self/fd /dev/fd
for module in $(cat /modules); do insmod "$module" || echo "insmod $module failed"; done
ip link set lo up
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
echo "<<rc=0>>" >&3
while read -r line <&3; do
	sh -c "$line" >/tmp/out 2>&1 </dev/null
	rc=$?
	cat /tmp/out >&3
	echo "<<rc=$rc>>" >&3
done
poweroff -f
"""


def package(name):
    """The newest package of a kernel, unpacked under STORE; its directory."""
    known = run("apt-cache", "search", "--names-only", f"^{KERNELS[name]}$").stdout.split("\n")
    names = sorted((line.split()[0] for line in known if line),
                   key=lambda n: [int(x) for x in re.findall(r"\d+", n)])
    if not names:
        raise Failure(f"no package like {KERNELS[name]}: are the package lists there (apt-get update)?")
    where = os.path.join(STORE, names[-1])
    if not os.path.isdir(where):
        fresh = where + f".{os.getpid()}"
        os.makedirs(fresh, exist_ok=True)
        p = subprocess.run(["apt-get", "download", "-q", names[-1]], cwd=fresh, capture_output=True,
                           text=True, timeout=300)
        debs = [f for f in os.listdir(fresh) if f.endswith(".deb")]
        if p.returncode or not debs:
            raise Failure(f"apt-get download {names[-1]}: {p.stderr}")
        run("dpkg", "-x", os.path.join(fresh, debs[0]), fresh, timeout=120)
        os.unlink(os.path.join(fresh, debs[0]))
        os.rename(fresh, where)
    return where


def vmlinux(where):
    """The kernel itself, out of its compressed image (Documentation/arch/x86/boot.rst)."""
    path = os.path.join(where, "vmlinux")
    if os.path.exists(path):
        return path
    boot = os.path.join(where, "boot")
    with open(os.path.join(boot, next(f for f in os.listdir(boot) if f.startswith("vmlinuz"))),
              "rb") as f:
        image = f.read()
    at, size = struct.unpack_from("<II", image, 0x248)
    at += ((image[0x1f1] or 4) + 1) * 512
    payload = image[at:at + size]
    argv = next(argv for magic, argv in MAGIC if payload.startswith(magic))
    # the last four octets are the size of what comes out
    out = subprocess.run(argv, input=payload[:-4], capture_output=True, timeout=120).stdout
    if not out.startswith(b"\x7fELF"):
        raise Failure(f"no kernel in the image of {where}")
    with open(path + ".new", "wb") as f:
        f.write(out)
    os.rename(path + ".new", path)
    return path


def modules(where):
    """Names and octets of the modules wanted, with what they need, in the order of loading."""
    base = os.path.join(where, "usr/lib/modules" if os.path.isdir(f"{where}/usr/lib/modules") else
                        "lib/modules")
    version = os.listdir(base)[0]
    dep = os.path.join(base, version, "modules.dep")
    if not os.path.exists(dep):
        run("depmod", "-b", os.path.dirname(os.path.dirname(base)), version, timeout=60)
    needs = {}
    with open(dep, encoding="ascii") as f:
        for line in f:
            module, _, rest = line.partition(":")
            needs[module] = rest.split()
    by_name = {os.path.basename(m).split(".")[0].replace("-", "_"): m for m in needs}
    order = []
    for name in MODULES:
        if name not in by_name:
            continue  # built in, or not of this kernel
        for m in [*reversed(needs[by_name[name]]), by_name[name]]:
            if m not in order:
                order.append(m)
    rows = []
    for m in order:
        with open(os.path.join(base, version, m), "rb") as f:
            data = f.read()
        rows.append((os.path.basename(m).split(".")[0] + ".ko",
                     lzma.decompress(data) if m.endswith(".xz") else data))
    return rows


def libraries(programs):
    """What the programs link, as the loader says."""
    found = set()
    for program in programs:
        for line in run("ldd", program, check=False).stdout.splitlines():
            found |= set(re.findall(r"(/\S+\.so\S*)", line))
    return found


def initramfs(where, path, files):
    """files: {path in the guest: path here, or octets}."""
    top = path + ".d"
    shutil.rmtree(top, ignore_errors=True)
    for d in ("bin", "sbin", "dev", "proc", "sys", "root", "lib64", "usr/bin", "usr/sbin", "etc"):
        os.makedirs(os.path.join(top, d))
    kos = modules(where)
    files = {"/bin/busybox": "/bin/busybox", "/init": INIT.encode(),
             "/modules": "".join(f"/lib/modules/{name}\n" for name, _ in kos).encode(),
             "/etc/passwd": b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
             "/etc/group": b"root:x:0:\nnogroup:x:65534:\n",
             **{f"/lib/modules/{name}": data for name, data in kos}, **files}
    for lib in libraries([f for f in files.values() if isinstance(f, str) and os.access(f, os.X_OK)]):
        files[lib] = os.path.realpath(lib)
    for name, what in files.items():
        to = top + name
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if isinstance(what, bytes):
            with open(to, "wb") as f:
                f.write(what)
            os.chmod(to, 0o755)
        else:
            shutil.copy(what, to)
    with open(path, "wb") as f:
        names = subprocess.run(["find", ".", "-print0"], cwd=top, capture_output=True).stdout
        subprocess.run(["cpio", "--null", "-o", "-H", "newc", "--quiet"], cwd=top, input=names,
                       stdout=f, check=True)
    shutil.rmtree(top)


class Guest:
    """taps: devices of the namespace that qemu is started in (prefix: the words for that)."""

    def __init__(self, name, kernel, folder, files, taps=(), prefix=()):
        self.name, self.folder = name, folder
        self.console = os.path.join(folder, f"{name}.console")
        self.control = os.path.join(folder, f"{name}.control")
        where = package(kernel)
        initrd = os.path.join(folder, f"{name}.initrd")
        initramfs(where, initrd, files)
        net = [word for i, tap in enumerate(taps) for word in
               ("-netdev", f"tap,id=n{i},ifname={tap},script=no,downscript=no", "-device",
                # native XDP takes none of the host's offloads (drivers/net/virtio_net.c)
                f"virtio-net-pci,netdev=n{i},mac=52:54:00:{sum(name.encode()) % 256:02x}:00:{i:02x},"
                "csum=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off")]
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [*prefix, "timeout", "-k", "5", str(LIFETIME), "qemu-system-x86_64", "-M", "q35", "-cpu",
             "max", "-m", MEMORY, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
             "-kernel", vmlinux(where), "-initrd", initrd, "-append",
             "console=ttyS0 panic=-1 quiet loglevel=6 net.ifnames=0 mitigations=off",
             "-serial", f"file:{self.console}", "-serial", f"unix:{self.control},server=on,wait=off",
             *net], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
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
        """A command of one line in the guest: its exit code and what it said."""
        self.line.sendall(command.encode() + b"\n")
        code, out = self.answer(seconds)
        if check and code:
            raise Failure(f"guest {self.name}: {command}: exit {code}: {out[-500:]}")
        return (code, out) if not check else out

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
