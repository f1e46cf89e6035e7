# `make demo` and `make test` do all the set-up themselves, in .venv, and only when it is due.
#
#   make demo                       a small data set from nothing: drawn, built, verified, shown
#   make test                       all tests (make test ARGS="-k keys" for some of them)
#   make check                      linters and types
#   make demo PYTHON=python3.12     with a Python of your choice (3.10 to 3.13)
#   make clean                      remove .venv and demo/

SHELL := /bin/sh
VENV ?= .venv
DEMO ?= demo
PAIRS ?= 200
ARGS ?=
BIN ?= $(VENV)/bin

# The set-up is up to date while these are younger than the files they were made from.
READY = $(VENV)/.ready
READY_DEV = $(VENV)/.ready-dev

# A .venv that is there is used as it is; asking for another Python must not pass unnoticed.
ifneq ($(PYTHON),)
ifeq ($(filter clean help,$(MAKECMDGOALS)),)
ifneq ($(wildcard $(VENV)/bin/python),)
WANTED := $(shell $(PYTHON) -V 2>&1)
FOUND := $(shell $(VENV)/bin/python -V 2>&1)
ifneq ($(WANTED),$(FOUND))
$(error $(VENV) has $(FOUND), PYTHON=$(PYTHON) is $(WANTED): 'make clean' first, or give a VENV=DIR of its own)
endif
endif
endif
endif

.PHONY: help demo test check check-lint check-format check-types setup clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   //p' Makefile

demo: $(READY)
	@$(BIN)/python examples/demo.py $(DEMO) --pairs $(PAIRS)

test: $(READY_DEV)
	$(BIN)/python -m pytest $(ARGS)

check: check-lint check-format check-types

check-lint: $(READY_DEV)
	$(BIN)/ruff check .

check-format: $(READY_DEV)
	$(BIN)/ruff format --check .

check-types: $(READY_DEV)
	$(BIN)/mypy

setup: $(READY_DEV)

clean:
	rm -rf .venv demo

# The first of these that runs and is of a version that all the pinned packages have.
CANDIDATES = python3 python3.13 python3.12 python3.11 python3.10
IS_SUPPORTED = import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))
NEEDED = Python 3.10, 3.11, 3.12 or 3.13

$(VENV)/bin/pip:
	@python='$(PYTHON)'; \
	if [ -n "$$python" ]; then \
	  "$$python" -c 'pass' || { echo "make: PYTHON=$$python does not run." >&2; exit 1; }; \
	  "$$python" -c '$(IS_SUPPORTED)' || { \
	    echo "make: PYTHON=$$python is $$("$$python" -V 2>&1); $(NEEDED) is needed." >&2; exit 1; }; \
	else \
	  for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c '$(IS_SUPPORTED)' 2>/dev/null; then python=$$candidate; break; fi; \
	  done; \
	  [ -n "$$python" ] || { \
	    echo "make: $(NEEDED) is needed, and none is on the PATH (python3 is" \
	      "$$(python3 -V 2>&1 || echo missing)). Install one, or say where it is:" \
	      "make PYTHON=/path/to/python3.12 …" >&2; exit 1; }; \
	fi; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: $$python ($$("$$python" -V)) can't make a virtual environment: its modules venv" \
	    "and ensurepip are a package of their own here. Install that (Debian, Ubuntu: apt install" \
	    "python3-venv), or name another Python: make PYTHON=/path/to/python3.12 …" >&2; exit 1; }; \
	echo "Making $(VENV) with $$("$$python" -V)."; \
	"$$python" -m venv $(VENV)

$(READY): requirements.txt setup.py pyproject.toml $(VENV)/bin/pip
	@echo "Installing the pinned packages into $(VENV) (once; 2 GB on disk, a minute or more) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation --editable .
	@touch $@

$(READY_DEV): requirements-dev.txt $(READY)
	@echo "Installing what the tests need beside them …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@
