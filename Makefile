# Every target makes .venv first and uses it; nothing is installed outside the checkout, but for
# Debian's Slurm and kubectl, which `make test` installs where they are missing and it may.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: mutants report-page help demo test lint audit real test-real stories generations bench bench-real bench-economy soak storm model tools packages test-packages clean

help:
	@echo "make demo           a workshop on an embedded cluster, in about a minute"
	@echo "make test           everything but the real servers"
	@echo "make test-real      dnm on real servers: kube-apiserver, YuniKorn, Slurm; builds them once"
	@echo "make packages       dist/: a deb and an rpm"
	@echo "make test-packages  both installed, upgraded and removed in roots of their own"
	@echo "make bench          reading a large cluster, measured; writes docs/bench.*"
	@echo "make bench-real     the same on a real API server with 500 nodes and 15,000 pods"
	@echo "make bench-economy  dnm and others over nineteen workloads of two days, measured"
	@echo "make report-page    the pages of dnm in a real browser: Chromium and axe-core"
	@echo "make mutants        a sample of changed code that the fast tests should notice (minutes)"
	@echo "make model          the protocol of several hosts, every interleaving (half a minute)"
	@echo "make soak           the long proof: at least 10,000 runs in virtual time"
	@echo "make storm          the installed command under 1,000 runs of blows, in real time (minutes)"

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing dnm and what its tests need into $(VENV), once: a minute or so"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/dnm demo

# Debian's packages that the tests use.
tools:
	@sh tests/packages.sh

packages: $(STAMP)
	@sh tests/packages.sh help2man
	$(BIN)/python -m tests.real build nfpm
	$(BIN)/python -m packages.build

test-packages: packages
	@sh tests/packages.sh rpm
	$(BIN)/python -m tests.real.package_roots build
	$(BIN)/python -m pytest tests/real/packages.py

lint: $(STAMP)
	$(BIN)/ruff format --check dnm tests packages
	$(BIN)/ruff check dnm tests packages
	$(BIN)/mypy

# pip-audit asks PyPI's own service; where that is out of reach it says so and finds nothing.
audit: $(STAMP)
	$(BIN)/bandit --quiet --recursive dnm --configfile pyproject.toml
	$(BIN)/pip-audit --skip-editable --progress-spinner off 2>&1 | sh tests/audit.sh

# Four processes on two cores: many tests wait for a Slurm or for a run.
test: $(STAMP) tools lint audit
	$(BIN)/python -m pytest --numprocesses 4 --dist loadgroup

real: $(STAMP) tools packages
	$(BIN)/python -m tests.real build
	$(BIN)/python -m tests.real.package_roots build
	$(BIN)/python -m tests.real.slurm_roots build
	$(BIN)/python -m tests.real.judge

# Stories wait more than they work, so they are played side by side, each row on its own servers.
ROW_1 := races kubelet
ROW_2 := preemption kubelet_story scheduler_away workshop
ROW_3 := changes slurm_story events check
ROW_4 := in_kubernetes
files = $(patsubst %,tests/real/test_%.py,$(1))

test-real: real
	$(MAKE) --jobs 6 --keep-going --output-sync=target stories $(addprefix stories-,1 2 3 4) generations

stories:
	$(BIN)/python -m tests.real test $(addprefix --ignore=,$(call files,$(ROW_1) $(ROW_2) $(ROW_3) $(ROW_4)))

stories-%:
	$(BIN)/python -m tests.real test $(call files,$(ROW_$*))

generations:
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup tests/real/slurm_generations.py
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup tests/real/slurm_rest.py
	$(BIN)/python -m pytest --numprocesses 2 tests/real/queue_documents.py

bench: $(STAMP) tools
	$(BIN)/python -m tests.bench.startup
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench.record year
	@sh tests/packages.sh valgrind
	$(BIN)/python -m tests.bench.record run
	$(BIN)/python -m tests.bench.changes

bench-real: real
	$(BIN)/python -m tests.real bench

bench-economy: $(STAMP)
	$(BIN)/python -m tests.economy
	$(BIN)/python -m tests.economy 2 5 rules

# Not in CI: an hour at most, of every tenth mutant; MUTANTS="--every 1 sizing" tries all of a room.
mutants: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mutants]'
	nice $(BIN)/python -m tests.mutants $(MUTANTS)

# Not in CI: a browser of a hundred megabytes.
report-page: $(STAMP)
	@sh tests/packages.sh chromium npm
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[browser]'
	$(BIN)/python -m tests.report_page

soak: $(STAMP)
	$(BIN)/python -m tests.proof.soak

# Half a minute and 0.7 GB; not in CI, where each core is taken.
model:
	@sh tests/packages.sh spin gcc
	@sh docs/model/run.sh

# Not in CI: minutes. STORM="--seed 7 --runs 200" plays other blows, or fewer.
storm: $(STAMP)
	$(BIN)/python -m tests.proof.storm $(STORM)

clean:
	rm -rf $(VENV) .pytest_cache .hypothesis .mypy_cache .ruff_cache
