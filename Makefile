# The two commands of the README are `make run` and `make test`.
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test pytest lint format docs bench bench-own soak install uninstall servers venv dev clean

run: venv
	@$(BIN)/infercost run

# Two at a time, each of which leaves a core idle by itself. A worker takes whole files, for the
# servers that their tests share.
test:
	@$(MAKE) --no-print-directory -j2 dev servers
	@$(MAKE) --no-print-directory -j2 lint pytest

pytest: dev
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

lint: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation as a site, in build/site; tests/docs builds it too and fails on any warning.
docs: dev
	$(BIN)/python -m scripts.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Ours beside others, one table; BENCH=--long for figures to be told. bench-own is what needs no peer.
bench: dev servers
	$(BIN)/python bench/run.py $(BENCH)

bench-own: dev
	$(BIN)/python bench/agreement.py
	$(BIN)/python bench/store_size.py
	$(BIN)/python bench/detection.py
	$(BIN)/python bench/forecast.py

# As root: the service, its user and its sandbox; `make uninstall PURGE=--purge` leaves nothing.
install: venv
	$(BIN)/infercost service install

uninstall:
	$(BIN)/infercost service uninstall $(PURGE)

soak: dev servers
	$(BIN)/python bench/soak.py

servers:
	@scripts/servers

venv:
	@scripts/setup $(VENV)

dev:
	@scripts/setup $(VENV) dev

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
