# `make` or `make help` lists the targets: each has its line after `##`, each group after `##@`.
# Everything is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tests have packages of their own: sim, fuzz, torture, mutants ...
TESTS_PATH := PYTHONPATH=tests/tools:tests:.
# Where an image sets it, each broker and command of a test would compile all its modules again:
# half a second of CPU for a broker.
unexport PYTHONDONTWRITEBYTECODE
# pip compiles what it copies, but not a checkout: where Python may write no bytecode, each start
# would compile the broker. An edited file is compiled at its import.
COMPILE = $(BIN)/python -m compileall -q barnabas broker coordinator protocol storage
# Spark's classes, for each Java of the tests: its start takes half of the time then.
JAVA_CLASSES := build/spark-classes.jsa
ORACLE ?= ../shared/oracle
TESTS ?= tests
# more than cores: many tests wait for a broker or a client, not for a core
PROCESSES ?= 3
SEEDS ?= 1000
SAMPLE ?= 400
MINUTES ?= 3
ROUNDS ?= 20

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\#.*/\1/p' Makefile)

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

##@ Use it
install: $(VENV)/.installed ## everything that development needs, into .venv
run: $(VENV)/.broker ## a broker on port 9092, with its data in ./data
	@exec $(BIN)/barnabas start --port 9092 --data-dir ./data
demo: install ## real flights in transactions, a kill of the broker, and a count by Spark
	$(BIN)/python -m barnabas.demo

##@ Check a change
check: install ## linters, types, import rules, unused code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@! $(BIN)/vulture | grep -vE "^(bench|docs|examples)/|/messages/|/internal_records/|^protocol/errors\.py|/settings/rows_"
test: install $(JAVA_CLASSES) ## the tests of the whole behaviour, TESTS=PATH some; in PROCESSES=3
	$(BIN)/python -m pytest -q -n $(PROCESSES) $(TESTS)
test-deep: install $(JAVA_CLASSES) ## tests that dig deeper: fuzzers, crash images, kills, each client
	$(BIN)/python -m pytest -q -n $(PROCESSES) -m deep $(TESTS)
test-all: install $(JAVA_CLASSES) ## both in one run, as continuous integration does
	$(BIN)/python -m pytest -q -n $(PROCESSES) -m "deep or not deep" $(TESTS)
test-modules: install ## compile the modules of the tests, before several processes import them
	$(BIN)/python -m pytest -q --collect-only tests >/dev/null
test-classes: install $(JAVA_CLASSES) ## an archive of Spark's classes for each Java, so that the tests' JVMs start faster
test-quick: install ## the unit and property tests
	$(BIN)/python -m pytest -q tests/unit tests/property
house: install ## print figures about the code: imports, sizes, a start, calls of requests
	@$(TESTS_PATH) $(BIN)/python -m house
test-lowest: install ## tests of code that uses libraries, with their lowest allowed versions
	$(TESTS_PATH) $(BIN)/python -m lowest

##@ Made from other files
protocol: install ## protocol/{messages,internal_records}, from schemas of kafka-python and our own
	$(BIN)/python -m barnabas.protocol.generator
docs-pages: install ## write the pages of docs/ and the dashboard that are generated from the code
	$(BIN)/python docs/pages.py
console-pictures: install ## the pictures of the console in docs/images; needs Chromium
	$(BIN)/python docs/console_pictures.py
docs: docs-pages ## build the site in build/site; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "built: open build/site/index.html, or, to search it, $(BIN)/python -m http.server -b 127.0.0.1 -d build/site"
dist: install ## build wheel and sdist in dist/, and install them on each supported Python
	BARNABAS_PYTHONS="3.11 3.12 3.13" $(BIN)/python -m pytest -q -m long tests/e2e/test_distributions.py
	$(BIN)/python -m build --no-isolation --outdir dist .

##@ Look for faults
sim: install ## simulate SEEDS=1000 days of the whole broker
	$(TESTS_PATH) $(BIN)/python -m sim --seeds $(SEEDS)
sim-whole: install ## the same, SEEDS=1000 short days of whole transactions
	$(TESTS_PATH) $(BIN)/python -m sim --whole --seeds $(SEEDS)
fuzz: install ## mutated requests, with and without a login; the largest; products; damaged files
	$(TESTS_PATH) $(BIN)/python -m fuzz
	$(TESTS_PATH) $(BIN)/python -m fuzz --intruder
	$(TESTS_PATH) $(BIN)/python -m fuzz.ordeal
	$(TESTS_PATH) $(BIN)/python -m fuzz.products
	$(TESTS_PATH) $(BIN)/python -m fuzz.damage
mutants: install ## plant SAMPLE=400 mistakes and count those that the tests find; all take hours
	$(TESTS_PATH) $(BIN)/python -m mutants --sample $(SAMPLE) --processes $(PROCESSES)
mutants-by-hand: install ## plant mistakes written by hand, and run the tests that have to find them
	$(TESTS_PATH) $(BIN)/python -m mutants.by_hand --processes $(PROCESSES)
mutants-sim: install ## plant mistakes that lose or double data, and count those that sim finds
	$(TESTS_PATH) $(BIN)/python -m mutants --sim 500 --judged --processes $(PROCESSES)
torture: install ## stock clients while the broker is killed again and again, for MINUTES=3
	$(TESTS_PATH) $(BIN)/python -m torture.clients --minutes $(MINUTES)
torture-pair: install ## the same with a leader, a standby and etcd (apt-get install etcd-server)
	$(TESTS_PATH) $(BIN)/python -m torture.pair --minutes $(MINUTES)
torture-spark: install ## Spark pipelines whose processes are killed, for MINUTES=3
	$(TESTS_PATH) $(BIN)/python -m torture.spark_pipeline --minutes $(MINUTES)
two-phase: install ## two-phase commit with PostgreSQL: kills of each process at each step, ROUNDS=20
	$(BIN)/python examples/guarantees/two_phase_crash.py --rounds $(ROUNDS)
two-phase-spark: install ## the same by Spark, with kills of the driver; a quarter of an hour
	$(BIN)/python examples/guarantees/two_phase_spark_crash.py
test-long: install $(JAVA_CLASSES) ## the slowest tests (one needs etcd): an hour
	$(BIN)/python -m pytest -q -n $(PROCESSES) -m long tests
spark-cluster: install ## run the commands of docs/SPARK_CLUSTER.md, and a take-over; needs etcd
	test -x build/s3/bin/moto_server || { $(PYTHON) -m venv build/s3 && build/s3/bin/pip install --quiet 'moto[server]'; }
	$(TESTS_PATH) $(BIN)/python -m torture.spark_cluster --s3-server build/s3/bin/moto_server

##@ Compare with Apache Kafka
clients: ## install the clients in other languages, as far as the machine allows
	@tests/clients/fetch.sh
oracle: install ## compare answers with those recorded from Apache Kafka in ORACLE=DIR
	@$(TESTS_PATH) $(BIN)/python -m oracle $(ORACLE)

##@ Measure
bench: install ## produce, fetch, transactions, start, memory
	$(BIN)/python -m bench
bench-eos: install ## the cost of exactly-once: writes docs/EXACTLY_ONCE_COST.md; half an hour
	$(BIN)/python -m bench.eos --publish docs
bench-spark-trigger: install ## the same for Spark, over the trigger's interval; four minutes
	$(BIN)/python -m bench.spark_trigger --publish docs
bench-watched: install ## bench-scale, failing on a call on the event loop above 50 ms of CPU
	$(TESTS_PATH) $(BIN)/python -m torture.scale
bench-scale: install ## cost by number of connections and partitions: writes the plots of docs/SCALE.md
	$(BIN)/python -m bench.scale --publish docs

##@ Tidy up
clean: ## remove .venv, build/ and all caches
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

CHECK_PYTHON = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Barnabas needs Python 3.11 or later: make PYTHON=python3.12 ..."; exit 1; }

$(VENV)/.installed: pyproject.toml
	$(CHECK_PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(COMPILE)
	@touch $@

# Without Java the tests of Spark are skipped, and there is no such file.
$(JAVA_CLASSES): $(VENV)/.installed
	-@$(TESTS_PATH) $(BIN)/python -m helpers.java_classes >/dev/null

# The broker alone needs a fraction of what development does.
$(VENV)/.broker: pyproject.toml
	$(CHECK_PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	$(COMPILE)
	@touch $@
