# make install | run | demo | test | test-lowest | check | protocol | clients | oracle | bench | bench-eos | sim | mutants | mutants-by-hand | mutants-sim | fuzz | torture | torture-pair | torture-spark | two-phase | two-phase-spark | spark-cluster | spark-long | docs | docs-pages | dist. Everything is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ORACLE ?= ../shared/oracle
TESTS ?= tests
PROCESSES ?= 2
SEEDS ?= 1000
SAMPLE ?= 400
MINUTES ?= 3
ROUNDS ?= 20

.PHONY: install run demo test test-quick test-lowest check protocol clients oracle bench bench-eos bench-scale sim mutants mutants-by-hand mutants-sim fuzz torture torture-pair torture-spark two-phase two-phase-spark spark-cluster spark-long docs docs-pages dist clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Barnabas needs Python 3.11 or later: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The broker alone needs a fraction of what development does.
$(VENV)/.broker: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Barnabas needs Python 3.11 or later: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

run: $(VENV)/.broker
	@exec $(BIN)/barnabas start --port 9092 --data-dir ./data

demo: install
	$(BIN)/python -m barnabas.demo

test: install
	$(BIN)/python -m pytest -q -n $(PROCESSES) $(TESTS)

test-quick: install
	$(BIN)/python -m pytest -q tests/unit tests/property

# With the lowest versions of dependencies that pyproject.toml allows, in a venv of their own.
test-lowest: install
	PYTHONPATH=tests:. $(BIN)/python -m lowest

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@! $(BIN)/vulture | grep -vE '(^|/)(tests|bench|examples|docs|messages)/|(^|/)errors\.py'

# The modules of protocol/messages/, from the schemas that kafka-python ships.
protocol: install
	$(BIN)/python -m barnabas.protocol.generator

# Clients in other languages, for docs/GETTING_STARTED.md's tests: what this machine can have.
clients:
	@tests/clients/fetch.sh

oracle: install
	@PYTHONPATH=tests:. $(BIN)/python -m oracle $(ORACLE)

bench: install
	$(BIN)/python -m bench

# Half an hour; on a quiet machine. Writes the table, the raw figures and the plots of docs/EXACTLY_ONCE_COST.md.
bench-eos: install
	$(BIN)/python -m bench.eos --publish docs

# Some minutes. Writes the plots of docs/SCALE.md; the table is printed.
bench-scale: install
	$(BIN)/python -m bench.scale --publish docs

sim: install
	PYTHONPATH=tests:. $(BIN)/python -m sim --seeds $(SEEDS)

# What unit and property tests find of mistakes that are put in one at a time. SAMPLE=all takes hours.
mutants: install
	PYTHONPATH=tests:. $(BIN)/python -m mutants --sample $(SAMPLE) --processes $(PROCESSES)

# Mistakes made by hand, each with the tests that have to find it: a few seconds each.
mutants-by-hand: install
	PYTHONPATH=tests:. $(BIN)/python -m mutants.by_hand

# What 500 seeds of the simulator find of a sample that was judged to lose, double, hide or reveal data.
mutants-sim: install
	PYTHONPATH=tests:. $(BIN)/python -m mutants --sim 500 --judged --processes $(PROCESSES)

# A hundred thousand mutated requests, as many frames of somebody who has no password, and of every API
# and version the largest requests that there can be.
fuzz: install
	PYTHONPATH=tests:. $(BIN)/python -m fuzz
	PYTHONPATH=tests:. $(BIN)/python -m fuzz --intruder
	PYTHONPATH=tests:. $(BIN)/python -m fuzz.ordeal

torture: install
	PYTHONPATH=tests:. $(BIN)/python -m torture.clients --minutes $(MINUTES)

# Two daemons that share a lease, and an etcd (`apt-get install etcd-server`).
torture-pair: install
	PYTHONPATH=tests:. $(BIN)/python -m torture.pair --minutes $(MINUTES)

# Two-phase commit with PostgreSQL: the writer, the broker and the database, killed at each step.
two-phase: install
	$(BIN)/python examples/guarantees/two_phase_crash.py --rounds $(ROUNDS)

# The same through Spark: whole drivers are killed, too. A quarter of an hour.
two-phase-spark: install
	$(BIN)/python examples/guarantees/two_phase_spark_crash.py

torture-spark: install
	PYTHONPATH=tests:. $(BIN)/python -m torture.spark_pipeline --minutes $(MINUTES)

# The Spark tests that are too long for every run: some minutes. One of them needs etcd.
spark-long: install
	$(BIN)/python -m pytest -q -m spark_long tests/spark

# docs/SPARK_CLUSTER.md as it is written, and a take-over under a query (needs etcd). Some minutes.
spark-cluster: install
	test -x build/s3/bin/moto_server || { $(PYTHON) -m venv build/s3 && build/s3/bin/pip install --quiet 'moto[server]'; }
	PYTHONPATH=tests:. $(BIN)/python -m torture.spark_cluster --s3-server build/s3/bin/moto_server

# The pages of docs/ that are made from the code: settings, requests, error codes, commands.
docs-pages: install
	$(BIN)/python docs/pages.py

# The site, in build/site; a link that leads nowhere fails it.
docs: docs-pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "built: open build/site/index.html, or, to search it, $(BIN)/python -m http.server -b 127.0.0.1 -d build/site"

# The wheel and the sdist, in dist/, after they were tried on each Python that we support.
dist: install
	BARNABAS_PYTHONS="3.11 3.12 3.13" $(BIN)/python -m pytest -q tests/e2e/test_distributions.py
	$(BIN)/python -m build --no-isolation --outdir dist .

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
