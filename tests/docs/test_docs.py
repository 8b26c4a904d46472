#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
What the documents list is what the code has: refusals, fault points, configuration keys, options,
commands, calls of the library, and a test for each promise. And every source file says its licence.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def plain(path):
    """A man page without its markup."""
    return read(path).replace("\\-", "-").replace("\\(em", "-")


def missing(names, text):
    return sorted(n for n in names if not re.search(rf"(?<![\w-]){re.escape(n)}(?![\w-])", text))


def refusals():
    names = re.findall(r'X\("([a-z-]+)"', read("ctl/move/refusal.h"))
    return missing(names, read("docs/MOVE.md")), len(names)


def peer_reasons():
    names = re.findall(r'X\([A-Z_]+, "([a-z-]+)"', read("ctl/peer/reason.h"))
    return missing(names, read("docs/WIRE.md")), len(names)


def messages():
    """Every message between agents stands in docs/WIRE.md."""
    names = re.findall(r"^\tMSG_([A-Z]+)\b", read("ctl/peer/frame.h"), re.M)
    names = [n for n in names if n not in ("TYPES", "OPTIONAL")]
    return missing(names, read("docs/WIRE.md")), len(names)


def fault_points():
    names = re.findall(r'X\([A-Z_]+, "([a-z-]+)"\)', read("ctl/base/fault.h"))
    return missing(names, read("docs/MOVE.md")), len(names)


def configuration_keys():
    names = set(re.findall(r'^\t\{ "([a-z0-9]+)", set_', read("ctl/agent/config_keys.c"), re.M))
    return missing(names, plain("docs/man/ferry.conf.5")), len(names)


def options():
    wrong, count = [], 0
    for program, page in (("ferryd", "docs/man/ferryd.8"), ("ferry", "docs/man/ferry.8")):
        said = subprocess.run([os.path.join(ROOT, "build", program), "--help"],
                              capture_output=True, text=True).stdout
        names = set(re.findall(r"--[a-z-]+", said))
        count += len(names)
        wrong += missing(names, plain(page))
    return wrong, count


def commands():
    rows = re.findall(r'^\t\{ "([a-z]+)", (?:NULL|"([a-z]+)"), cmd_', read("ctl/cli/main.c"), re.M)
    names = {" ".join(filter(None, r)) for r in rows}
    return missing(names, plain("docs/man/ferry.8")), len(names)


def calls():
    names = set(re.findall(r"\b(ferry_[a-z_]+)\(", re.sub(r"/\*.*?\*/", "", read("include/ferry.h"),
                                                          flags=re.S)))
    return missing(names, plain("docs/man/libferry.3")), len(names)


def promises():
    """Every test is named beside its promise, and what is named is there."""
    tests = [f[:-3] for f in os.listdir(os.path.join(ROOT, "selftests")) if f.endswith(".py")]
    tests += [f[:-2] for d in ("unit", "packet") for f in
              os.listdir(os.path.join(ROOT, "tests", d)) if f.startswith("test_") and
              f.endswith(".c")]
    text = read("docs/PROMISES.md")
    named = set(re.findall(r"(?:selftests|tests/\w+)/(\w+)", text))
    there = set(tests) | {f[:-2] for f in os.listdir(os.path.join(ROOT, "tests/fuzz"))}
    there |= {"run", "frames", "test_faults", "test_docs", "test_info", "lib", "kernel", "seeds"}
    return missing(tests, text) + sorted(named - there), len(tests)


def kernel_rules():
    """Each says its rule in a line, which files of the project rely on it, and where it is."""
    wrong, folder = [], "selftests/kernel"
    files = [f for f in sorted(os.listdir(os.path.join(ROOT, folder))) if f.endswith(".c")]
    for f in files:
        text = read(f"{folder}/{f}")
        m = re.match(r"// SPDX[^\n]*\n/\*\n \* ([A-Za-z][^\n]*\.)\n \* Relied on: (.*?\.)\n"
                     r" \* Kernel: (.*?\.)\n \*/\n", text, re.S)
        paths = re.findall(r"(?:ctl|bpf|include|docs)/[\w./]+\.\w+", m.group(2)) if m else []
        there = [os.path.exists(os.path.join(ROOT, p)) for p in paths]
        if not paths or not all(there) or text.count("\n") >= 60:
            wrong.append(f)
    return wrong, len(files)


def licences():
    files = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True,
                           text=True).stdout.split()
    files = [f for f in files if f.endswith((".c", ".h", ".py", ".sh", ".proto", ".map", ".in"))]
    wrong = []
    for f in files:
        want = ("GPL-2.0-only" if f.startswith("bpf/") else
                "GPL-2.0-only OR BSD-2-Clause" if f.startswith("include/") else "BSD-2-Clause")
        lines = re.findall(r"^(?:\S+ )?SPDX-License-Identifier: (.+?)(?: \*/)?$", read(f), re.M)
        if lines != [want]:
            wrong.append(f"{f}: {lines}")
    return wrong, len(files)


def main():
    failed = 0
    for check in (refusals, peer_reasons, messages, fault_points, configuration_keys, options,
                  commands, calls, promises, kernel_rules, licences):
        wrong, count = check()
        bad = wrong or not count
        print(f"{'FAIL' if bad else 'ok  '} {check.__name__}: {count} looked for"
              + (f", wrong or missing: {', '.join(wrong)}" if wrong else ""))
        failed += bool(bad)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
