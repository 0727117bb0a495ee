# Everything runs in .venv, made from the hashed requirements; nothing else on the machine is touched.
PYTHON ?= python3
NIGHT_SECONDS ?= 120
NIGHT_SEED ?= 1
HOURS ?= 1
BIN := .venv/bin
RUN_STAMP := .venv/.installed
DEV_STAMP := .venv/.installed-dev
LOWEST := .venv/lowest
# What speaks to Dramatiq and to Redis itself; `make test` plays its core.
LOWEST_CORE := tests/architecture/test_versions.py tests/broker tests/middleware
LOWEST_TESTS ?= $(LOWEST_CORE) tests/workers tests/beat

# Most tests wait: three at a time, each process on servers of its own. What measures real time wants the machine to itself.
# xdist would begin with the files of many tests; those of few, long ones would come last, and one core would wait.
# A test whose end hangs too (a join after its time is out) says where every thread stands, and the run ends with that.
NO_HANG := -o faulthandler_timeout=420 -o faulthandler_exit_on_timeout=true
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 $(NO_HANG) -m 'not soak and not alone'
ALONE := $(NO_HANG) -m 'alone and not soak'

.PHONY: help night up test test-lowest soak soak-tests bench bench-peers check clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

night: $(RUN_STAMP)  ## play one whole night on embedded servers (NIGHT_SECONDS=120, NIGHT_SEED=1)
	$(BIN)/python -m books.night --seconds $(NIGHT_SECONDS) --seed $(NIGHT_SEED) $(NIGHT_ARGS)

up: $(RUN_STAMP)  ## run the same fleet on the real clock until Ctrl-C
	$(BIN)/python -m books.night --real-clock --folder .up

test: $(DEV_STAMP)  ## everything: checks and tests, from nothing
	$(MAKE) check
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(TEST_ARGS)
	$(BIN)/python -m pytest $(ALONE)
	$(MAKE) test-lowest LOWEST_TESTS="$(LOWEST_CORE)"

test-lowest: $(LOWEST)/.installed  ## the broker and the workers on the lowest dramatiq and redis that pyproject.toml allows
	PYTHONPATH=$(CURDIR)/$(LOWEST) $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(LOWEST_TESTS) $(LOWEST_ARGS)
	PYTHONPATH=$(CURDIR)/$(LOWEST) $(BIN)/python -m pytest $(ALONE) $(LOWEST_TESTS)

soak: $(DEV_STAMP)  ## nights on repeat under faults of many kinds; what broke, what grew (HOURS=1, NIGHT_SECONDS=120, NIGHT_SEED=1)
	$(BIN)/python -m tests.soak --hours $(HOURS) --night-seconds $(NIGHT_SECONDS) --seed $(NIGHT_SEED) $(SOAK_ARGS)

# `make test` fuzzes with the same input each time.
soak-tests: export TEST_SEED := $(or $(TEST_SEED),$(shell date +%s))
soak-tests: $(DEV_STAMP)  ## the long tests, whole nights with a guard taken out among them, and fuzzing with input drawn anew (TEST_SEED)
	$(BIN)/python -m pytest -m soak $(TEST_ARGS)
	$(BIN)/python -m pytest tests/fuzz

bench: $(DEV_STAMP)  ## ratios against stock Dramatiq and huey, measured side by side in one run (BENCH_ARGS="--rounds 1")
	$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

PEERS := $(notdir $(basename $(wildcard requirements-peers/*.txt)))

bench-peers: $(DEV_STAMP) $(PEERS:%=.venv/peers/%/.installed)  ## the same work by celery, rq, arq, taskiq, huey and saq, in one run of about an hour (BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.peers $(BENCH_ARGS)

.venv/peers/%/.installed: requirements-peers/%.txt $(DEV_STAMP)
	$(PYTHON) -m venv .venv/peers/$*
	.venv/peers/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

check: $(DEV_STAMP)  ## ruff, mypy, import-linter, fleet check, known faults of what is locked
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/fleet check
	$(BIN)/python -m tests.dependency_audit requirements.txt requirements-dev.txt requirements-lowest.txt requirements-peers/*.txt

$(RUN_STAMP): requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(DEV_STAMP): requirements-dev.txt $(RUN_STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

$(LOWEST)/.installed: requirements-lowest.txt $(DEV_STAMP)
	rm -rf $(LOWEST)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --target $(LOWEST) -r requirements-lowest.txt
	@touch $@

clean:  ## remove what was made
	rm -rf .venv .night .up .fleet .soak
