# SPDX-License-Identifier: BSD-2-Clause
"""
Somebody at a node's address who wants to be taken for its agent: python3's stock TLS, certificates
made by openssl and `ferry pki`, and octets as they like. Sockets are made in the node's namespace.
"""
import os
import socket
import ssl
import threading
import time

import frames
from net import BUILD, FABRIC, Failure, run
from peer import inside

PORT = 7946
EXTENSIONS = """[ca]
default_ca = own
[own]
database = {dir}/index
new_certs_dir = {dir}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[node]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = URI:ferry:{node}
"""


class Forge:
    """Certificates: the fleet's own, with other dates or names, and those of another authority."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.dir = os.path.join(fleet.dir, "forge")
        self.other = os.path.join(self.dir, "other")
        os.mkdir(self.dir)
        run(f"{BUILD}/ferry", "pki", "init", "--dir", self.other)

    def own(self, host):
        path = os.path.join(self.fleet.pki, self.fleet.name(host))
        return f"{path}.crt", f"{path}.key"

    def strange(self, host):
        """Right but for its authority."""
        name = self.fleet.name(host)
        run(f"{BUILD}/ferry", "pki", "issue", name, "--dir", self.other)
        return f"{self.other}/{name}.crt", f"{self.other}/{name}.key"

    def unknown(self, name):
        """Of the fleet's authority, for a node that is in no configuration."""
        run(f"{BUILD}/ferry", "pki", "issue", name, "--dir", self.fleet.pki)
        return f"{self.fleet.pki}/{name}.crt", f"{self.fleet.pki}/{name}.key"

    def dated(self, host, start, end):
        """Of the fleet's authority, by openssl; seconds from now."""
        node, crt = self.fleet.name(host), os.path.join(self.dir, f"{host}{start}.crt")
        key, csr, conf = (crt[:-3] + s for s in ("key", "csr", "conf"))
        with open(conf, "w") as f:
            f.write(EXTENSIONS.format(dir=self.dir, node=node))
        with open(f"{self.dir}/index", "w"):
            pass
        run("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-keyout", key, "-subj", f"/CN={node}", "-out", csr)
        dates = [time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + s)) for s in (start, end)]
        run("openssl", "ca", "-batch", "-config", conf, "-extensions", "node", "-notext", "-in",
            csr, "-out", crt, "-cert", f"{self.fleet.pki}/ca.crt", "-keyfile",
            f"{self.fleet.pki}/ca.key", "-startdate", dates[0], "-enddate", dates[1])
        return crt, key


def context(pair, server=False, newest=None):
    """A TLS context that shows this certificate (None: none) and takes any."""
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    c.check_hostname = False
    c.verify_mode = ssl.CERT_NONE
    if pair:
        c.load_cert_chain(*pair)
    if newest:
        c.maximum_version = newest
    return c


def dial(fleet, to="a", at="b", seconds=5):
    """A TCP connection from one node's address to another's agent."""
    def make():
        s = socket.socket()
        s.settimeout(seconds)
        s.bind((FABRIC[at][0], 0))
        s.connect((FABRIC[to][0], PORT))
        return s

    return inside(fleet, at, make)


def to_the_end(s):
    """What still comes until the other side closes; raises TimeoutError where it does not."""
    got = b""
    while True:
        try:
            data = s.recv(65536)
        except TimeoutError:
            raise
        except OSError:  # an alert, or a reset: the end, too
            return got
        if not data:
            return got
        got += data


class Tls:
    """TLS by hand, so that what goes over the wire can be changed on the way."""

    def __init__(self, sock, ctx, sent=lambda octets: None):
        self.sock = sock
        self.sent = sent  # is told of all that goes out
        self.come, self.go = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = ctx.wrap_bio(self.come, self.go)

    def handshake(self, change=lambda octets: octets):
        flight = 0
        while True:
            try:
                self.tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            flight += 1
            octets = self.go.read()
            self.sent(octets)
            self.sock.sendall(change(octets) if flight == 2 else octets)
            if done:
                return
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionResetError("closed in the handshake")
            self.come.write(data)

    def send(self, octets, change=lambda octets: octets):
        self.tls.write(octets)
        octets = self.go.read()
        self.sent(octets)
        self.sock.sendall(change(octets))


class Server:
    """Waits at a node's address for agents, and treats each in a thread of its own:
    serve(socket)."""

    def __init__(self, fleet, serve, at="b"):
        def make():
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((FABRIC[at][0], PORT))
            s.listen(16)
            return s

        self.serve = serve
        self.served = []
        self.listener = inside(fleet, at, make)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            self.served.append(threading.Thread(target=self.one, args=(s,), daemon=True))
            self.served[-1].start()

    def one(self, s):
        s.settimeout(1)
        try:
            self.serve(s)
        except OSError:
            pass  # refused, which is what is counted at the other side
        finally:
            s.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for thread in self.served:
            thread.join()


class Said:
    """Frames as they come; what A tells every node that connects is passed over."""

    def __init__(self, tls):
        self.tls = tls
        self.got = b""

    def next(self, kind):
        while True:
            while len(self.got) < 16 or len(self.got) < frames.size(self.got):
                data = self.tls.recv(65536)
                if not data:
                    raise Failure(f"closed instead of message {kind}")
                self.got += data
            size, found = frames.size(self.got), frames.kind(self.got)
            last, self.got = self.got[:size], self.got[size:]
            if found not in (frames.LEARN, frames.FORGET, frames.KNOWS):
                if found != kind:
                    raise Failure(f"message {found} instead of {kind}: {last}")
                return True
