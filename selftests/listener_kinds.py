# SPDX-License-Identifier: BSD-2-Clause
"""
Listeners whose options differ in what matters to who accepts: what one kind has not accepted waits
for its own kind, and nobody is reset for it.

Steps, for IPv4 and IPv6:
 1. a server is killed with 30 in its queue; one of the same program with TCP_SAVE_SYN comes, which
    answers an error where no SYN was saved: new clients are answered by it, the 30 stay held, and
    the list says so, with the option, and with the command that would give them
 2. it is killed with 25 in its queue, and 10 come while nobody listens: held apart; the next of its
    kind answers all 35, with their SYN
 3. a plain one comes beside it, and answers the 30; the older one is killed with 150: all of them
    are held for its kind, and answered by the next one
 4. control: killed with 30 again; --options any gives them to one with TCP_SAVE_SYN: 30 errors
 5. while one waits for its turn, with TCP_SAVE_SYN or without, the plain one that works has a full
    queue: who comes is held, and answered by the plain one. Control: without --new wait by the other
 6. four kinds are killed one after the other, each with 10: held apart; a fifth is a stranger, with
    the reason; it ends; the next of each kind answers its 10; then there is a place for the fifth
"""
import signal

from clients import Clients
from guard import HOST, LOCAL, on_guard, stop
from net import wait_for
from policy import fates, ferry, listener, queued
import servers

KINDS = 8080
CLIENTS = 20
PLAIN, SYN, AFTER = 30, 25, 10
EACH = 10
MANY = 150  # so that the guard looks while the kernel moves them
SHORT = 6  # what a backlog of 5 takes
# options that make a kind, by the words of servers.python
SORTS = {"plain": (), "short": ("short",), "syn": ("syn",), "oob": ("option=10,1",),
         "lowat": ("option=18,2",), "mark": ("option=36,7",)}
FOUR, FIFTH = ("plain", "syn", "oob", "lowat"), "mark"


class Kinds:
    """Servers of several sorts on one address, one after the other."""

    def __init__(self, g, family):
        self.g, self.family = g, family

    def argv(self, sort):
        return servers.python(LOCAL[self.family], KINDS, *SORTS[sort])

    def first(self, sort):
        p = self.g.guarded(*self.argv(sort), port=KINDS)
        self.g.wait_member(p.pid, KINDS)
        return p

    def next(self, sort):
        p = self.g.apart(*self.argv(sort))
        self.g.wait_member(p.pid, KINDS)
        return p

    def clients(self, count):
        crowd = Clients(self.g.ns(HOST), LOCAL[self.family], KINDS, count)
        crowd.wait_sent()
        return crowd

    def dies(self, p, count, last=lambda: None):
        """With so many in its queue; last: what is done before."""
        stop(p.pid)
        crowd = self.clients(count)
        wait_for(f"{count} to be in its queue", lambda: queued(self.g, KINDS, p.pid) == count)
        last()
        self.g.stop(p, signal.SIGKILL)
        return crowd

    def ends(self, p):
        """Nobody is in its queue."""
        self.g.stop(p, signal.SIGKILL)
        wait_for("it to be gone", lambda: p.pid not in [m["pid"] for m in
                                                        self.g.one(KINDS)["members"]])

    def held(self):
        """What differs from the newest listener's options: how many are held for that."""
        return {h["differs"]: h["held"] for h in self.g.one(KINDS)["holders"] if h["held"]}


def own_kind(k):
    """Steps of the docstring; what became of whom."""
    plain = k.dies(k.first("plain"), PLAIN)
    k.g.wait_held(PLAIN, KINDS)
    p = k.next("syn")
    new = k.clients(CLIENTS)
    r = {"new": fates([new], {"syn": p}), "held": k.held(),
         "text": ferry(k.g, "guard", "list", as_json=False).stdout, "early": plain.figures()}
    syn = k.dies(p, SYN)
    k.g.wait_held(PLAIN + SYN, KINDS)
    after = k.clients(AFTER)
    k.g.wait_held(PLAIN + SYN + AFTER, KINDS)
    r["apart"] = k.held()
    p = k.next("syn")
    r["syn"] = fates([syn, after], {"syn": p})
    r["kept"], r["late"] = k.held(), plain.figures()
    back = k.next("plain")
    r["plain"] = fates([plain], {"plain": back})
    r["old"] = old_kind(k, p)
    return r, back


def old_kind(k, p):
    """A kind that is not the newest one has a queue, and is killed, while the newest works."""
    newest = k.g.one(KINDS)["working"]
    listener(k.g, "generation", KINDS, newest - 1)
    crowd = k.dies(p, MANY, lambda: listener(k.g, "generation", KINDS, newest))
    k.g.wait_held(MANY, KINDS)
    r = {"held": k.held(), "early": crowd.figures()}
    p = k.next("syn")
    r["given"] = fates([crowd], {"syn": p})
    k.ends(p)
    return r


def waiting(k, sort, new="wait"):
    """The one that works has a full queue, and another waits for its turn; or (take, the control) may
    be given what is left."""
    p = k.first("short")
    listener(k.g, "policy", KINDS, "--new", "wait")
    other = k.next(sort)
    listener(k.g, "policy", KINDS, "--new", new)
    stop(p.pid)
    crowds = [k.clients(SHORT)]
    wait_for("its queue to be full", lambda: queued(k.g, KINDS, p.pid) == SHORT)
    crowds.append(k.clients(AFTER))
    r = {}
    if new == "wait":
        k.g.wait_held(AFTER, KINDS)
        r = {"held": k.held(), "early": [sum(c.figures().values()) for c in crowds]}
    else:
        wait_for("the other to answer", lambda: crowds[1].figures()["answered"] == AFTER)
    p.send_signal(signal.SIGCONT)
    r["answered"] = fates(crowds, {"short": p, sort: other})
    k.g.all_off()
    for server in (p, other):
        k.g.stop(server)
    wait_for("the port to be free", lambda: not k.g.queues(KINDS))
    return r


def any_kind(k, back):
    """Control: they are given to who cannot use them."""
    plain = k.dies(back, PLAIN)
    k.g.wait_held(PLAIN, KINDS)
    p = k.next("syn")
    r = {"before": k.held(), "early": plain.figures()}
    r["said"] = listener(k.g, "policy", KINDS, "--options", "any")["options"]
    r["given"] = fates([plain], {"syn": p})
    listener(k.g, "policy", KINDS, "--options", "alike")
    k.g.all_off()
    k.g.stop(p)
    return r


def kinds(g, family):
    k = Kinds(g, family)
    r, back = own_kind(k)
    r["any"] = control = any_kind(k, back)
    wait_for("the port to be free", lambda: not g.queues(KINDS))
    rows = {"kind": waiting(k, "syn"), "alike": waiting(k, "plain"),
            "control": waiting(k, "plain", "take")}
    r["waiting"] = rows
    nothing, both_held = not any(r["early"].values()), {"TCP_SAVE_SYN": PLAIN, "": SYN + AFTER}
    sentence = f"{PLAIN} of those wait for a listener with other options (TCP_SAVE_SYN)"
    r["wrong"] = [n for n, ok in {
        "held": nothing and r["held"] == r["kept"] == {"TCP_SAVE_SYN": PLAIN},
        "text": sentence in r["text"] and
        f"ferry listener policy --port {KINDS} --options any" in r["text"],
        "new": r["new"] == {"syn": CLIENTS}, "apart": r["apart"] == both_held,
        "syn": r["syn"] == {"syn": SYN + AFTER} and not any(r["late"].values()),
        "plain": r["plain"] == {"plain": PLAIN},
        "old": r["old"]["held"] == {"TCP_SAVE_SYN": MANY} and not any(r["old"]["early"].values())
        and r["old"]["given"] == {"syn": MANY},
        **{f"waiting {n}": rows[n]["held"] == {"": AFTER} and not any(rows[n]["early"]) and
           rows[n]["answered"] == {"short": SHORT + AFTER} for n in ("kind", "alike")},
        "waiting control": rows["control"]["answered"] == {"short": SHORT, "plain": AFTER},
        "any": control["before"] == {"TCP_SAVE_SYN": PLAIN} and
        not any(control["early"].values()) and control["said"] == "any" and
        control["given"] == {"wrong": PLAIN}}.items() if not ok]
    return r


def wait_stranger(g, pid):
    def look():
        return next((s["why"] for s in g.one(KINDS)["strangers"] if s["pid"] == pid), None)

    return wait_for("the fifth to be seen", look, 10, 0.02)


def five(g, family):
    k = Kinds(g, family)
    crowds = {}
    for n, sort in enumerate(FOUR):
        p = k.next(sort) if n else k.first(sort)
        crowds[sort] = k.dies(p, EACH)
        g.wait_held((n + 1) * EACH, KINDS)
    p = g.apart(*k.argv(FIFTH))
    r = {"why": wait_stranger(g, p.pid), "held": k.held(),
         "early": [sum(c.figures().values()) for c in crowds.values()]}
    g.stop(p)
    r["answered"] = []
    for sort, crowd in crowds.items():
        p = k.next(sort)
        r["answered"].append(fates([crowd], {sort: p}))
        k.ends(p)
    p = k.next(FIFTH)
    r["new"] = fates([k.clients(CLIENTS)], {FIFTH: p})
    r["strangers"] = len(g.one(KINDS)["strangers"])
    g.all_off()
    g.stop(p)
    wait_for("the port to be free", lambda: not g.queues(KINDS))
    r["wrong"] = [n for n, ok in {
        "why": "4 other sets of options" in r["why"] and "SO_MARK" in r["why"],
        "held": sorted(r["held"].values()) == [EACH] * 4 and not any(r["early"]),
        "answered": r["answered"] == [{sort: EACH} for sort in FOUR],
        "new": r["new"] == {FIFTH: CLIENTS}}.items() if not ok]
    return r


def test(g):
    r = {f"{step.__name__}_{family}": step(g, family) for step in (kinds, five)
         for family in (4, 6)}
    wrong = [f"{name} {k}" for name, row in r.items() for k in row["wrong"]]
    return {"ok": not wrong, "wrong": wrong, "kept": [r[f"kinds_{f}"]["kept"] for f in (4, 6)],
            "control_wrong": [r[f"kinds_{f}"]["any"]["given"] for f in (4, 6)], "rows": r}


def main():
    return on_guard(test)
