# Every target that needs the environment makes it first: Python 3.11+ and make are all a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests of one file stay in one process, and so do all that need the Ray cluster.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadgroup
LONG := integration or cluster or browser or learn or optimized

.PHONY: setup demo test test-all test-peers browser lint types bench same-bits clean

setup: $(READY)  ## make the environment

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "bootdqn needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) (about a minute, a gigabyte)"
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
		uv pip install --quiet --python $(BIN)/python -e '.[dev]'; \
	else \
		$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'; \
	fi
	@touch $(READY)

demo: $(READY)  ## four agents on a problem that needs deep exploration, in a few minutes
	$(BIN)/bootdqn demo

test: $(READY)  ## fast tests, in a few minutes
	$(PYTEST) -m "not ($(LONG) or peers)"

test-all: $(READY)  ## the long tests, too
	$(PYTEST) -m "not peers" --durations=40

test-peers: $(READY)  ## against bsuite, which it installs
	@if command -v uv >/dev/null 2>&1; then \
		uv pip install --quiet --python $(BIN)/python -e '.[dev,peers]'; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,peers]'; \
	fi
	$(BIN)/python -m pytest -m peers

browser:  ## Debian's Chromium, in which the report page is tested
	@command -v chromium >/dev/null || { \
		sudo=$$(test $$(id -u) = 0 || echo sudo); install="$$sudo apt-get install -qq --no-install-recommends chromium"; \
		$$install >/dev/null || { $$sudo apt-get update -qq && $$install >/dev/null; }; \
	}
	@chromium --version

lint: $(READY)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## static types
	$(BIN)/pyright

bench: $(READY)  ## speed on this machine
	$(BIN)/bootdqn bench chain

same-bits: $(READY)  ## checksums of short runs of every kind, to compare two versions of the source
	@$(BIN)/python tests/same_bits.py

clean:  ## remove what the targets made
	rm -rf $(VENV) .pytest_cache .jax_cache .ruff_cache .hypothesis demo-run
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
