# SPDX-License-Identifier: BSD-2-Clause
"""
What the kernel does with who waits in the queue of a listener that goes away, as it was published, and
in cases that were not: nothing of ferry takes part.

Steps, for each row of EXPERIMENTS, IPv4 and IPv6, net.ipv4.tcp_migrate_req off and on where there are
figures for it, each in a network namespace of its own:
 1. clients connect to listener A, and wait in its queue, or half-way into it: an XDP program takes
    what would end the handshake
 2. other listeners join its reuseport group, or cannot; A goes away
 3. those that are left accept and answer who comes, until each client has an answer or a reset
 4. the figures are the published ones, and those that the kernel's source says where none were
    published; the kernel's counters stand beside them
 5. control: where migration makes a difference, figures with it off are not taken for those with it on

How long it takes to recover is reported, and not compared: who comes first is.
"""
import ctypes
import errno
import itertools
import os
import socket
import threading
import time

from listeners import ESTABLISHED, PORT, SYN_RECV, Space, counted, queue, sysctl
from net import Net, wait_for
from wire import FIN, RST, Capture

FIRST_PORT = 41000
OTHER_USER = 64897
TCP_SAVE_SYN, TCP_SAVED_SYN = 27, 28
SUCCESS, FAILURE = "TCPMigrateReqSuccess", "TCPMigrateReqFailure"
OVERFLOWS, DROPS = "ListenOverflows", "ListenDrops"


def hold(s):
    """20 wait, B joins, A closes; resets and ends are told apart on the wire."""
    capture = Capture(s.net, s.host, "lo", "tcp", "in")
    a = s.listener()
    clients = s.held(20, a)
    b = s.listener()
    a.close()
    found, _ = s.fates(clients, [b])
    flags = [p.flags for p in capture.stop().packets() if p.sport == PORT]
    return {**found, "wire_rst": sum(bool(f & RST) for f in flags),
            "wire_fin": sum(bool(f & FIN) for f in flags)}


def alone(s, reuse=True):
    a = s.listener(reuse=reuse)
    clients = s.held(10, a)
    a.close()
    return s.fates(clients, [])[0]


def alone_plain(s):
    return alone(s, False)


def who(s, through_a):
    """Which of four listeners gets which of 8 source ports."""
    a = [s.listener()] if through_a else []
    clients = s.held(8, a[0], first=FIRST_PORT) if a else []
    others = [s.listener() for _ in range(4)]
    if a:
        a[0].close()
    else:
        clients = s.clients(8, first=FIRST_PORT)
    wait_for("8 to be queued", lambda: sum(queue(b)[0] for b in others) == 8)
    got = {}
    for i, b in enumerate(others):
        while (one := s.accept(b)):
            got[one[0]] = i
    s.close([*clients, *others])
    return [got[FIRST_PORT + i] for i in range(8)]


def chosen(s, through_a=True):
    one, two = who(s, through_a), who(s, through_a)
    with Space(s.net, s.family, s.migrate) as other:
        elsewhere = who(other, through_a)
    return {"same": sum(x == y for x, y in zip(one, two)), "otherwise_elsewhere": elsewhere != one,
            "spread": [one.count(i) for i in range(4)]}


def distributed(s):
    return chosen(s, False)


def small_target(s):
    a = s.listener()
    clients = s.held(20, a)
    b = s.listener(1)
    a.close()
    recv_q, send_q = queue(b)
    return {**s.fates(clients, [b])[0], "recv_q": recv_q, "send_q": send_q}


def overflow(s, abort=0):
    """12 clients of listen(1); after they have sent their second SYN, B joins and A closes."""
    sysctl("tcp_abort_on_overflow", abort)
    a = s.listener(1)
    clients = s.clients(12, wait=False)

    def dropped(count):
        wait_for(f"{count} SYNs to be dropped", lambda: counted()[DROPS] >= count, every=0.001)
        return counted()

    first, second = dropped(10), dropped(20)
    states = {"syn_recv": s.states(SYN_RECV), "established": s.states(ESTABLISHED)}
    early = {c.getsockname()[1] for c in clients if s.is_connected(c)}
    b = s.listener()
    began = time.monotonic()
    a.close()
    at_once = queue(b)[0]
    found, order = s.fates(clients, [b])
    return {**found, **states, "overflows_rise": second[OVERFLOWS] - first[OVERFLOWS],
            "drops_rise": second[DROPS] - first[DROPS], "at_once": at_once,
            "by_retransmission": len(order) - at_once, "queued_come_first":
            set(order[:at_once]) == early if at_once else not early & set(order),
            "recovery_ms": round((time.monotonic() - began) * 1000)}


def overflow_abort(s):
    return overflow(s, 1)


def strangers(s):
    """Who may not bind beside a listener of the group; control: who may."""
    libc = ctypes.CDLL(None)
    a = s.listener()
    answers = {}
    for what, reuse, user in (("without", False, 0), ("other_user", True, OTHER_USER),
                              ("same_user", True, 0)):
        libc.setfsuid(user)
        try:
            s.listener(reuse=reuse)
            answers[what] = "bound"
        except OSError as e:
            answers[what] = errno.errorcode[e.errno]
        finally:
            libc.setfsuid(0)
    a.close()
    return answers


def shut(s):
    a = s.listener()
    clients = s.held(10, a)
    b = s.listener()
    a.shutdown(socket.SHUT_RDWR)
    return s.fates(clients, [b])[0]


def halfway(s, by_timer):
    """8 handshakes without their last ACK. The request moves when its SYN-ACK is sent again, while no
    ACK can come; or when the ACK comes."""
    a = s.listener()
    block = s.no_acks()
    clients = s.clients(8)
    states = {"syn_recv": s.states(SYN_RECV), "queued": queue(a)[0]}
    b = s.listener()
    a.close()
    if by_timer and s.migrate:
        wait_for("the timer to move them", lambda: counted()[SUCCESS] + counted()[FAILURE] >= 8)
    elif by_timer:
        wait_for("the timer to end them", lambda: s.states(SYN_RECV) == 0)
    states["syn_recv_then"] = s.states(SYN_RECV)
    os.close(block)
    for c in clients:
        c.send(b"!")
    return {**s.fates(clients, [b])[0], **states}


def halfway_timer(s):
    return halfway(s, True)


def halfway_ack(s):
    return halfway(s, False)


def fast_open(s):
    """Data in the SYN: they are in the queue before the handshake ends."""
    sysctl("tcp_fastopen", 0x207)  # without cookies
    option = [(socket.TCP_FASTOPEN, 64)]
    a = s.listener(options=option)
    block = s.no_acks()
    clients = s.clients(8, fastopen=True)
    states = {"syn_recv": s.states(SYN_RECV), "queued": queue(a)[0]}
    b = s.listener(options=option)
    a.close()
    moved = queue(b)[0]
    os.close(block)
    return {**s.fates(clients, [b])[0], **states, "moved": moved}


def orders(s):
    """Each of three listeners closes, begun in each order; 24 clients are spread over them."""
    complete, lost = 0, 0
    rows = list(itertools.product(itertools.permutations("xyz"), "xyz"))
    for i, (order, leaves) in enumerate(rows):
        group = {name: s.listener(port=PORT + i) for name in order}
        clients = s.clients(24, port=PORT + i)
        wait_for("24 to be queued", lambda: sum(queue(g)[0] for g in group.values()) == 24)
        gone = group.pop(leaves)
        had = queue(gone)[0]
        gone.close()
        found, _ = s.fates(clients, list(group.values()))
        complete += found["answered"] == 24
        lost += found["reset"] == had > 0
        s.close([*clients, *group.values()])
    return {"orders": len(rows), "complete": complete, "lost_what_it_had": lost}


def four_close(s):
    """Four of five close in the same instant."""
    group = [s.listener() for _ in range(4)]
    clients = s.clients(40)
    wait_for("40 to be queued", lambda: sum(queue(g)[0] for g in group) == 40)
    last = s.listener()
    gate = threading.Barrier(len(group))
    threads = [threading.Thread(target=lambda g=g: (gate.wait(), g.close())) for g in group]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return s.fates(clients, [last])[0]


def options(s):
    """TCP_SAVE_SYN of the listener that accepts, not of the one that the client came to."""
    a = s.listener()
    moves = s.held(1, a)
    b = s.listener(options=[(TCP_SAVE_SYN, 1)])
    a.close()
    comes = s.clients(1)
    wait_for("who comes to B", lambda: queue(b)[0] == 1 + s.migrate)
    saved = []
    while (one := s.accept(b)):
        saved.append(len(s.sockets[-1].getsockopt(socket.IPPROTO_TCP, TCP_SAVED_SYN, 256)) > 0)
    return {**s.fates(moves + comes, [])[0], "saved_syn": saved}


def dead(s):
    """30 wait; 10 have ended, 10 have reset: the kernel moves and counts them all."""
    a = s.listener()
    clients = s.held(30, a)
    b = s.listener()
    for c in clients[:10]:
        c.shutdown(socket.SHUT_WR)
    s.close(clients[10:20])
    had = queue(a)[0]
    a.close()
    return {"queued": had, "moved": queue(b)[0],
            **s.fates(clients[:10] + clients[20:], [b])[0]}


LOST = {SUCCESS: 0, FAILURE: 0}


def lost(n, **more):
    """What is published of n that nobody gets, and no counter shows."""
    return {"accepted": 0, "reset": n, **LOST, **more}


def kept(n, **more):
    return {"accepted": n, "reset": 0, "with_data": n, SUCCESS: n, FAILURE: 0, **more}


# Function: for migration off and on, the published figures, and what the source says beside them.
OVERFLOW = {"syn_recv": 0, "established": 2, "overflows_rise": 10, "drops_rise": 10,
            "by_retransmission": 10}
OVERFLOW_OFF = ({**OVERFLOW, "accepted": 10, **LOST},
                {"at_once": 0, "reset": 2, "queued_come_first": True})
OVERFLOW_ON = ({**OVERFLOW, "accepted": 12, "at_once": 2, SUCCESS: 2},
               {"reset": 0, FAILURE: 0, "queued_come_first": True})
NEW = {"syn_recv": 8, "queued": 0}  # of a request: nothing is in the queue
EXPERIMENTS = {
    hold: {False: (lost(20), {"wire_rst": 20, "wire_fin": 0, "closed": 0}),
           True: (kept(20), {"wire_rst": 0, "wire_fin": 0, "answered": 20})},
    alone: {False: (lost(10), {}), True: ({**lost(10), FAILURE: 10}, {})},
    alone_plain: {False: (lost(10), {}), True: ({}, lost(10))},
    chosen: {True: ({"same": 8, "otherwise_elsewhere": True}, {SUCCESS: 16, FAILURE: 0})},
    distributed: {False: ({"same": 8}, {"otherwise_elsewhere": True, **LOST})},
    small_target: {False: ({}, lost(20, recv_q=0, send_q=1)),
                   True: (kept(20, recv_q=20, send_q=1), {OVERFLOWS: 0})},
    overflow: {False: OVERFLOW_OFF, True: OVERFLOW_ON},
    overflow_abort: {False: OVERFLOW_OFF, True: OVERFLOW_ON},
    strangers: {False: ({"without": "EADDRINUSE", "other_user": "EADDRINUSE"},
                        {"same_user": "bound"})},
    shut: {False: (lost(10), {}), True: (kept(10), {})},
    halfway_timer: {False: ({}, {**NEW, "syn_recv_then": 0, "accepted": 0, "reset": 8}),
                    True: ({"accepted": 8, SUCCESS: 8}, {**NEW, "syn_recv_then": 8, "reset": 0})},
    halfway_ack: {False: ({}, {**NEW, "accepted": 0, "reset": 8, **LOST}),
                  True: ({"accepted": 8, SUCCESS: 8}, {**NEW, "reset": 0, FAILURE: 0})},
    fast_open: {False: ({}, lost(8, syn_recv=8, queued=8, moved=0)),
                True: ({}, kept(8, syn_recv=8, queued=8, moved=8))},
    orders: {False: ({}, {"orders": 18, "complete": 0, "lost_what_it_had": 18, **LOST}),
             True: ({}, {"orders": 18, "complete": 18, "lost_what_it_had": 0, FAILURE: 0})},
    four_close: {False: ({}, lost(40)), True: ({}, {"accepted": 40, "reset": 0, FAILURE: 0})},
    options: {False: ({}, {"saved_syn": [True], "reset": 1}),
              True: ({}, {"saved_syn": [False, True], "reset": 0})},
    dead: {False: ({}, {"queued": 30, "moved": 0, "reset": 20, **LOST}),
           True: ({}, {"queued": 30, "moved": 30, "answered": 20, SUCCESS: 30})},
}


def agrees(found, figures):
    return all(found[name] == value for name, value in figures.items())


def experiment(net, function, family, migrate, published, source):
    with Space(net, family, migrate) as s:
        measured = function(s)
        counters = counted()
    found = {**measured, **counters}
    return {"published": published, "source": source, "measured": measured, "kernel": counters,
            "agrees": agrees(found, published) and agrees(found, source)}


def taken_for(row, figures):
    return all(agrees({**row["measured"], **row["kernel"]}, f) for f in figures)


def main():
    rows, controls, mistaken = {}, 0, []
    net = Net()
    try:
        for function, figures in EXPERIMENTS.items():
            for family in (4, 6):
                found = {m: experiment(net, function, family, m, *f) for m, f in figures.items()}
                for m, row in found.items():
                    rows[f"{function.__name__}, IPv{family}, {'on' if m else 'off'}"] = row
                if len(found) == 2 and function is not alone_plain:
                    controls += 1
                    if taken_for(found[False], figures[True]):
                        mistaken.append(function.__name__)
    finally:
        net.close()
    wrong = [name for name, row in rows.items() if not row["agrees"]]
    return {"ok": len(rows) > 60 and not wrong and not mistaken and controls > 20, "wrong": wrong,
            "agree": len(rows) - len(wrong), "of": len(rows), "controls": controls,
            "mistaken": mistaken, "rows": rows}
