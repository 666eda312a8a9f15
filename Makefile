# What a developer runs. Everything happens in .venv, installed from requirements.lock; nothing else is touched.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
INTEROP := $(VENV)/.interop
DOCS := $(VENV)/.docs
export NO_MKDOCS_2_WARNING := 1
# Tests on two processes, a file on one: what a file's tests share is made once. JOBS=1 for one.
JOBS ?= 2
PROCESSES = -n $(JOBS) --dist loadfile
PIP := $(BIN)/python -m pip --quiet --no-input --disable-pip-version-check

# A Python that can make a virtual environment. Some systems ship one without venv: it is passed over.
CAN_SERVE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
define find_python
	python=; \
	for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
		if $$candidate -c '$(CAN_SERVE)' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "No Python 3.11 or newer with its venv module was found: install one (Debian, Ubuntu: python3 and python3-venv), or name it: make setup PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi
endef

.PHONY: help setup demo docs test test-all test-lerobot test-pythons test-trackers dist lint format bench pictures ledger lock clean

help:
	@echo "make setup     the virtual environment in .venv, installed from requirements.lock"
	@echo "make demo      train DCP on a maze; about three minutes, results in runs/demo"
	@echo "make docs      the documentation as a site, at http://127.0.0.1:8000"
	@echo "make test      lint, types, import contracts, tests"
	@echo "make test-all  the same with the slow tests; installs PyTorch, Stable-Baselines3 and MkDocs for some of them"
	@echo "make test-pythons  the wheel in an empty environment on each Python 3.11 to 3.13 that is here, without the lock file"
	@echo "make dist      the wheel and the source distribution, in dist/"
	@echo "make test-lerobot  our LeRobot plugins in the real LeRobot: an environment of its own, several GB the first time"
	@echo "make test-trackers  runs that log to the real W&B, offline, and the real trackio: an environment of its own"
	@echo "make lint      lint, types, import contracts"
	@echo "make format    ruff's formatting and safe fixes"
	@echo "make bench     every benchmark; each ends with one line of JSON"
	@echo "make pictures  the pictures of docs/environments.md, from the models themselves"
	@echo "make ledger    check every entry of the ledger of results, and its tables"
	@echo "make lock      requirements.lock and requirements-docs.lock anew from pyproject.toml (UPGRADE=1: newest versions)"
	@echo "make clean     remove .venv and caches; runs stay"

setup: $(STAMP)

# The stamp holds the folder's path: an environment that was moved or copied here is made anew.
ifneq ($(wildcard $(STAMP)),)
ifneq ($(shell cat $(STAMP)),$(CURDIR))
.PHONY: $(STAMP)
endif
endif

$(STAMP): requirements.lock pyproject.toml
	@if [ -f $(STAMP) ] && [ "$$(cat $(STAMP))" != "$(CURDIR)" ]; then rm -rf $(VENV); fi
	@if ! $(BIN)/python -c 'import pip; $(CAN_SERVE)' >/dev/null 2>&1; then \
		$(find_python); \
		echo "setup: $(VENV) with $$($$python --version)"; \
		$$python -m venv --clear $(VENV) || exit 1; \
	fi
	@echo "setup: installing the $$(grep -c '^[A-Za-z0-9]' requirements.lock) locked packages (a minute or more the first time)"
	@$(PIP) install --no-deps --require-hashes --only-binary :all: -r requirements.lock
	@echo "setup: installing dcp from src"
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@problems=$$($(BIN)/python -m pip check 2>&1) || { echo "$$problems: requirements.lock does not fit pyproject.toml: run make lock" >&2; exit 1; }
	@printf '%s\n' "$(CURDIR)" > $(STAMP)
	@echo "setup: done"

# PyTorch and Stable-Baselines3, for the tests that train with them. What is locked is held at its version.
$(INTEROP): requirements-interop.lock $(STAMP)
	@echo "setup: installing Stable-Baselines3 and PyTorch for the slow tests (a minute or more the first time)"
	@sed -n '/^[A-Za-z0-9]/s/ *\\$$//p' requirements.lock > $(INTEROP).constraints
	@$(PIP) install --only-binary :all: -r requirements-interop.lock --constraint $(INTEROP).constraints
	@problems=$$($(BIN)/python -m pip check 2>&1) || { echo "$$problems: requirements-interop.lock does not fit requirements.lock" >&2; exit 1; }
	@touch $(INTEROP)

# MkDocs and what runs notebooks, for the site and its tests.
$(DOCS): requirements-docs.lock $(STAMP)
	@echo "setup: installing MkDocs and nbclient (half a minute the first time)"
	@$(PIP) install --no-deps --require-hashes --only-binary :all: -r requirements-docs.lock
	@touch $(DOCS)

docs: $(DOCS)
	@$(BIN)/python -m mkdocs serve --dev-addr 127.0.0.1:8000

DEMO := runs/demo/point_u_maze/dcp/seed_0
demo: setup
	@$(BIN)/dcp train --preset demo --runs-dir runs/demo --overwrite
	@echo
	@echo "Look at $(DEMO)/plots/: landscape.png, learning_curve.png and episode.gif."
	@echo "What to try next:"
	@echo "  drag the goal:       $(BIN)/dcp explore $(DEMO)"
	@echo "  train the baseline:  $(BIN)/dcp train --preset demo --method crl --runs-dir runs/demo"
	@echo "  then compare them:   $(BIN)/dcp eval $(DEMO) runs/demo/point_u_maze/crl/seed_0"
	@echo "  see a trained ant:   $(BIN)/dcp render zoo/ant_u_maze/dcp"
	@echo "  write your own part: docs/your_own_parts.md"

lint: setup
	@echo "lint: ruff check"
	@$(BIN)/ruff check .
	@echo "lint: ruff format"
	@$(BIN)/ruff format --check --output-format concise . || { echo "not formatted: run make format" >&2; exit 1; }
	@echo "lint: types"
	@$(BIN)/basedpyright
	@echo "lint: import contracts"
	@$(BIN)/lint-imports --no-logo

test: lint
	@echo "test: all but the slow ones"
	@$(BIN)/python -m pytest -m "not slow" $(PROCESSES)

test-all: lint $(INTEROP) $(DOCS)
	@echo "test: all, compiled as for a user"
	@DCP_TESTS_COMPILE=shipped $(BIN)/python -m pytest $(PROCESSES)

dist: setup
	@rm -rf build dist
	@$(BIN)/python -m build --no-isolation --outdir dist . > /dev/null
	@ls dist

# PYTHONS="/path/to/python3.12 ..." names the interpreters; else those that are found.
test-pythons: dist
	@$(BIN)/python -m tests.support.pythons dist/*.whl $(PYTHONS)

# trackio wants an older Pillow than requirements.lock has, so it and W&B have an environment of their own.
TRACKERS_VENV ?= .venv-trackers
test-trackers:
	@if ! $(TRACKERS_VENV)/bin/python -c 'import dcp, wandb, trackio, pytest' >/dev/null 2>&1; then \
		$(find_python); \
		echo "setup: $(TRACKERS_VENV) with W&B and trackio (a minute or more the first time)"; \
		$$python -m venv --clear $(TRACKERS_VENV) && \
		$(TRACKERS_VENV)/bin/python -m pip install --quiet --no-input --disable-pip-version-check --editable '.[wandb,trackio]' pytest || exit 1; \
	fi
	@$(TRACKERS_VENV)/bin/python -m pytest tests/runs/test_tracking.py

# LeRobot wants Python 3.12 and a torch of its own, so it has an environment of its own. LEROBOT_VENV: where.
LEROBOT_VENV ?= .venv-lerobot
PYTHON312 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.12*/bin/python3.12) python3.12)
test-lerobot:
	@if ! $(LEROBOT_VENV)/bin/python -c 'import lerobot, lerobot_policy_dcp, lerobot_env_dcp, pytest' >/dev/null 2>&1; then \
		echo "setup: $(LEROBOT_VENV) with LeRobot 0.6.1 and its torch (several GB)"; \
		$(PYTHON312) -m venv $(LEROBOT_VENV) && \
		$(LEROBOT_VENV)/bin/python -m pip install --quiet --no-input --disable-pip-version-check 'lerobot[dataset]==0.6.1' 'torch<2.12' pytest 'setuptools>=75' \
			--editable '.[gym,video]' && \
		$(LEROBOT_VENV)/bin/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps --no-build-isolation \
			--editable lerobot_plugins/lerobot_policy_dcp --editable lerobot_plugins/lerobot_env_dcp || exit 1; \
	fi
	@$(LEROBOT_VENV)/bin/python -m pytest -q -p no:cacheprovider -c /dev/null --rootdir lerobot_plugins lerobot_plugins/test_plugins.py

format: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup
	@for name in learner hindsight methods environments iteration checkpoint latency controller gymnasium_steps report seeds sharding diagnose engines scaling explore_frames normalising; do echo "bench: $$name"; $(BIN)/python benchmarks/$$name.py || exit 1; done

pictures: setup
	@$(BIN)/python -m tools.docs.environment_pictures

ledger: setup
	@$(BIN)/python -m tools.ledger check

# Needs the network, but no working .venv: a broken lock must not stand in its own way.
lock:
	@$(find_python); \
	tool=$$(mktemp -d); trap 'rm -rf "$$tool"' EXIT; trap 'exit 1' HUP INT TERM; \
	echo "lock: fetching uv"; \
	$$python -m venv "$$tool" && "$$tool/bin/python" -m pip install --quiet --no-input --disable-pip-version-check uv || exit 1; \
	echo "lock: resolving"; \
	"$$tool/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header $(if $(UPGRADE),--upgrade) --extra dev pyproject.toml --output-file requirements.lock || exit 1; \
	"$$tool/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
		$(if $(UPGRADE),--upgrade) --group docs --constraint requirements.lock --output-file requirements-docs.lock

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
