# SPDX-License-Identifier: BSD-2-Clause
# One Makefile; everything it makes is under build/. V=1 shows the commands.
#   make          programs, library, command line      make check   the tests (as root)
#   make demo     the main job, shown (as root)        make info    stack and verifier work
MAKEFLAGS += -rR
.DELETE_ON_ERROR:
.SECONDARY:
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' $(1) $@)

CC := gcc
CLANG := clang
AR := ar
PKGS := libbpf libsystemd jansson libmnl libprotobuf-c
CPPFLAGS := -Iinclude -Ictl -Ibuild/gen -Ibuild/bpf -D_GNU_SOURCE
CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Wshadow -Werror -fPIC $(EXTRA_CFLAGS)
BPF_CFLAGS := -g -O2 -target bpf -mcpu=v3 -Wall -Wextra -Werror \
	-I/usr/include/$(shell $(CC) -print-multiarch) -Iinclude
PKG_LIBS = $(shell pkg-config --libs $(PKGS)) -linih
OBJ := build/obj

src = $(patsubst %.c,$(OBJ)/%.o,$(wildcard $(1)))
BPF_PROGS := steer egress
SKELS := $(BPF_PROGS:%=build/bpf/%.skel.h)
BASE := $(call src,ctl/base/*.c)
DATAPLANE := $(call src,ctl/dataplane/*.c)
AGENT := $(call src,ctl/agent/*.c ctl/move/*.c ctl/peer/*.c ctl/repair/*.c ctl/net/*.c) \
	$(OBJ)/build/gen/peer.pb-c.o
CLI := $(call src,ctl/cli/*.c)
LIB := $(call src,ctl/lib/*.c)

VERSION := 0.1.0
PROGRAMS := build/ferryd build/ferry build/libferry.a build/libferry.so build/libferry.pc
PROBES := build/probe-server build/probe-client build/probe-http build/probe-fault

all: $(PROGRAMS) $(PROBES)

build/bpf/%.bpf.o: bpf/%.bpf.c
	$(call say,BPF)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -MT $@ -c $< -o $@

build/bpf/%.skel.h: build/bpf/%.bpf.o
	$(call say,SKEL)
	$(Q)bpftool gen skeleton $< name $*_bpf > $@ 2>/dev/null

build/gen/%.pb-c.c build/gen/%.pb-c.h: ctl/peer/%.proto
	$(call say,PROTO)
	$(Q)mkdir -p build/gen
	$(Q)protoc-c --proto_path=ctl/peer --c_out=build/gen $<

$(OBJ)/%.o: %.c
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(DATAPLANE) $(AGENT) $(CLI): | $(SKELS) build/gen/peer.pb-c.h

build/ferryd: $(AGENT) $(DATAPLANE) $(BASE)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(PKG_LIBS)

build/ferry: $(CLI) $(DATAPLANE) $(BASE)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(PKG_LIBS)

build/libferry.a: $(LIB)
	$(call say,AR)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

build/libferry.so: $(LIB) ctl/lib/libferry.map
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,libferry.so.0 \
		-Wl,--version-script=ctl/lib/libferry.map -o $@ $(LIB)

build/libferry.pc: ctl/lib/libferry.pc.in Makefile
	$(call say,GEN)
	$(Q)sed 's|@VERSION@|$(VERSION)|' $< > $@

PROBE_NET := $(call src,tools/probe/net.c tools/probe/stream*.c)
PROBE_APP := $(call src,tools/probe/app*.c) build/libferry.a
build/probe-server: $(call src,tools/probe/server*.c) $(PROBE_APP) $(PROBE_NET)
build/probe-client: $(call src,tools/probe/client*.c) $(PROBE_NET)
build/probe-http: $(call src,tools/probe/http*.c) $(PROBE_APP) $(PROBE_NET)
build/probe-fault: $(call src,tools/probe/fault.c) $(PROBE_NET)
$(PROBES):
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lz

-include $(shell find build -name '*.d' 2>/dev/null)

clean:
	rm -rf build

.PHONY: all clean
