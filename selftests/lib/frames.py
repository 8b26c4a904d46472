# SPDX-License-Identifier: BSD-2-Clause
"""
Frames between agents as octets (docs/WIRE.md), made by hand: what a peer of another make, or a
hostile one, would send.
"""
import ipaddress
import struct

HELLO, PREFLIGHT, READY, PREPARE, PREPARED, FLIPPED, DONE, ABORT, REFUSED, QUERY = range(1, 11)
LEARN, FORGET, KNOWS = range(11, 14)
BYE = 0x8000
MAGIC = 0x59525246
BODY_MAX, TRAILER_MAX = 4 << 20, 512 << 20


def frame(kind, body=b"", trailer=b"", version=1, magic=MAGIC, body_size=None, trailer_size=None):
    """Sizes: what the header says, where it lies."""
    return struct.pack("<IHHII", magic, version, kind,
                       len(body) if body_size is None else body_size,
                       len(trailer) if trailer_size is None else trailer_size) + body + trailer


def kind(octets):
    """Of the frame that begins here."""
    return struct.unpack_from("<H", octets, 6)[0]


def size(octets):
    return 16 + sum(struct.unpack_from("<II", octets, 8))


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def message(fields):
    """[(number, int, octets, or a list of fields)], as protobuf encodes them."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = message(value) if isinstance(value, list) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def hello(number, version=1, oldest=1, boot=bytes(range(16)), features=0):
    return frame(HELLO, message([(1, version), (2, number), (3, boot), (4, features), (5, oldest)]))


def address(text):
    a = ipaddress.ip_address(text)
    return a.packed if a.version == 6 else b"\0" * 10 + b"\xff\xff" + a.packed


def flow(remote, remote_port, local, local_port, protocol=6):
    return [(1, protocol), (2, address(remote)), (3, address(local)), (4, remote_port),
            (5, local_port)]


def socket(tuple_of, inq=0, outq=0, v6=0, more=()):
    return [(1, flow(*tuple_of)), (2, b"tcp"), (3, v6), (4, 1), (5, 1000), (6, 2000), (7, inq),
            (8, outq), (10, 1460), *more]


def move(kind, uuid=b"u" * 16, move_id=b"m" * 16, epoch=2, app=b"probe", sockets=(), trailer=b"",
         **lies):
    body = message([(1, uuid), (2, move_id), (3, epoch), (4, app), (5, 1500),
                    *((6, s) for s in sockets)])
    return frame(kind, body, trailer, **lies)
