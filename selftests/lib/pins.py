# SPDX-License-Identifier: BSD-2-Clause
"""A node's unit words, read as the datapath reads them: fast enough to act inside a freeze."""
import ctypes
import mmap
import os
import struct

SYS_BPF = 321  # x86-64
BPF_PROG_LOAD, BPF_OBJ_PIN, BPF_OBJ_GET = 5, 6, 7
BPF_PROG_TYPE_XDP = 6
STATES = ("free", "local", "fenced", "prepared", "opening", "remote", "gone")


def obj_get(path):
    name = ctypes.create_string_buffer(path.encode())
    return bpf(BPF_OBJ_GET, struct.pack("<QII", ctypes.addressof(name), 0, 0), 16)


def ids(path):
    """The kernel's numbers of what is pinned there: {"map_id": n}, or {"link_id": n, "prog_id": n}."""
    fd = obj_get(path)
    try:
        with open(f"/proc/self/fdinfo/{fd}") as f:
            rows = dict(line.split(":", 1) for line in f.read().splitlines() if ":" in line)
    finally:
        os.close(fd)
    return {k: int(v) for k, v in rows.items() if k in ("map_id", "link_id", "prog_id")}


def bpf(command, attr, size):
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(SYS_BPF, command, ctypes.create_string_buffer(attr, size), size)
    if fd < 0:
        raise OSError(ctypes.get_errno(), f"bpf command {command}")
    return fd


def pin_xdp(path):
    """An XDP program that is not ferry's, which passes everything: r0 = XDP_PASS; exit."""
    insns = ctypes.create_string_buffer(struct.pack("<BBhiBBhi", 0xb7, 0, 0, 2, 0x95, 0, 0, 0), 16)
    licence = ctypes.create_string_buffer(b"GPL")
    fd = bpf(BPF_PROG_LOAD, struct.pack("<IIQQ", BPF_PROG_TYPE_XDP, 2, ctypes.addressof(insns),
                                        ctypes.addressof(licence)), 128)
    name = ctypes.create_string_buffer(path.encode())
    bpf(BPF_OBJ_PIN, struct.pack("<QII", ctypes.addressof(name), fd, 0), 16)
    os.close(fd)


class Words:
    def __init__(self, node, units=1024):
        fd = obj_get(f"/sys/fs/bpf/ferry/{node}/words")
        self.memory = mmap.mmap(fd, units * 8, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(fd)

    def state(self, index):
        word = struct.unpack_from("<Q", self.memory, index * 8)[0]
        return STATES[word >> 28 & 15]

    def close(self):
        self.memory.close()
