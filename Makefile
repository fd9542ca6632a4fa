# SPDX-License-Identifier: Apache-2.0
# A thin face over Meson. `make demo` and `make test` install what is missing (Debian, as root or
# with sudo); everything is built into build/.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
SECONDS ?= 60
J ?=
export CC

.PHONY: all tools test test-aarch64 fuzz demo lint security install build-in-docker clean

all: tools
	@test -f $(BUILD)/build.ninja || said=$$(meson setup $(BUILD) --prefix $(abspath $(PREFIX)) 2>&1) || \
		{ echo "$$said" >&2; exit 1; }
	@ninja -C $(BUILD) $(if $(J),-j$(J))
	@ln -sfn src/sim $(BUILD)/sim

tools:
	@scripts/install-tools

test: all
	@scripts/test $(BUILD)

# Cross-compiled, under qemu's user emulation; installs what that needs.
test-aarch64:
	@scripts/install-tools aarch64
	@scripts/test-aarch64 $(BUILD)-aarch64

fuzz: tools
	@scripts/fuzz $(SECONDS)

demo: all
	@scripts/demo $(BUILD)

lint: all
	@scripts/lint $(BUILD)

security: all
	@scripts/security $(BUILD)

install: all
	@meson setup --reconfigure $(BUILD) -Dlibdir=lib --prefix $(abspath $(PREFIX)) >/dev/null
	@ninja -C $(BUILD) >/dev/null
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

build-in-docker:
	@scripts/build-in-docker

clean:
	@rm -rf $(BUILD)
