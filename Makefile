# Two commands on a fresh machine with Python >= 3.11: `make demo` and `make test`. Each makes .venv itself.

PYTHON ?= python3
BIN := .venv/bin
CLUSTER ?= local

# Bytecode has to be written: without it each of the many processes that are started compiles torch again, which takes
# 20 seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-ci test-full campaign lint docs bench clean

# make demo CLUSTER=slurm: the same on a real Slurm, with a main queue beside it.
demo: .venv/.demo
	$(if $(filter slurm,$(CLUSTER)),CI=true scripts/install-slurm)
	$(BIN)/offcut demo --cluster $(CLUSTER)

# Four workers: what starts real agents and trainings is in three groups (xdist_group live-1 to live-3), so that at most
# three such tests run at a time, which wait more than they compute; what starts a real Slurm is in another.
PYTEST = $(BIN)/pytest -n 4 --dist loadgroup --durations=40
MORE := ci or frameworks or browser

# Compiles the solver once, which all workers would do at the same time on a fresh clone: 14 seconds of a core each.
WARM = $(BIN)/python -c "from offcut.allocate import exact; exact.warm()"

test: .venv/.ready
	scripts/install-slurm
	$(WARM)
	$(PYTEST) -m "not ($(MORE) or slow)"

# What make test leaves out for its time: the whole fault matrix, long campaigns, other people's trainers.
test-ci: .venv/.ready
	scripts/install-slurm --accounting
	$(WARM)
	scripts/install-promtool
	scripts/install-chromium
	$(PYTEST) -m "($(MORE)) and not slow"

test-full: .venv/.ready
	scripts/install-slurm --accounting
	$(WARM)
	scripts/install-promtool
	scripts/install-chromium
	$(PYTEST)

# make campaign SEEDS=1:100 JSON=1: whole systems under a simulated clock and network; see docs/faults.md.
campaign: .venv/.ready
	$(BIN)/python -m offcut.testing.campaign SEEDS=$(or $(SEEDS),1:100) $(if $(JSON),JSON=$(JSON))

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The pages; a warning is an error. Open docs/_build/html/index.html.
docs: .venv/.ready
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

# The peers that benchmarks run beside offcut, in .venv-bench: .venv-bench/bin/python benchmarks/sweep.py
bench: .venv-bench/.ready

.venv-bench/.ready: pyproject.toml constraints.txt scripts/make-venv
	PYTHON=$(PYTHON) scripts/make-venv bench
	touch $@

# What the demo needs, and everything: either may come first, and the second adds to the first.
.venv/.demo: pyproject.toml constraints.txt scripts/make-venv
	PYTHON=$(PYTHON) scripts/make-venv demo
	touch $@

.venv/.ready: pyproject.toml constraints.txt scripts/make-venv
	PYTHON=$(PYTHON) scripts/make-venv all
	touch .venv/.demo $@

clean:
	rm -rf .venv .venv-bench build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -prune -exec rm -rf {} +
