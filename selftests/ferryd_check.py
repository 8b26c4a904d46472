# SPDX-License-Identifier: BSD-2-Clause
"""
ferryd --check says whether a configuration is right, without a right of its own.

Steps:
 1. the examples of the README and of the man page are right, for a process without any capability
 2. each with a slip in one line: exit 1, one line that names file, line and what was meant
 3. a drop-in is read; a node that is not there is an error; wrong usage is exit 2
"""
import os
import re
import subprocess
import tempfile

from net import BUILD, ROOT, run

NO_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


def example(path, begins, ends):
    """As it is read: of a man page without its escapes."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        text = f.read().replace("\\-", "-") if path.startswith("docs/man/") else f.read()
    return re.search(f"{re.escape(begins)}\n(.*?){re.escape(ends)}", text, re.S).group(1)


class Cases:
    def __init__(self, folder):
        self.file = os.path.join(folder, "ferry.conf")
        self.count, self.wrong = 0, []

    def write(self, text, name=None):
        path = self.file if name is None else os.path.join(self.file + ".d", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def says(self, argv, code, out="", err=""):
        """Exit code, all of stdout, and stderr from its beginning; one of them is empty."""
        p = subprocess.run([*NO_RIGHTS, f"{BUILD}/ferryd", *argv], capture_output=True, text=True,
                           timeout=20)
        self.count += 1
        if (p.returncode != code or p.stdout != out or not p.stderr.startswith(err) or
                bool(out) == bool(p.stderr)):
            self.wrong.append(f"{argv}: exit {p.returncode}, {p.stdout!r} {p.stderr!r}")

    def check(self, code, out="", err="", node=()):
        self.says((*node, "--config", self.file, "--check"), code, out, err)


def test(cases):
    file = cases.file
    for text in (example("README.md", "```ini", "```"),
                 example("docs/man/ferry.conf.5", ".EX", ".EE")):
        cases.write(text)
        cases.check(0, f"{file}: ok: 3 nodes, 1 services\n")
        cases.check(0, f"{file}: ok: 3 nodes, 1 services\n", node=("--node", "web1"))
        cases.check(1, err=f"{file}: there is no [node web9]", node=("--node", "web9"))
        line = text.split("\n").index("number = 3") + 1
        cases.write(text.replace("number = 3", "nubmer = 3", 1))
        cases.check(1, err=f"{file}:{line}: unknown key 'nubmer' in [node]: did you mean "
                           "'number'?\n")
    cases.write(text)
    cases.write("[node web3]\nnumber = 4\naddress = 192.0.2.4\ninterfaces = eth0\n", "web3.conf")
    cases.check(0, f"{file}: ok: 4 nodes, 1 services, 1 drop-ins\n")
    cases.write("[node web3]\nnumber = 0\n", "web3.conf")
    cases.check(1, err=f"{file}.d/web3.conf:2: number: a number from 1 to 1023")
    for argv in (("--check", "--detach", "--node", "web1"), ("--check", "more"),
                 ("--check", "--node", "../x"), ("--log-level", "loud", "--check"), ()):
        cases.says(argv, 2, err="Usage: ferryd")
    status = run(*NO_RIGHTS, "cat", "/proc/self/status").stdout
    rights = int(re.search(r"CapEff:\s*(\w+)", status).group(1), 16)
    return {"cases": cases.count, "wrong": cases.wrong, "rights": rights,
            "ok": not cases.wrong and cases.count == 15 and not rights}


def main():
    with tempfile.TemporaryDirectory(prefix="ferry-check-") as folder:
        return test(Cases(folder))
