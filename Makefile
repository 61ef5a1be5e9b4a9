# The two commands of the README are `make run` and `make test`.
VENV ?= .venv
BIN := $(VENV)/bin
# Bytecode is cached even if the environment forbids it: the tests start many processes, and pytest
# rewrites every assertion, the first time in one process instead of in each worker. A worker runs
# whole files, because the tests of a file share their servers; four of them keep two cores busy.
PYTHON_M := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m
COMPILE_TESTS := test -d tests/__pycache__ || $(PYTHON_M) pytest --collect-only --quiet >/dev/null || true
PYTEST := $(PYTHON_M) pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: run test test-fast pytest other-pythons lint format docs bench bench-own soak packages install uninstall servers venv dev clean

run: venv
	@$(BIN)/costprobe run

# Two targets at a time: each of them leaves a core idle by itself, and `lint` is done first.
test:
	@$(MAKE) --no-print-directory -j2 dev servers
	@PYTHONPATH=tests $(BIN)/python -m fakes.prepare
	@$(MAKE) --no-print-directory -j2 lint pytest other-pythons

# The tests without processes, servers and browsers, in at most 90 seconds.
test-fast: dev
	@$(COMPILE_TESTS)
	$(PYTEST) -m "not processes and not gpu and not soak"

pytest: dev
	@$(COMPILE_TESTS)
	$(PYTEST)

# The tests of arithmetic, on the other Pythons of this machine.
other-pythons: dev
	@scripts/other_pythons $(VENV)

lint: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation as a site, in build/site; tests/docs builds it too and fails on any warning.
docs: dev
	$(BIN)/python -m scripts.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Compares costprobe with other tools; BENCH=--long for publishable figures. bench-own needs no peer.
bench: dev servers
	$(BIN)/python bench/run.py $(BENCH)

bench-own: dev
	$(BIN)/python bench/agreement.py
	$(BIN)/python bench/store_size.py
	$(BIN)/python bench/detection.py
	$(BIN)/python bench/token_split.py
	$(BIN)/python bench/report_speed.py

# The wheel, the source distribution, the .deb and the .rpm, in dist; docs/contributing/release.md.
packages: dev
	scripts/packages $(VENV)

# As root: the service, its user and its sandbox. PURGE=--purge also deletes configuration and store.
# Root writes no bytecode into the checkout, which belongs to another user.
install: venv
	PYTHONDONTWRITEBYTECODE=1 $(BIN)/costprobe install

uninstall:
	PYTHONDONTWRITEBYTECODE=1 $(BIN)/costprobe uninstall $(PURGE)

# The tests that are too long for `make test`, and the long versions of others: hours.
soak: dev servers
	$(BIN)/python -m pytest -m soak --ignore=tests/engines
	$(BIN)/python bench/soak.py

servers:
	@scripts/servers

venv:
	@scripts/setup $(VENV)

dev:
	@scripts/setup $(VENV) dev

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
