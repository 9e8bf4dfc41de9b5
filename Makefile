# `make help` lists the targets, with the text after ##.

VENV := build/venv
PY := $(VENV)/bin/python
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $$python && break; done)
SPARK = $(wildcard $(VENV)/lib/python3*/site-packages/pyspark)

# Tests use the pinned Spark, and its workers find the package in the checkout.
unexport SPARK_HOME PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
export PYTHONPATH := .

# Each worker has its own Spark and its own brokers, and takes 2 GiB or more.
WORKERS := 2

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help try demo example notebooks notebook-outputs test test-changed test-thorough test-all test-fast lint format bench accuracy wheel \
	docs venv jars class-archive check-java clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# In an environment that has Spark already, nothing is installed.
try: $(VENV)/.$(if $(wildcard $(VENV)/.installed),installed,light) ## show a recorded example and its report, without Kafka, Spark and Java
	$(PY) -m jobs try $(ARGS)

demo: check-java jars ## run the whole pipeline on an embedded Kafka; KEEP=1 leaves Kafka and its workload running
	KEEP=$(KEEP) $(PY) -m demo

example: check-java jars ## pack the example of `make try` anew, after a change of the tables or the report
	$(PY) -m scripts.pack_example $(ARGS)

RECORDING := legacy-a2-blocked

notebooks: check-java jars $(VENV)/.notebooks build/recording/.replayed ## open the notebooks in a browser
	PYTHONPATH=$(CURDIR) $(PY) -m jupyterlab notebooks $(ARGS)

notebook-outputs: check-java venv jars build/recording/.replayed ## run the notebooks and store their outputs; call KEEP=1 make demo first
	PYTHONPATH=$(CURDIR) $(PY) scripts/run_notebooks.py

PYTEST := $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: check-java venv jars ## run the tests that CI runs; WORKERS=2 at a time, ARGS="-k name" for some
	$(PYTEST) -m "not lengthy and not tool" $(ARGS)

test-changed: check-java venv jars ## run the tests that a change can break; SINCE=commit, else since the merge base with main
	@files=$$($(PY) -m scripts.changed_tests $(SINCE)) || exit 1; test -z "$$files" || \
		$(PYTEST) -m "not lengthy and not tool" $$files $(ARGS)

test-thorough: check-java venv jars ## of these, only those that take 10 s or more: several jobs at the same time, killed jobs, recordings
	$(PYTEST) -m "thorough and not lengthy and not tool" $(ARGS)

test-all: check-java venv jars ## run all tests, also with other runtimes, killed jobs, Airflow; needs Chromium, systemd-analyze, Databricks' CLI
	HYPOTHESIS_PROFILE=thorough $(PYTEST) $(ARGS)

test-fast: check-java venv jars ## run the quick tests: no broker, no lake, no Spark Connect
	$(PY) -m pytest -m "not kafka and not connect and not slow and not thorough and not lengthy and not tool" $(ARGS)

lint: venv ## check with ruff and mypy, as CI does
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

format: venv ## let ruff correct and format what it can
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

bench: check-java venv jars ## measure how long things take; writes docs/benchmarks.md
	$(PY) -m benchmarks $(ARGS)

accuracy: check-java venv jars ## measure how far lag is from the truth (ARGS=lag, busy, alerts or forecasts: only that); writes docs/accuracy.md
	$(PY) -m benchmarks.accuracy $(ARGS)

wheel: venv jars ## build the package for a cluster that has its own Spark, into dist/
	rm -rf build/lib dist
	cp build/laglake-log-stores.jar pipeline/lake/
	$(PY) -m build --wheel --no-isolation

docs: venv ## write the pages that come from the code, and build all of docs/ into build/site
	$(PY) -m scripts.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

venv: $(VENV)/.dev ## install the dependencies and the tools for development, but not the project, into build/venv

jars: $(VENV)/.jars ## install Delta's jars into the Spark of build/venv

check-java: ## check that there is a Java on which Spark can run
	@scripts/check-java.sh

class-archive: check-java jars ## archive the classes of Java that a job uses, so that each job on this machine needs a fifth less CPU time
	scripts/archive-classes.sh

clean: ## remove everything that was built, including the demo's data in build/
	rm -rf build dist laglake.egg-info .pytest_cache .mypy_cache .ruff_cache pipeline/report/page/vega-*.js
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment: `.light` has what `make try` needs, `.local` what jobs with --local need; `.installed`
# has Spark, `.dev` and `.notebooks` add to that.
INSTALL = $(PY) scripts/install.py
MAKE_RUNTIME = $(PY) -c 'from pipeline.report.charts.vega import runtime; runtime()'
REQUIREMENTS := setup.cfg constraints.txt scripts/requirements.py scripts/install.py

$(PY):
	@test -n "$(PYTHON)" || { echo "laglake needs Python 3.11 or newer, and there is none on PATH. Install one, \
	or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.light: $(REQUIREMENTS) | $(PY)
	@$(PY) scripts/requirements.py --light > build/requirements-light.txt
	@$(INSTALL) "what make try needs" build/requirements-light.txt
	@$(MAKE_RUNTIME)
	@touch $@

$(VENV)/.local: $(VENV)/.light
	@$(PY) scripts/requirements.py connect > build/requirements-local.txt
	@$(INSTALL) "what jobs with --local need" build/requirements-local.txt
	@touch $@

# PySpark's client and PySpark have the same modules, so the one must be gone before the other comes. It goes only when
# everything has been fetched: without a network, the jobs without Spark still work.
$(VENV)/.installed: $(REQUIREMENTS) | $(PY)
	@$(PY) scripts/requirements.py spark > build/requirements.txt
	@$(INSTALL) "Spark and what laglake needs" build/requirements.txt $(VENV)/.light
	@$(MAKE_RUNTIME)
	@rm -f $(VENV)/.local
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(PY) scripts/requirements.py spark dev > build/requirements-dev.txt
	@$(INSTALL) "the tools for development" build/requirements-dev.txt
	@touch $@

$(VENV)/.notebooks: $(VENV)/.installed
	@$(PY) scripts/requirements.py spark notebooks > build/requirements-notebooks.txt
	@$(INSTALL) "JupyterLab" build/requirements-notebooks.txt
	@touch $@

# The recording that notebook 03 explains.
build/recording/.replayed: tests/data/recordings/$(RECORDING).tar.xz $(VENV)/.jars
	rm -rf $(@D)
	mkdir -p $(@D)
	tar -xf $< -C $(@D)
	./spark-submit.sh replay --config conf/local.toml --lake $(CURDIR)/$(@D)/lake --recording $(@D)/$(RECORDING)
	@touch $@

$(VENV)/.jars: $(VENV)/.installed conf/spark-defaults.conf scripts/install-delta.sh scripts/build-log-stores.sh \
		pipeline/lake/FolderLogStore.scala pipeline/lake/S3LogStore.scala
	@scripts/check-java.sh
	scripts/install-delta.sh $(SPARK) build/delta
	scripts/build-log-stores.sh $(SPARK) build/laglake-log-stores.jar
	rm -f $(SPARK)/jars/laglake-*.jar
	cp build/laglake-log-stores.jar $(SPARK)/jars/
	@touch $@
