# Everything runs in .venv, which is made from the package indexes when it is missing or pyproject.toml changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# test processes side by side: they wait most of the time, so one more than the cores that are asked for
WORKERS ?= 3
# whatever the shell says: hundreds of hubs and servers start in the tests, and compiling them each time takes minutes
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test check fmt bench clients chaos orphans hostile soak fuzz clean

run: $(STAMP)
	$(BIN)/mcp-hub serve --http --config servers.yaml

test: check

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) $(VENV)/bench/.installed
	BENCH_FASTMCP_PYTHON=$(abspath $(VENV))/bench/bin/python $(BIN)/python -m bench $(BENCH)

chaos: $(STAMP)
	$(BIN)/python -m tests.chaos $(CHAOS)

orphans: $(STAMP)
	$(BIN)/python -m tests.orphans $(ORPHANS)

hostile: $(STAMP)
	$(BIN)/python -m tests.hostile $(HOSTILE)

soak: $(STAMP)
	$(BIN)/python -m tests.soak $(SOAK)

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz $(FUZZ)

clients: $(STAMP)
	$(BIN)/python -m tests.clients $(CLIENTS)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mcp-hub needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	touch $@

$(VENV)/bench/.installed: $(STAMP)
	$(PYTHON) -m venv $(VENV)/bench
	$(VENV)/bench/bin/python -m pip install --quiet --disable-pip-version-check 'fastmcp>=4.1,<5'
	touch $@

clean:
	rm -rf $(VENV)
