# One line each: what a target does stands beside it. `make demo` and `make test` need only
# Python 3.11+, a Rust toolchain and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
ENGINE_VENV := $(or $(THUNDER_ENGINE_VENV),.engine/venv)
RUST := $(shell find rust Cargo.toml Cargo.lock -name '*.rs' -o -name '*.toml' -o -name '*.lock' 2>/dev/null)

# Asked before anything is downloaded, and again before each build.
NEEDS_RUST = command -v cargo >/dev/null || { echo "error: a Rust toolchain is needed to build the native core (cargo was not found): see rustup.rs" >&2; exit 1; }

.PHONY: setup build demo check format test test-rust test-python test-properties test-packaging bench clean test-docker test-engine
.DEFAULT_GOAL := test

setup: $(STAMP)          ## the virtual environment with the package and its tools

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "error: Python 3.11 or newer is needed ($(PYTHON) was not found)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; $(PYTHON) is older. Try make PYTHON=python3.12" >&2; exit 1; }
	@$(NEEDS_RUST)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

$(VENV)/.dependencies: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --group dev
	@touch $@

$(STAMP): $(VENV)/.dependencies $(RUST)
	@$(NEEDS_RUST)
	PIP_QUIET=1 $(BIN)/maturin develop --release --quiet
	@touch $@

demo: $(STAMP)           ## emulated workers, agent programs, and what scheduling gained
	$(BIN)/python -m bench.demo

check: $(STAMP)          ## everything a machine can judge without running the tests
	cargo fmt --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
	sh rust/walls.sh
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest thunder_router._core --allowlist rust/py/stubtest.allow
	$(BIN)/lint-imports

format:                  ## let the formatters have their way
	cargo fmt
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

test: test-rust test-python

test-rust: $(STAMP)
	cargo test --quiet --workspace

test-properties: $(STAMP) ## new random histories: the core against its naive model, two million events in two minutes
	PROPTEST_CASES=27000 cargo test --quiet --package thunder-core --test model

test-python: $(STAMP)
	$(BIN)/pytest -q

test-packaging: $(STAMP) ## the wheel and the sdist, built, installed and run
	$(BIN)/pytest -q -m packaging

test-docker: $(STAMP)    ## environments on a real engine at full size: 200 programs, 30 s of a hung engine
	THUNDER_DOCKER_PROGRAMS=200 THUNDER_DOCKER_HANG_S=30 $(BIN)/pytest -q -m docker --timeout 600

test-engine: $(STAMP)    ## the router over two real SGLang on this CPU; the first run installs 3 to 6 GB
	tests/engine/recipe/install.sh $(ENGINE_VENV)
	THUNDER_ENGINE_VENV=$(ENGINE_VENV) $(BIN)/pytest -q -m engine tests/engine

bench: $(STAMP)          ## the measured tables of bench/README.md
	cargo bench --quiet
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) target dist
