# SPDX-License-Identifier: BSD-2-Clause
"""
claim.py SOCKET UUID LOCAL PORT REMOTE PORT: an unprivileged user's program, in a user and a network
namespace of its own, where it may give a socket any tuple: says RESUME for another's unit. Prints
what the agent answers: the message's type and text. It imports nothing of ours, which that user may
not be able to read.
"""
import array
import socket
import struct
import subprocess
import sys

# ferry/app.h
VERSION, HELLO, RESUME = 2, 1, 18
MESSAGE, SOCKET = struct.Struct("<HHIIiII16s32s"), struct.Struct("<HH16s")
TCP_REPAIR, OFF_NO_PROBE, NETLINK_SOCK_DIAG = 19, -1, 4


def forged(local, remote):
    v6 = ":" in local[0]
    for words in (("link", "set", "lo", "up"),
                  ("addr", "add", local[0] + ("/128" if v6 else "/32"), "dev", "lo",
                   *(("nodad",) if v6 else ())),
                  ("-6" if v6 else "-4", "route", "add", "default", "dev", "lo")):
        subprocess.run(("ip", *words), check=True)
    s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET)
    s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    s.bind(local)
    s.connect(remote)
    s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, OFF_NO_PROBE)
    return s


def main():
    path, uuid, local, lport, remote, rport = sys.argv[1:]
    s = forged((local, int(lport)), (remote, int(rport)))
    diag = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
    u = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    u.connect(path)
    u.settimeout(5)
    socket.send_fds(u, [MESSAGE.pack(HELLO, VERSION, 0, 0, 0, 0, 0, b"", b"claim")], [diag.fileno()])
    u.recv(8192)
    body = MESSAGE.pack(RESUME, VERSION, 1, 0, 0, 1, 0, bytes.fromhex(uuid.replace("-", "")), b"")
    u.sendmsg([body + SOCKET.pack(0, 0, b"")],
              [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
    m = MESSAGE.unpack(u.recv(8192))
    print(m[0], m[8].rstrip(b"\0").decode())


main()
