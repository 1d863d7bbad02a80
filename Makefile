# make run     sets up and starts the demo     make test    sets up and runs every test
# make check   the fast part: format, lint, types, layers, unit tests        make bench    the numbers of the README
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
TEST_PROCESSES ?= 3
# Where this is set, every process would compile what it imports anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run setup test test-cluster check lint bench bench-kube pictures browser kube clean

run: $(READY)
	@$(BIN)/poise up --demo $(ARGS)

setup: $(READY)

# Most tests wait for leases to end: three files of tests run side by side, and what only computes behind them.
test: lint browser kube
	$(BIN)/python -m tools.run_tests $(TEST_PROCESSES)

# The tests on a real Kubernetes alone.
test-cluster: $(READY) kube
	$(BIN)/python -m pytest -m cluster tests/cluster

check: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks

# The figures of the sharder, on a real Kubernetes.
bench-kube: $(READY) kube
	$(BIN)/python -m benchmarks.kube $(ARGS)

# Every picture of the docs, from the running demo.
pictures: $(READY) browser
	$(BIN)/python -m tools.pictures

# The tests of the page drive a real browser. Where Debian's packages can be installed it is; else this says how.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  echo "Installing Chromium for the tests of the page (once) ..."; \
	  { command -v apt-get >/dev/null && test "$$(id -u)" = 0 && apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null; } \
	  || { echo "The tests of the page need Chromium: install it (on Debian: sudo apt-get install chromium), then try again"; exit 1; }; }

# The real control plane that tests/cluster runs, and what installs on it, are built from their Go modules, once, and kept
# outside the checkout.
kube: $(READY)
	@$(BIN)/python tools/kube/build.py

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# The stamp is older than a changed list of packages: then they are installed again.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Poise needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "Python cannot make a virtual environment here (on Debian: apt-get install python3-venv)"; exit 1; }
	@echo "Installing into .venv (once) ..."
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@
