# Build targets; `make help` lists them. Cargo's own settings (CARGO_TARGET_DIR, CARGO_HOME …) are respected.

CARGO ?= cargo
INSTALL ?= install
PREFIX ?= /usr/local
DESTDIR ?=
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))

.DEFAULT_GOAL := help
.PHONY: help setup setup-long setup-package check check-long fuzz demo bench release install deb rpm image clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

setup: ## install the system packages that check needs (root, only if one is missing)
	@scripts/setup.sh check

check: setup ## all checks and tests, set-up included: what CI runs
	$(CARGO) xtask check

setup-long:
	@scripts/setup.sh check-long

check-long: setup-long ## the hours-long check: long tests, simulation, fuzzing, controllers
	$(CARGO) xtask check-long

release:
	$(CARGO) build --release --locked -p sluiced -p sluice

fuzz: setup-long ## all fuzz targets for a minute each
	$(CARGO) xtask fuzz

demo: ## a switch, two hosts and traffic between them, in namespaces of their own (root)
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory release
	SLUICE_BIN_DIR="$(TARGET_DIR)/release" scripts/demo.sh

bench: ## measure against the stock switch, also with DPDK, and the Linux bridge (root); results in tools/bench/results
	@scripts/setup.sh bench
	scripts/bench.sh

install: release ## build and install sluiced and sluice under $(DESTDIR)$(PREFIX), with manual pages and completion
	$(INSTALL) -D -m 755 "$(TARGET_DIR)/release/sluiced" "$(DESTDIR)$(PREFIX)/sbin/sluiced"
	$(INSTALL) -D -m 755 "$(TARGET_DIR)/release/sluice" "$(DESTDIR)$(PREFIX)/bin/sluice"
	$(INSTALL) -d "$(DESTDIR)$(PREFIX)/share/man/man1"
	$(INSTALL) -m 644 docs/man/*.1 "$(DESTDIR)$(PREFIX)/share/man/man1"
	$(INSTALL) -D -m 644 docs/man/sluiced.8 "$(DESTDIR)$(PREFIX)/share/man/man8/sluiced.8"
	$(INSTALL) -D -m 644 docs/man/sluiced.conf.db.5 "$(DESTDIR)$(PREFIX)/share/man/man5/sluiced.conf.db.5"
	$(INSTALL) -D -m 644 docs/man/sluiced-commands.7 "$(DESTDIR)$(PREFIX)/share/man/man7/sluiced-commands.7"
	$(INSTALL) -D -m 644 docs/completion/sluice.bash "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/sluice"
	$(INSTALL) -D -m 644 docs/completion/_sluice "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sluice"
	$(INSTALL) -D -m 644 docs/completion/sluice.fish "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sluice.fish"

setup-package:
	@scripts/setup.sh package

deb: setup-package ## the Debian package, in packages of the target folder
	$(CARGO) xtask package deb

rpm: setup-package ## the RPM package, in packages of the target folder
	$(CARGO) xtask package rpm

image: setup-package ## an OCI image as a folder, in packages of the target folder
	$(CARGO) xtask package image

clean: ## remove what cargo built
	$(CARGO) clean
