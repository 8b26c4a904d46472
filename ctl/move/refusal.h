/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why a unit does not move: stable ids, each with what it means and what can be done. Whatever the
 * reason, the unit goes on where it is.
 */
#ifndef MOVE_REFUSAL_H
#define MOVE_REFUSAL_H

#define REFUSALS(X)                                                                                \
	X("not-inet", "a socket is neither IPv4 nor IPv6")                                         \
	X("not-tcp", "a socket is neither TCP nor UDP")                                            \
	X("listen", "a socket listens: guard it instead, and leave it out of the unit")            \
	X("mptcp", "a socket is MPTCP, which the kernel does not restore: serve plain TCP")        \
	X("not-connected", "a TCP socket has no peer (any more): withdraw the unit")               \
	X("tcp-state", "a TCP socket is not ESTABLISHED: wait until it is, or until it has ended") \
	X("ulp", "a socket has an upper layer protocol (kTLS ...), which is not moved yet")        \
	X("addr-wildcard", "a UDP socket is not bound to an address: bind it to the service's")    \
	X("addr-link-local", "a link-local address means nothing on another node")                 \
	X("addr-node-local", "the local address is a node's own: serve on a service address")      \
	X("other-netns", "a socket is in another network namespace than its application's")        \
	X("flow-owned", "a flow belongs to another unit already: withdraw that one first")         \
	X("table-full", "the flow or unit table is full: raise buckets, stash or units")           \
	X("no-memory", "out of memory or descriptors")                                             \
	X("bad-command", "the agent does not understand the command: is ferry of its version?")    \
	X("no-such-unit", "no application here holds that unit")                                   \
	X("not-allowed", "only root, the agent's user and the unit's own application may do that")  \
	X("user-limit", "this user's applications hold as much as one user may: withdraw units, "   \
			"or name the user in an [application] section")                            \
	X("no-such-node", "the configuration knows no such node, or it is this one")               \
	X("node-down", "no connection to that node's agent: is it running?")                       \
	X("in-a-move", "the unit is in a move already")                                            \
	X("app-missing", "no application of this kind is registered there: start it")              \
	X("app-gone", "the application ended or broke its connection to the agent")                \
	X("app-refused", "the application does not want to move now")                              \
	X("app-sockets", "the application lent other descriptors than it offered")                 \
	X("app-state", "the application did not give its state as a memfd of the size it said")    \
	X("app-not-quiescent", "the application did not come to rest in time")                     \
	X("tuple-busy", "a socket or unit there has this tuple already: end it first")             \
	X("addr-unavailable", "the address could not be made deliverable there")                   \
	X("no-route", "there is no route back to the client there")                                \
	X("mtu-smaller", "packets of this size do not fit the way there: raise its MTU to hold "    \
			 "the tunnel, or lower packet in [fleet]")                                 \
	X("epoch-behind", "a newer epoch was seen for the flow: try again")                        \
	X("arrived-late", "packets arrived behind the fence: try again")                           \
	X("socket-extract", "the kernel did not give a socket's state away")                       \
	X("socket-restore", "the kernel did not take a socket's state there")                      \
	X("urgent-data", "urgent data waits in a socket: read it first")                           \
	X("queue-too-big", "a queue holds more than can be carried: try again later")              \
	X("agent-restarted", "the agent was started again in the middle of the move: try again")   \
	X("agent-stopping", "the agent is being stopped: try again")                               \
	X("timeout", "the other node did not answer in time")                                      \
	X("peer-lost", "the connection to the other node broke")                                   \
	X("protocol", "the other node broke the protocol")                                         \
	X("state-changed", "the unit's word changed meanwhile: try again")

/* The sentence of an id, or the id where there is none. */
const char *refusal_text(const char *id);
/* The constant with this id, so that it can be kept: "protocol" where there is none. */
const char *refusal_id(const char *id);

#endif
