# SPDX-License-Identifier: BSD-2-Clause
"""
Whoever is not a node's agent is not taken for it, for the right reason, and leaves nothing behind.

Steps:
 1. client, ingress, node A, node B; ferryd in the last three; a stream over IPv4 on A
 2. B's agent is stopped; an attacker at B's address dials A's agent: each kind of wrong
    certificate, TLS 1.2, no certificate, plain text; with B's own certificate: lies in HELLO,
    frames that break a rule, a PREFLIGHT cut after k octets, one flipped bit in the TLS stream at
    many places
 3. A's agent dials the attacker: the same certificates and lies; A's log names the true cause
 4. the controls: the right certificate with a right HELLO is let in, both ways, and a PREPARE whose
    trailer is what its sockets say is held; with another trailer it is refused
 5. after each row A holds no more channels, descriptors, moves or units than before it
 6. A's certificate is issued anew, and shown to whoever comes next, by the same process
 7. an agent without its files does not start, and says why; one without other nodes does
 8. B's agent starts again, and a real move from A to B works
"""
import os
import socket
import ssl

import frames
from attacker import Forge, Said, Server, Tls, context, dial, to_the_end
from fleet import AGENT_USER, PORT, on_fleet
from net import BUILD, NUMBER, VIP, Failure, run, wait_for
from probe import Client, server
from watch import Agent, Rows

STREAM = ("--rate", "100")
TUPLE = ("198.51.100.7", 40000, "203.0.113.10", 443)
HELLO = frames.hello(NUMBER["b"])
PREFLIGHT = frames.move(frames.PREFLIGHT, sockets=[frames.socket(TUPLE)], app=b"nobody")
FLIPS = 24


def certificates(forge):
    """name, reason, what is shown; and the newest version of TLS."""
    own = forge.own("b")
    return (("wrong CA", "unknown-ca", forge.strange("b"), None),
            ("expired", "expired", forge.dated("b", -7200, -600), None),
            ("not yet valid", "not-yet-valid", forge.dated("b", 600, 7200), None),
            ("unknown name", "unknown-name", forge.unknown("stranger"), None),
            ("another node's", "wrong-name", forge.own("i"), None),
            ("TLS 1.2", "tls-version", own, ssl.TLSVersion.TLSv1_2))


def lies():
    """name, reason, what is said after the TLS handshake. Sizes are only announced."""
    h = frames.frame
    return (("wrong number", "wrong-number", frames.hello(NUMBER["i"])),
            ("version", "version", frames.hello(NUMBER["b"], version=9, oldest=7)),
            ("layout", "version", h(frames.HELLO, b"", version=2)),
            ("HELLO too big", "too-big", h(frames.HELLO, body_size=1 << 20)),
            ("boot id", "bad-message", frames.hello(NUMBER["b"], boot=b"short")),
            ("no HELLO", "out-of-order", PREFLIGHT),
            ("HELLO twice", "out-of-order", HELLO + HELLO),
            ("no frame", "bad-frame", b"GET / HTTP/1.1\r\n\r\n"),
            ("body too big", "too-big", HELLO + h(frames.PREFLIGHT,
                                                  body_size=frames.BODY_MAX + 1)),
            ("trailer too big", "too-big", HELLO + h(frames.PREPARE,
                                                     trailer_size=frames.TRAILER_MAX + 1)),
            ("trailer of PREFLIGHT", "trailer", HELLO + h(frames.PREFLIGHT, trailer_size=100)),
            ("trailer of KNOWS", "trailer", HELLO + h(frames.KNOWS, trailer_size=100)),
            ("unknown type", "unknown-type", HELLO + h(100)),
            ("garbage", "bad-message", HELLO + h(frames.PREFLIGHT, b"\xff" * 100)),
            ("no uuid", "bad-message", HELLO + frames.move(frames.PREFLIGHT, uuid=b"u")),
            ("a decoding bomb", "bad-message", HELLO + h(
                frames.LEARN, frames.message([(1, b"u" * 16), (2, b"m" * 16)]) + b"\x62\x00" * (
                    1 << 20))))


def speak(fleet, ctx, octets):
    """Dials, says it, and listens to the end."""
    s = dial(fleet)
    try:
        with ctx.wrap_socket(s) as tls:
            tls.sendall(octets)
            return to_the_end(tls)
    except TimeoutError:
        raise
    except OSError:
        return b""  # refused in the handshake, or while it spoke
    finally:
        s.close()


def say_plain(fleet, octets):
    with dial(fleet) as s:
        s.sendall(octets)
        to_the_end(s)


def cut(fleet, ctx, octets):
    """Without a goodbye."""
    s = dial(fleet)
    tls = ctx.wrap_socket(s)
    tls.sendall(octets)
    os.close(tls.detach())


def flip(fleet, ctx, k, of):
    """One bit of what the attacker sends, in the handshake's last flight or in HELLO."""
    def change(octets):
        data = bytearray(octets)
        if data:
            data[len(data) * (k // 2) // of] ^= 1 << k % 8
        return bytes(data)

    with dial(fleet) as s:
        try:
            tls = Tls(s, ctx)
            tls.handshake(*([change] if k % 2 else []))
            tls.send(HELLO, *([] if k % 2 else [change]))
            s.shutdown(socket.SHUT_WR)
            to_the_end(s)
        except OSError:
            pass


def replay(fleet, ctx):
    """All that a good session has sent, once more."""
    sent = []
    with dial(fleet) as s:
        tls = Tls(s, ctx, sent.append)
        tls.handshake()
        tls.send(HELLO)
        s.recv(1)
    say_plain(fleet, b"".join(sent))


def many(fleet, ctx, count):
    """That many good connections at once; the last one is told why it ends."""
    held = []
    for _ in range(count):
        if held:
            held[-1].recv(16)  # its answer has begun: it is let in
        held.append(ctx.wrap_socket(dial(fleet)))
        held[-1].sendall(HELLO)
    got = to_the_end(held[-1])
    if b"too-many" not in got:
        raise Failure(f"the last one was told {got}")
    for s in held:
        s.close()


def accepted(rows, forge):
    """The attacker dials."""
    f = rows.fleet
    for name, reason, pair, newest in certificates(forge):
        rows.row(name, reason, lambda: speak(f, context(pair, newest=newest), HELLO))
    own = context(forge.own("b"))
    rows.row("no certificate", "no-certificate", lambda: speak(f, context(None), HELLO))
    rows.row("plain text", "not-tls", lambda: say_plain(f, HELLO))
    rows.row("silence", "handshake-timeout", lambda: say_plain(f, b""), 5)
    rows.row("half a ClientHello", "handshake-timeout", lambda: say_plain(f, b"\x16\x03\x01"), 5)
    for name, reason, octets in lies():
        rows.row(name, reason, lambda: speak(f, own, octets))
    for k in range(1, len(PREFLIGHT), max(1, len(PREFLIGHT) // 24)):
        rows.row(f"cut after {k}", "cut", lambda: cut(f, own, HELLO + PREFLIGHT[:k]))
    for k in range(1, len(HELLO), 5):
        rows.row(f"HELLO cut after {k}", "cut", lambda: cut(f, own, HELLO[:k]))
    rows.row("replay", None, lambda: replay(f, own))
    rows.row("ninth connection", "too-many", lambda: many(f, own, 9))
    for k in range(FLIPS):
        rows.row(f"flip {k}", None, lambda: flip(f, own, k, FLIPS // 2 + 1))


def let_in(rows, forge):
    """The control: by the same code as what is refused."""
    unwanted = frames.move(frames.PREPARE, sockets=[frames.socket(TUPLE, inq=1 << 20)],
                           trailer=b"x" * (1 << 20))
    s = dial(rows.fleet)
    was = rows.agent.refused()
    with context(forge.own("b")).wrap_socket(s) as tls:
        tls.sendall(HELLO + PREFLIGHT + unwanted + frames.frame(0x9000, b"later") + PREFLIGHT)
        got = b""
        while got.count(b"app-missing") < 2:
            got += tls.recv(65536)
        rows.check("the control is let in", got[6] == frames.HELLO and b"protocol" in got)
    rows.check("the control is not refused", rows.agent.refused() == was)
    rows.settle()
    return len(got)


WHOLE = [(16, 1000), (17, 65535), (18, 65535), (19, 65535), (20, 1000), (21, 1 << 18),
         (22, 1 << 18)]


def arrives(rows, forge):
    """A unit that B would bring to A's real application: held where it is what it says it is, and
    given up at once when B says so; else refused, and the channel goes on."""
    here = ("198.51.100.7", 40001, VIP[4], PORT)
    sockets = [frames.socket(here, inq=1000, outq=500, more=WHOLE)]
    with context(forge.own("b")).wrap_socket(dial(rows.fleet)) as tls:
        tls.sendall(HELLO)
        said = Said(tls)
        said.next(frames.HELLO)
        for k, (size, answer) in enumerate(((1499, frames.REFUSED), (1501, frames.REFUSED),
                                            (1 << 20, frames.REFUSED), (1500, frames.PREPARED))):
            ids = {"uuid": b"%016d" % k, "move_id": b"%016d" % (100 + k), "sockets": sockets}
            tls.sendall(frames.move(frames.PREFLIGHT, **ids))
            said.next(frames.READY)
            tls.sendall(frames.move(frames.PREPARE, trailer=b"x" * size, **ids))
            rows.check(f"PREPARE with {size} octets of 1500", said.next(answer))
            if answer == frames.PREPARED:
                rows.check("held", len(rows.fleet.units("a", "prepared")) == 1)
                tls.sendall(frames.move(frames.ABORT, **ids))
    rows.settle()


def rotated(rows, forge):
    """A's certificate as it is shown, before and after it is issued anew."""
    def shown():
        with context(forge.own("b")).wrap_socket(dial(rows.fleet)) as tls:
            return tls.getpeercert(True)

    def issued():
        with open(forge.own("a")[0]) as f:
            return ssl.PEM_cert_to_DER_cert(f.read())

    first, pid = issued(), rows.agent.ping()["pid"]
    rows.check("the certificate is the issued one", shown() == first)
    rows.fleet.issue("a")
    rows.check("the new certificate is shown", shown() == issued() != first)
    rows.check("by the same process", rows.agent.ping()["pid"] == pid)
    rows.settle()


def starts(rows):
    """ferryd without files, in a fleet of three; and in a fleet of one, on the client's host."""
    f = rows.fleet
    with open(f.config) as config:
        text = config.read()
    other = os.path.join(f.dir, "other.conf")
    with open(other, "w") as config:
        config.write(text.replace(f.pki, "/nonexistent"))
    argv = (f"{BUILD}/ferryd", "--user", AGENT_USER, "--config", other, "--socket", f.socket("x"), "--node")
    p = f.at("b", *argv, f.name("b"), check=False)
    rows.check(f"no files: {p.stderr}", p.returncode == 1 and "/nonexistent/ca.crt" in p.stderr and
               f"ferry pki issue {f.name('b')}" in p.stderr)
    with open(other, "w") as config:
        config.write(f"[node {f.name('c')}]\nnumber = 1\naddress = 198.51.100.7\n"
                     "interfaces = eth0\nunits = 64\nbuckets4 = 64\nbuckets6 = 64\n")
    alone = f.start("c", *argv, f.name("c"), log="ferryd-c.log")
    try:
        wait_for("a fleet of one", lambda: "is up" in f.log("c") or alone.poll() is not None)
        rows.check(f"a fleet of one: {f.log('c')}", alone.poll() is None)
    finally:
        f.stop(alone)
        f.detach("c")


def dialed(rows, forge):
    """A's agent dials; each reason stands in its log, as that of no connection."""
    f = rows.fleet

    def shows(ctx, octets=HELLO):
        def serve(s):
            with ctx.wrap_socket(s, server_side=True) as tls:
                tls.sendall(octets)
                to_the_end(tls)

        return serve

    def meet(name, reason, serve):
        attacker = Server(f, serve)
        rows.row(f"{name}, dialed", reason, lambda: wait_for(
            f"A to refuse: {name}", lambda: said(reason), 5), 5, settles=False)
        attacker.close()
        rows.settle()

    def said(reason):
        return f"no connection to node {f.name('b')}: {reason}: " in rows.agent.log()

    for name, reason, pair, newest in certificates(forge):
        meet(name, reason, shows(context(pair, server=True, newest=newest)))
    own = context(forge.own("b"), server=True)
    meet("plain text", "not-tls", lambda s: s.sendall(b"SSH-2.0-x\r\n") or to_the_end(s))
    meet("wrong number", "wrong-number", shows(own, frames.hello(NUMBER["i"])))
    meet("version", "version", shows(own, frames.hello(NUMBER["b"], version=9, oldest=7)))
    meet("garbage", "bad-message", shows(own, frames.frame(frames.HELLO, b"\xff" * 50)))
    meet("refusal", "refused-there", shows(own, frames.frame(frames.BYE, frames.message(
        [(1, b"too-many"), (2, b"as it says")]))))
    attacker = Server(f, shows(own))
    wait_for("A to take the control for B", lambda: rows.agent.ping()["connected"] == 2)
    rows.check("the control is let in, dialed", True)
    attacker.close()
    rows.settle()


def test(fleet):
    fleet.up()
    servers = {h: server(fleet, h, *STREAM) for h in ("a", "b")}
    client = Client(fleet, 4, *STREAM)
    unit = servers["a"].wait("offered")[0]["unit"]
    fleet.kill_agent("b")
    agent, forge = Agent(fleet), Forge(fleet)
    rows = Rows(fleet, agent)
    rss = agent.rss_kb()
    accepted(rows, forge)
    answered = let_in(rows, forge)
    arrives(rows, forge)
    rotated(rows, forge)
    dialed(rows, forge)
    growth = agent.rss_kb() - rss
    fleet.start_agent("b")
    wait_for("B's agent", lambda: agent.ping()["connected"] == 2, 15)
    wait_for("B's application", lambda: len(servers["b"].events("registered")) > 1)
    moved = fleet.move(unit, "a", "b")
    client.wait_for_more(20)
    report = client.finish()
    starts(rows)
    result = {"rows": rows.count, "wrong": rows.wrong, "refused": rows.refused,
              "state_kept": rows.kept, "rss_growth_kb": growth, "control_octets": answered,
              "moved_after": moved["to"] == fleet.name("b"), "lost": report["lost"]}
    result["ok"] = (not rows.wrong and rows.count > 90 and not any(rows.kept.values()) and
                    growth < 8192 and answered > 0 and result["moved_after"] and
                    report["tcp_ok"])
    return result


def main():
    return on_fleet(test)
