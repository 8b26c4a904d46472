#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Writes what fuzz_wire starts from into a directory: conversations, one a file."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "selftests", "lib"))
sys.dont_write_bytecode = True

import frames as f  # noqa: E402

V4 = ("198.51.100.7", 40000, "203.0.113.10", 443)
V6 = ("2001:db8:c::7", 40000, "2001:db8:0:1::10", 443)
UDP = ("198.51.100.7", 40000, "203.0.113.10", 444, 17)
DATAGRAM = [(1, f.address("198.51.100.7")), (2, 5000), (3, 4)]


def rows():
    two = [f.socket(V4), f.socket(V6, v6=1)]
    full = [f.socket(V4, inq=5, outq=7), f.socket(UDP, more=[(28, DATAGRAM)])]
    yield "preflight", f.move(f.PREFLIGHT, sockets=two)
    yield "prepare", f.move(f.PREFLIGHT, sockets=full) + f.move(f.PREPARE, sockets=full,
                                                               trailer=b"x" * 16)
    yield "unwanted", f.move(f.PREPARE, sockets=two, trailer=b"x" * 16) + f.move(f.FLIPPED)
    yield "ends", b"".join(f.move(k) for k in (f.READY, f.DONE, f.ABORT, f.QUERY, f.FORGET))
    yield "learn", f.frame(f.LEARN, f.message([(1, b"u" * 16), (2, b"m" * 16), (3, 4), (11, 2),
                                              (12, f.flow(*V4)), (12, f.flow(*V6))]))
    yield "knows", f.frame(f.KNOWS, f.message([(1, b"u" * 16), (2, b"m" * 16), (15, b"k" * 16),
                                              (15, b"l" * 16), (16, 1)]))
    yield "later", f.frame(0x9000, b"something") + f.move(f.DONE)
    yield "bye", f.frame(f.BYE, f.message([(1, b"version"), (2, b"why")]))


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, octets in rows():
        with open(os.path.join(sys.argv[1], name), "wb") as out:
            out.write(b"\x20" + f.hello(1) + octets)  # in pieces of 32


if __name__ == "__main__":
    main()
