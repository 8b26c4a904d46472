# SPDX-License-Identifier: BSD-2-Clause
"""
Command lines of unmodified servers: Python's, nginx, HAProxy, Node. Each answers with the path that
was asked for, but for `python3 -m http.server`, which has a file.
"""
import os

from clients import FILE

# the class of the library, with a backlog that is worth a test
PYTHON = """
import http.server, os, signal, socket, sys
SAVE_SYN, SAVED_SYN = 27, 28
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.path.encode()
        good = 'syn' not in sys.argv or self.connection.getsockopt(6, SAVED_SYN, 256)
        self.send_response(200 if good else 500)
        self.send_header('X-Pid', str(os.getpid()))
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 5 if 'short' in sys.argv else 1024
    daemon_threads = True
    address_family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
    def server_bind(self):
        if 'v6only' in sys.argv:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if 'reuseport' in sys.argv:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if 'syn' in sys.argv:
            self.socket.setsockopt(6, SAVE_SYN, 1)
        for word in sys.argv:
            if word.startswith('option='):
                self.socket.setsockopt(socket.SOL_SOCKET, *map(int, word[7:].split(',')))
        super().server_bind()
if 'fork' in sys.argv:
    for _ in range(3):
        if not os.fork():
            break
server = Server((sys.argv[1], int(sys.argv[2])), Handler)
if 'relisten' in sys.argv:
    signal.signal(signal.SIGUSR1, lambda *_: server.socket.shutdown(socket.SHUT_RDWR))
    signal.signal(signal.SIGUSR2, lambda *_: server.server_activate())
if 'stops' in sys.argv:
    os.kill(os.getpid(), signal.SIGSTOP)
server.serve_forever()
"""

NODE = """
const [host, port] = process.argv.slice(1);
require('http').createServer((q, a) => {
  a.writeHead(200, {'Content-Length': Buffer.byteLength(q.url), 'X-Pid': process.pid});
  a.end(q.url);
}).listen({host, port: Number(port), ipv6Only: host.includes(':')});
"""

NGINX = """
daemon off;
user root;
pid {pid};
error_log {log} warn;
worker_processes {workers};
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {dir}/temp;
    proxy_temp_path {dir}/temp;
    fastcgi_temp_path {dir}/temp;
    uwsgi_temp_path {dir}/temp;
    scgi_temp_path {dir}/temp;
    server {{
        {listens}
        add_header X-Pid $pid;
        location / {{ return 200 $request_uri; }}
    }}
}}
"""

HAPROXY = """
global
    nbthread 2
defaults
    mode http
    timeout client 30s
    timeout connect 5s
    timeout server 30s
frontend f
    {binds}
    http-request return status 200 content-type text/plain lf-string "%[url]" hdr X-Pid "%pid"
"""


def bracketed(address):
    return f"[{address}]" if ":" in address else address


def python(address, port, *words):
    """words: v6only, reuseport; fork: four processes, each with a listener of its own; short: a
    backlog of 5; stops: itself, once it listens; relisten: SIGUSR1 ends listening, SIGUSR2 begins
    again, with the same socket; syn: TCP_SAVE_SYN, and an error for whom no SYN was saved of;
    option=NAME,VALUE: of the socket, by their numbers."""
    return ["/usr/bin/python3", "-c", PYTHON, address, str(port), *words]


def stock_python(net, address, port):
    """As everybody starts it, with its backlog of 5."""
    folder = os.path.join(net.dir, "files")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "index.html"), "wb") as f:
        f.write(FILE)
    return ["/usr/bin/python3", "-m", "http.server", str(port), "--bind", address, "--directory",
            folder]


def node(address, port):
    return ["node", "-e", NODE, address, str(port)]


def write(net, name, text):
    path = os.path.join(net.dir, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def nginx(net, addresses, port, workers=2, options="", name="nginx"):
    """port: one, or some."""
    ports = port if isinstance(port, tuple) else (port,)
    rows = [f"listen {bracketed(a)}:{n} backlog=1024 {options};" for a in addresses for n in ports]
    conf = write(net, f"{name}.conf", NGINX.format(
        pid=f"{net.dir}/{name}.pid", log=f"{net.dir}/{name}.log", dir=net.dir, workers=workers,
        listens="\n        ".join(rows)))
    return ["nginx", "-p", net.dir, "-e", f"{net.dir}/{name}.log", "-c", conf]


def haproxy(net, addresses, port, name="haproxy"):
    rows = [f"bind {bracketed(a)}:{port}{' v6only' if ':' in a else ''}" for a in addresses]
    conf = write(net, f"{name}.cfg", HAPROXY.format(binds="\n    ".join(rows)))
    return ["haproxy", "-db", "-f", conf]
