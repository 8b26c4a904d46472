# SPDX-License-Identifier: BSD-2-Clause
# One Makefile; everything it makes is under build/. V=1 shows the commands.
#   make         programs, library, probes          make tests   the test programs
#   make check   set up, build, test (as root)      make fuzz    60 s of each fuzz target
#   make demo    the main job, shown (as root)      make info    stack and verifier work
#   make demo-restart   nginx restarted, plain and guarded (as root)
#   make bench-guard   what a guard costs, beside proxies (as root)
#   make vm      on other kernels, in virtual machines (as root)
#   make install DESTDIR= PREFIX=/usr/local
#   make kernel-rules   what ferry asks of the kernel, a program a rule (as root)
# Set by the makefile itself: B, the tree of outputs; SAN, whether it is the one with sanitizers.
MAKEFLAGS += -rR
.DELETE_ON_ERROR:
.SECONDARY:
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' $(1) $@)

CC := gcc
CLANG := clang
AR := ar
PREFIX := /usr/local
comma := ,
B := build
PKGS := libbpf libcap libsystemd jansson libmnl libprotobuf-c libssl libcrypto
CPPFLAGS := -Iinclude -Ictl -Ibuild/gen -Ibuild/bpf -D_GNU_SOURCE
CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Wshadow -Werror -fPIC \
	$(if $(SAN),-fsanitize=address$(comma)undefined -fno-sanitize=alignment \
	-fno-sanitize-recover=undefined) \
	$(if $(findstring clang,$(CC)),-Wno-missing-field-initializers \
	-Wno-gnu-variable-sized-type-not-at-end) $(EXTRA_CFLAGS)
BPF_CFLAGS = -g -O2 -target bpf -mcpu=v3 -Wall -Wextra -Werror \
	-I/usr/include/$(shell $(CC) -print-multiarch) -Iinclude
PKG_LIBS = $(shell pkg-config --libs $(PKGS)) -linih
OBJ := $(B)/obj

src = $(patsubst %.c,$(OBJ)/%.o,$(wildcard $(1)))
BPF_PROGS := steer egress listener arrive witness
SKELS := $(BPF_PROGS:%=build/bpf/%.skel.h)
BASE := $(call src,ctl/base/*.c)
DATAPLANE := $(call src,ctl/dataplane/*.c)
AGENT := $(call src,ctl/agent/*.c ctl/move/*.c ctl/peer/*.c ctl/repair/*.c ctl/net/*.c) \
	$(OBJ)/build/gen/peer.pb-c.o
CLI := $(call src,ctl/cli/*.c)
PKI := $(call src,ctl/pki/*.c)
GUARD := $(call src,ctl/guard/*.c)
LISTENER := $(call src,ctl/listener/*.c)
LIB := $(call src,ctl/lib/*.c)

VERSION := 0.1.0
PROGRAMS := build/ferryd build/ferry build/ferry-guard build/libferry.a build/libferry.so build/libferry.pc
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

$(DATAPLANE) $(AGENT) $(CLI) $(GUARD) $(LISTENER): | $(SKELS) build/gen/peer.pb-c.h

build/ferryd: $(AGENT) $(DATAPLANE) $(PKI) $(BASE)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(PKG_LIBS)

build/ferry-guard: $(GUARD) $(LISTENER) $(BASE)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(PKG_LIBS)

build/ferry: $(CLI) $(DATAPLANE) $(LISTENER) $(PKI) $(BASE) $(OBJ)/ctl/guard/inspect.o
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
	$(Q)mkdir -p $(@D)
	$(Q)sed -e 's|@VERSION@|$(VERSION)|' -e 's|@PREFIX@|$(PREFIX)|' $< > $@

PROBE_NET := $(call src,tools/probe/net.c tools/probe/stream*.c)
PROBE_APP := $(call src,tools/probe/app*.c) build/libferry.a
build/probe-server: $(call src,tools/probe/server*.c) $(PROBE_APP) $(PROBE_NET)
build/probe-client: $(call src,tools/probe/client*.c) $(PROBE_NET)
build/probe-http: $(call src,tools/probe/http*.c) $(PROBE_APP) $(PROBE_NET)
build/probe-fault: $(call src,tools/probe/fault.c) $(PROBE_NET)
$(PROBES):
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lz

# All that is C, compiled and not linked: for the other compiler's warnings.
objects: $(AGENT) $(DATAPLANE) $(BASE) $(CLI) $(GUARD) $(LISTENER) $(PKI) $(LIB) $(call src,tools/probe/*.c tests/unit/*.c \
	tests/packet/*.c selftests/kernel/*.c)

# Tests: what each links beside its own file.
T := $(B)/tests
UNIT := $(patsubst tests/unit/%.c,$(T)/%,$(wildcard tests/unit/test_*.c))
PACKET := $(T)/test_packet $(T)/test_race
TABLE := $(OBJ)/ctl/dataplane/table.o
PACKET_ENV := $(call src,tests/packet/env.c tests/packet/build.c) $(TABLE)
CTL := $(filter-out $(OBJ)/ctl/agent/main.o,$(AGENT)) $(DATAPLANE) $(PKI) $(BASE)

# One program a rule of the kernel; nothing of ferry is in them.
KERNEL := $(patsubst selftests/kernel/%.c,$(T)/kernel/%,$(wildcard selftests/kernel/*.c))

tests: $(UNIT) $(if $(SAN),,$(PACKET) $(KERNEL))
$(T)/test_stream: $(call src,tools/probe/stream*.c)
$(T)/test_http_request: $(OBJ)/tools/probe/http_request.o
$(T)/test_table $(T)/test_table_model: $(TABLE)
$(T)/test_util $(T)/test_log: $(BASE)
$(T)/test_estimate: $(OBJ)/ctl/move/estimate.o
$(T)/test_account $(T)/test_witness $(T)/test_witness_guarded: $(LISTENER) $(BASE)
$(T)/test_unit_word $(T)/test_pins $(T)/test_offer $(T)/test_converge: $(DATAPLANE) $(BASE)
$(T)/test_offer $(T)/test_converge: $(OBJ)/ctl/move/unit.o
$(T)/test_converge: $(call src,ctl/move/converge.c ctl/move/image.c ctl/agent/config_find.c) \
	$(OBJ)/build/gen/peer.pb-c.o
$(T)/test_rights $(T)/test_config $(T)/test_config_files $(T)/test_image $(T)/test_channel \
	$(T)/test_frame $(T)/test_tls $(T)/test_pki $(T)/test_limits \
	$(T)/test_repair $(T)/test_resume $(T)/test_resume_hostile $(T)/test_adopt \
	$(T)/test_repair_check $(T)/test_diag: $(CTL)
$(T)/test_libferry $(T)/test_libferry_arrive $(T)/test_libferry_resume \
	$(T)/test_libferry_callbacks: $(LIB)
$(T)/test_packet: $(call src,tests/packet/rows*.c tests/packet/egress.c tests/packet/corpus.c \
	tests/packet/steps.c) $(PACKET_ENV)
$(T)/test_race: $(PACKET_ENV)
$(UNIT): $(T)/%: $(OBJ)/tests/unit/%.o
$(PACKET): $(T)/%: $(OBJ)/tests/packet/%.o
$(KERNEL): $(T)/kernel/%: $(OBJ)/selftests/kernel/%.o
$(UNIT) $(PACKET) $(KERNEL):
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -pthread -o $@ $^ -lcmocka -lz $(PKG_LIBS)
$(call src,tests/unit/*.c tests/packet/*.c): CPPFLAGS += -Itools/probe -Itests -I.
$(call src,tests/unit/*.c tests/packet/*.c): | $(SKELS) build/gen/peer.pb-c.h

FUZZ := $(patsubst tests/fuzz/%.c,build/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
build/fuzz/%: tests/fuzz/%.c
	$(call say,FUZZ)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(CPPFLAGS) -std=gnu11 -O1 -g -Wall -Wextra -Werror -MMD -MP -MT $@ \
		-Wno-missing-field-initializers \
		-fsanitize=fuzzer,address,undefined -fno-sanitize=alignment \
		-fno-sanitize-recover=undefined -o $@ $< $(FUZZ_LIBS)
build/fuzz/fuzz_config: FUZZ_LIBS := -linih
build/fuzz/fuzz_wire: FUZZ_LIBS := -lprotobuf-c
build/fuzz/fuzz_wire: | build/gen/peer.pb-c.h
fuzz: $(FUZZ)
	tools/fuzz $(FUZZ)

# The two commands of the README. Each sets up what it needs.
check:
	$(Q)tools/deps build test guard vm
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)$(MAKE) --no-print-directory B=build/san SAN=1 tests
	$(Q)$(MAKE) --no-print-directory B=build/clang CC=$(CLANG) objects
	$(Q)tools/check

kernel-rules: $(KERNEL)
	$(Q)tools/check build/tests/kernel/

demo:
	$(Q)tools/deps build test demo
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/demo

demo-restart:
	$(Q)tools/deps build test guard
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/demo-restart

# Benches: a JSON line a row, baselines in the same run.
build/bench-handover: $(OBJ)/tools/bench/handover.o
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(PKG_LIBS)
$(call src,tools/bench/*.c): | $(SKELS)

bench-guard:
	$(Q)tools/deps build test guard
	$(Q)$(MAKE) --no-print-directory all build/bench-handover
	$(Q)tools/bench/guard.py

vm:
	$(Q)tools/deps build test vm
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)selftests/run vm_matrix
	$(Q)selftests/run vm_systemd
	$(Q)selftests/run vm_guard
	$(Q)LONG=1 selftests/run vm_cross

info: $(SKELS)
	$(Q)tools/info $(BPF_PROGS:%=build/bpf/%.bpf.o)

install: all
	install -D -t $(DESTDIR)$(PREFIX)/sbin build/ferryd build/ferry-guard
	install -D -t $(DESTDIR)$(PREFIX)/bin build/ferry
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib build/libferry.a
	install -D build/libferry.so $(DESTDIR)$(PREFIX)/lib/libferry.so.0
	ln -sf libferry.so.0 $(DESTDIR)$(PREFIX)/lib/libferry.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include include/ferry.h
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include/ferry include/ferry/*.h
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/pkgconfig build/libferry.pc
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man3 docs/man/*.3
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man5 docs/man/*.5
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man8 docs/man/*.8

-include $(shell find build -name '*.d' 2>/dev/null)

clean:
	rm -rf build

.PHONY: all tests objects fuzz check kernel-rules demo demo-restart bench-guard vm info install clean
