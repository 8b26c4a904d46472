# SPDX-License-Identifier: BSD-2-Clause
"""A node's unit words, read as the datapath reads them: fast enough to act inside a freeze."""
import ctypes
import mmap
import os
import struct

SYS_BPF = 321  # x86-64
BPF_PROG_LOAD, BPF_OBJ_PIN, BPF_OBJ_GET, BPF_LINK_CREATE = 5, 6, 7, 28
BPF_PROG_TYPE_XDP, BPF_XDP, XDP_FLAGS_SKB_MODE = 6, 37, 2
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


def load_xdp(*code):
    """An XDP program; code: (opcode, destination | source << 4, offset, immediate) each."""
    packed = b"".join(struct.pack("<BBhi", *insn) for insn in code)
    insns = ctypes.create_string_buffer(packed, len(packed))
    licence = ctypes.create_string_buffer(b"GPL")
    return bpf(BPF_PROG_LOAD, struct.pack("<IIQQ", BPF_PROG_TYPE_XDP, len(code),
                                          ctypes.addressof(insns), ctypes.addressof(licence)), 128)


def pin_xdp(path):
    """An XDP program that is not ferry's, which passes everything: r0 = XDP_PASS; exit."""
    fd = load_xdp((0xb7, 0, 0, 2), (0x95, 0, 0, 0))
    name = ctypes.create_string_buffer(path.encode())
    bpf(BPF_OBJ_PIN, struct.pack("<QII", ctypes.addressof(name), fd, 0), 16)
    os.close(fd)


def link_xdp(program, index):
    """Attached to a device of this thread's namespace while the descriptor is open."""
    return bpf(BPF_LINK_CREATE, struct.pack("<IIII", program, index, BPF_XDP, XDP_FLAGS_SKB_MODE), 64)


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
