# SPDX-License-Identifier: BSD-2-Clause
"""
What virtual machines are made of, kept under build/vm because it is expensive: Debian's kernels,
taken from their packages and not installed, and a Debian whose pid 1 is systemd.
"""
import fcntl
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys

from net import BUILD, Failure, run

STORE = os.path.join(BUILD, "vm")
# A row a kernel: what it is called here, and the packages it is in; the newest is taken.
KERNELS = {"6.1": r"linux-image-6\.1\.0-[0-9]+-cloud-amd64",
           "6.12": r"linux-image-6\.12\.[0-9]+[+]deb12-cloud-amd64"}
# With a mistake that a later one has not; nothing else is tried there.
FAULTY = {"6.1.170": r"linux-image-6\.1\.0-47-cloud-amd64"}
MAGIC = ((b"\x28\xb5\x2f\xfd", ["zstd", "-dcq"]), (b"\x02\x21\x4c\x18", ["lz4", "-dcq"]),
         (b"\x1f\x8b", ["gzip", "-dcq"]), (b"\xfd7zXZ\0", ["xz", "-dcq"]))
# What ferry's programs link, beside systemd and what its tests type.
DEBIAN = ("systemd", "systemd-sysv", "dbus", "iproute2", "procps", "zlib1g", "libbpf1", "libcap2",
          "libsystemd0", "libinih1", "libjansson4", "libmnl0", "libprotobuf-c1", "libssl3")


def lock():
    """Held while something is put under STORE: two runs may share it. Given back when closed."""
    os.makedirs(STORE, exist_ok=True)
    f = open(os.path.join(STORE, "lock"), "wb")
    fcntl.flock(f, fcntl.LOCK_EX)
    return f


def fetch(pattern):
    """The newest package that is known by such a name, unpacked under STORE; None: not to be had."""
    known = run("apt-cache", "search", "--names-only", f"^{pattern}$").stdout.split("\n")
    name = max((line.split()[0] for line in known if line), default=None,
               key=lambda n: [int(x) for x in re.findall(r"\d+", n)])
    if not name:
        return None
    where = os.path.join(STORE, name)
    if os.path.isdir(where):
        return where
    fresh = where + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    os.makedirs(fresh)
    p = subprocess.run(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", name], cwd=fresh,
                       capture_output=True, text=True, timeout=300)
    if p.returncode:
        print(f"apt-get download {name}: {p.stderr}", file=sys.stderr)
        return None
    deb = os.path.join(fresh, os.listdir(fresh)[0])
    run("dpkg", "-x", deb, fresh, timeout=120)
    os.unlink(deb)
    base = modules_of(fresh)
    run("depmod", "-b", os.path.dirname(os.path.dirname(os.path.dirname(base))),
        os.path.basename(base), timeout=60)
    vmlinux(fresh)
    os.rename(fresh, where)  # whole, or not there
    return where


def package(name):
    """The newest package of a kernel, unpacked; its directory."""
    pattern = (KERNELS | FAULTY)[name]
    with lock():
        where = fetch(pattern)
        if not where:  # the lists may be missing, or older than what is there
            run("apt-get", "-q", "update", timeout=120)
            where = fetch(pattern)
        if not where:
            raise Failure(f"no package like {pattern} to be had from apt")
        return where


def modules_of(where):
    """The directory of a kernel's modules."""
    base = os.path.join(where, "usr/lib/modules" if os.path.isdir(f"{where}/usr/lib/modules") else
                        "lib/modules")
    return os.path.join(base, os.listdir(base)[0])


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


def modules(where, wanted):
    """Names and octets of the modules wanted, with what they need, in the order of loading."""
    base = modules_of(where)
    needs = {}
    with open(os.path.join(base, "modules.dep"), encoding="ascii") as f:
        for line in f:
            module, _, rest = line.partition(":")
            needs[module] = rest.split()
    by_name = {os.path.basename(m).split(".")[0].replace("-", "_"): m for m in needs}
    order = []
    for name in wanted:
        if name not in by_name:
            continue  # built in, or not of this kernel
        for m in [*reversed(needs[by_name[name]]), by_name[name]]:
            if m not in order:
                order.append(m)
    rows = []
    for m in order:
        with open(os.path.join(base, m), "rb") as f:
            data = f.read()
        rows.append((os.path.basename(m).split(".")[0] + ".ko",
                     lzma.decompress(data) if m.endswith(".xz") else data))
    return rows


def debian():
    """The image of a disk: a small Debian 12 with systemd. Guests write to copies of it."""
    with lock():
        path = os.path.join(STORE, "debian.img")
        if os.path.exists(path):
            return path
        mirror = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
                     "Codename: bookworm").stdout.split("\n")[0]
        root = os.path.join(STORE, "debian")
        shutil.rmtree(root, ignore_errors=True)
        try:
            run("debootstrap", "--variant=minbase", f"--include={','.join(DEBIAN)}", "bookworm", root,
                mirror, timeout=400)
            for d in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man",
                      "usr/share/locale"):
                shutil.rmtree(os.path.join(root, d), ignore_errors=True)
            run("mke2fs", "-q", "-t", "ext4", "-d", root, path + ".new", "600M", timeout=120)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        os.rename(path + ".new", path)
        return path
