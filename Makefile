# SPDX-License-Identifier: Apache-2.0
# A thin face over Meson. `make demo` and `make test` install what is missing (Debian, as root or
# with sudo); everything is built into build/. V=1 shows what the build does.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
SECONDS ?= 60
J ?=
V ?=
export CC BUILD PREFIX DESTDIR J V

.PHONY: all tools place test test-all test-aarch64 test-cluster fuzz demo lint security install uninstall build-in-docker clean

all: tools
	@scripts/build

tools:
	@scripts/install-tools

# Tests cannot run everywhere; to be said before it is built.
place:
	@scripts/build --for-tests

# What gives the same result on a machine that does other work beside it; and everything.
test: place all
	@scripts/test --fast "$$BUILD"

test-all: place all
	@scripts/test "$$BUILD"

# Cross-compiled, under qemu's user emulation; installs what that needs.
test-aarch64:
	@scripts/install-tools aarch64
	@scripts/test-aarch64 "$$BUILD-aarch64"

# In a real cluster of one node; scripts/build-peers makes its programs.
test-cluster: place all
	@scripts/test-cluster "$$BUILD"

fuzz: tools
	@scripts/fuzz $(SECONDS)

demo: all
	@scripts/demo "$$BUILD"

lint: all
	@scripts/lint "$$BUILD"

security: all
	@scripts/security "$$BUILD"

install: all
	@scripts/install install

uninstall:
	@scripts/install uninstall

build-in-docker:
	@scripts/build-in-docker

clean:
	@rm -rf "$$BUILD"
