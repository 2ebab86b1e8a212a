# Every target makes .venv first and uses it; nothing is installed outside the checkout, but for
# Debian's Slurm and kubectl, which `make test` installs where they are missing and it may.

# The distribution's, where it is new enough: the packages run on it, and one that was built from
# source without its optimisations takes half as long again for everything.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo /usr/bin/python3 || echo python3)
VENV := .venv
LOCK := requirements/test.txt
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKED := $(PIP) --require-hashes --requirement

# Without bytecode each process of the tests would compile all of them anew, and each dnm itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: commits compiled coverage docs lock edges test-oldest test-newest mutants help demo quick pure test test-night lint audit real programs roots test-real test-real-all test-operator test-bridge stories generations bench bench-real bench-economy soak storm reserved model tools packages release test-packages clean

help:
	@echo "make demo           a workshop on an embedded cluster, in about a minute"
	@echo "make quick          lint, types, walls and the rooms without an outside, in a minute or so"
	@echo "make commits        the subjects of new commits: length, and a verb in the imperative"
	@echo "make test           all but the real servers, and of what is long a sample"
	@echo "make test-oldest    what uses dependencies, with their oldest versions; test-newest: the newest"
	@echo "make test-night     the rest: all kills, long histories, the model, storm, soak, economy"
	@echo "make coverage       the lines and branches of decisions that make test executes"
	@echo "make test-real      the short row on kube-apiserver, YuniKorn and Slurm; builds them once"
	@echo "make test-real-all  all stories on real servers, in all their releases; builds more of them"
	@echo "make lock           requirements/: the newest versions of all dependencies, with their hashes"
	@echo "make packages       dist/: a deb and an rpm"
	@echo "make docs           build/site/: the pages as a site with search"
	@echo "make release        dist/: all artefacts, rehearsed in clean roots, with checksums and an SBOM"
	@echo "make test-operator  nodeset-convert beside the real slurm-operator; builds it once"
	@echo "make test-bridge    bridge-convert beside slurm-bridge's controllers, of a named checkout"
	@echo "make test-packages  both installed, upgraded and removed in roots of their own"
	@echo "make bench          reading a large cluster, measured; writes docs/bench.md"
	@echo "make bench-real     the same on a real API server with 500 nodes and 15,000 pods"
	@echo "make bench-economy  dnm and others over 24 workloads of two days, measured"
	@echo "make mutants        a sample of changed code that the fast tests should notice (minutes)"
	@echo "make model          the protocol of several hosts, every interleaving (half a minute)"
	@echo "make soak           the long proof: at least 10,000 runs in virtual time"
	@echo "make reserved       nodes of an event, reserved in a real Slurm ahead of time (minutes)"
	@echo "make storm          the installed command under 1,000 runs of blows, in real time (minutes)"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The path of the checkout (compat) instead of setuptools' finder, which slows each start of a Python.
$(STAMP): pyproject.toml $(LOCK) | $(BIN)/python
	@echo "installing dnm and what its tests need into $(VENV), once: a minute or so"
	$(LOCKED) $(LOCK)
	PYTHONWARNINGS=ignore $(PIP) --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
	touch $(STAMP)

# Writes the newest versions that pyproject.toml allows, with their hashes, for each Python. For the
# oldest Python it also writes the oldest versions.
COMPILE := uv pip compile --quiet --python-version 3.11 --upgrade --generate-hashes \
	--no-emit-index-url --custom-compile-command 'make lock'
NEWEST := $(COMPILE) --universal
lock: | $(BIN)/python
	$(LOCKED) requirements/lock.txt
	$(BIN)/$(COMPILE) --resolution lowest-direct pyproject.toml --extra test --output-file requirements/oldest.txt
	$(BIN)/$(NEWEST) pyproject.toml --extra test --output-file requirements/test.txt
	for group in lock mutants release docs; do \
		$(BIN)/$(NEWEST) --group $$group --constraint requirements/test.txt --output-file requirements/$$group.txt || exit 1; \
	done

demo: $(STAMP)
	$(BIN)/dnm demo

# Debian's packages that the tests use.
tools:
	@sh tests/packages.sh help2man

packages: $(STAMP)
	@sh tests/packages.sh help2man
	$(BIN)/python -m tests.real build nfpm
	$(BIN)/python -m packages.build

# Each artefact is installed in a clean root, and the rehearsal of docs/production.md played with it.
# As root, for the roots of the deb and the rpm. RELEASE="--into DIRECTORY" writes elsewhere.
release: $(STAMP)
	@sh tests/packages.sh help2man rpm
	$(LOCKED) requirements/release.txt
	$(BIN)/python -m tests.real build nfpm
	$(BIN)/python -m tests.real.package_roots build
	$(BIN)/python -m packages.release $(RELEASE)

test-packages: packages
	@sh tests/packages.sh rpm buildah
	$(BIN)/python -m tests.real.package_roots build
	$(BIN)/python -m pytest tests/real/packages.py tests/real/image.py

# build/site/: the pages as a site, without addresses elsewhere; a link or anchor without a target is
# an error. PICTURES=1 draws docs/pictures/ anew first.
docs: $(STAMP)
	$(LOCKED) requirements/docs.txt
	$(if $(PICTURES),$(BIN)/python -m packages.pictures)
	$(BIN)/python -m packages.site

lint: $(STAMP)
	$(BIN)/ruff format --check dnm tests packages .ci
	$(BIN)/ruff check dnm tests packages .ci
	$(BIN)/codespell dnm tests packages docs etc cron README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md
	$(BIN)/mypy

# .git-hooks/commit-msg checks each new commit in the same way.
commits:
	@$(PYTHON) .ci/commit_subjects.py

# pip-audit asks PyPI's own service; where that is out of reach it says so and finds nothing.
audit: $(STAMP)
	$(BIN)/pip-audit --skip-editable --progress-spinner off 2>&1 | sh tests/audit.sh

# What needs no outside: the pure rooms, and the walls between all.
PURE := calendar config demand kubelet model plan simulate sizing test_layers.py
quick: $(STAMP)
	$(MAKE) --jobs 2 --output-sync=target lint pure

pure: compiled
	$(BIN)/python -m pytest -m 'not night' --numprocesses 2 --dist loadgroup $(addprefix tests/,$(PURE))

# In a new checkout each process of pytest would compile most of the tests, at the same time.
compiled: $(STAMP)
	@ls tests/__pycache__/test_*-pytest-*.pyc >/dev/null 2>&1 || \
		$(BIN)/python -m pytest --collect-only >/dev/null

# What needs nothing first. Then five processes on two cores: two of them wait for a Slurm most of
# the time, and each reads all files.
test: $(STAMP) tools
	$(MAKE) --jobs 2 --output-sync=target lint audit pure
	$(BIN)/python -m pytest -m 'not night' --numprocesses 5 --dist loadgroup --no-loadscope-reorder \
		$(addprefix --ignore=tests/,$(PURE))

# The tests that use the dependencies most, with the oldest versions that pyproject.toml allows and
# with the newest of today. EDGES=tests runs all of them.
EDGES := $(addprefix tests/,cli/test_app.py cli/test_status.py cli/test_screen.py config \
	kube/test_session.py kube/test_access.py kube/test_client.py kube/test_clients_own.py \
	kube/test_lists.py lab/test_api.py queues/yunikorn/test_text_edit.py run/test_lock.py run/test_registry.py run/test_runner.py)
edges: $(STAMP)
	$(BIN)/python -m pytest -m 'not night' --numprocesses 2 --dist loadgroup $(EDGES)

test-oldest:
	$(MAKE) VENV=.venv-oldest LOCK=requirements/oldest.txt edges

test-newest:
	rm -f .venv-newest/newest.txt
	$(MAKE) VENV=.venv-newest LOCK=.venv-newest/newest.txt edges

.venv-newest/newest.txt: | $(BIN)/python
	$(LOCKED) requirements/lock.txt
	$(BIN)/$(NEWEST) pyproject.toml --extra test --output-file $@

# Of the decisions: the part of their lines and branches that the fast tests execute, in percent. The
# bounds only rise. coverage.py also measures the commands that tests start as processes.
COVERED := plan:98.7 queues:96.6 sizing:99.5
# coverage.py writes files outside of fault points, and opens more of them than the limit of a test.
UNMEASURED := --ignore tests/host/test_shortage.py --deselect \
	tests/proof/test_fault_point_coverage.py::test_run_has_no_effect_outside_of_fault_points
coverage: $(STAMP) tools
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m pytest -m 'not night' --numprocesses 3 --dist loadgroup $(UNMEASURED)
	$(BIN)/coverage combine --quiet
	status=0; for bound in $(COVERED); do \
		$(BIN)/coverage report --include "dnm/$${bound%:*}/*" --fail-under $${bound#*:} || status=1; \
	done; exit $$status

# An hour or so: what of make test is a sample, whole, and what is random, anew.
test-night: $(STAMP) tools
	$(BIN)/python -m pytest -m night --numprocesses 3 --dist loadgroup
	$(BIN)/python -m pytest -m 'hypothesis and not night' --hypothesis-profile anew --numprocesses 3
	$(MAKE) soak storm bench-economy coverage

# What CI plays on real servers: a story of each kind, with what they alone need to be built. They
# mostly wait, so they are played in two rows side by side.
SHORT_1 := \
	tests/real/test_slurm_story.py::test_workshop_on_slurm_nodes_loses_no_job \
	tests/real/test_races.py::test_kill_at_any_write_of_a_lend_and_a_return_is_repaired \
	'tests/real/test_shared_hosts.py::test_single_host_of_simultaneous_hosts_acts[2]'
SHORT_2 := $(patsubst %,tests/real/test_%.py,permissions admission_policy slinky without_queue_system resource_quota) \
	'tests/real/test_kueue.py::test_workshop_is_admitted_on_lent_nodes_and_the_quota_is_restored[job-5]'

test-real: $(STAMP) tools
	$(BIN)/python -m tests.real build
	$(MAKE) --jobs 2 --output-sync=target short-1 short-2

short-%:
	$(BIN)/python -m tests.real test $(SHORT_$*)

# All that the stories need. Debian's packages are unpacked while Go compiles.
real: $(STAMP) tools packages
	$(MAKE) --jobs 2 programs roots

programs:
	$(BIN)/python -m tests.real build kubernetes kueue kubelet-1.34 kubelet-1.30 yunikorn-1.9
	$(BIN)/python -m tests.real.judge

roots:
	$(BIN)/python -m tests.real.package_roots build
	$(BIN)/python -m tests.real.slurm_roots build

# Stories wait more than they work, so they are played side by side, each row on its own servers.
ROW_1 := races kubelet
ROW_2 := preemption kubelet_story scheduler_away workshop without_queue_system kube_scheduler jupyterhub
ROW_3 := changes slurm_story events check
ROW_4 := in_kubernetes manual
ROW_5 := shared_hosts one_lease bridge_story
ROW_6 := kueue kueue_queues kueue_faults kueue_check kueue_workloads kueue_page
files = $(patsubst %,tests/real/test_%.py,$(1))

test-real-all: real
	$(MAKE) --jobs 8 --keep-going --output-sync=target stories $(addprefix stories-,1 2 3 4 5 6) generations

stories:
	$(BIN)/python -m tests.real test $(addprefix --ignore=,$(call files,$(ROW_1) $(ROW_2) $(ROW_3) $(ROW_4) $(ROW_5) $(ROW_6)))

stories-%:
	$(BIN)/python -m tests.real test $(call files,$(ROW_$*))

generations:
	$(BIN)/python -m pytest tests/real/slurm_accounting.py
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup tests/real/slurm_generations.py
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup tests/real/slurm_rest.py
	$(BIN)/python -m pytest --numprocesses 2 tests/real/queue_documents.py

# Not in CI: both take minutes to compile, and wait half a minute between two looks.
# DNM_SLURM_OPERATOR=/path plays the checkout that it names in place of the release on Go's proxy.
test-operator: $(STAMP) tools
	$(BIN)/python -m tests.real.checkouts slurm-operator
	$(BIN)/python -m tests.real.slurm_roots build forky
	$(BIN)/python -m tests.real test tests/real/operator_story.py

test-bridge: $(STAMP) tools
	$(BIN)/python -m tests.real.checkouts slurm-bridge
	$(BIN)/python -m tests.real.slurm_roots build forky
	$(BIN)/python -m tests.real test tests/real/bridge_story.py

bench: $(STAMP) tools
	$(BIN)/python -m tests.bench.startup
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench.record year
	@sh tests/packages.sh valgrind
	$(BIN)/python -m tests.bench.record run
	$(BIN)/python -m tests.bench.changes
	$(BIN)/python -m tests.bench.kueue
	$(BIN)/python -m tests.bench.planner

bench-real: $(STAMP) tools
	$(BIN)/python -m tests.real bench

bench-economy: $(STAMP)
	$(BIN)/python -m tests.economy
	$(BIN)/python -m tests.economy 2 5 rules

# Not in CI: an hour at most, of every tenth mutant; MUTANTS="--every 1 sizing" tries all of a room.
mutants: $(STAMP)
	$(LOCKED) requirements/mutants.txt
	nice $(BIN)/python -m tests.mutants $(MUTANTS)

soak: $(STAMP)
	$(BIN)/python -m tests.proof.soak

# `make test` plays most of it.
model:
	@sh tests/packages.sh
	@sh docs/model/run.sh

# Not in CI: minutes. STORM="--seed 7 --runs 200" plays other blows, or fewer.
storm: $(STAMP)
	$(BIN)/python -m tests.proof.storm $(STORM)

# Not in CI: it goes by the clock, five minutes for a try. DNM_PROOF_ROUNDS=20 plays twenty.
reserved: $(STAMP) tools
	$(BIN)/python -m pytest -s tests/real/reserved_nodes.py

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest .pytest_cache .hypothesis .mypy_cache .ruff_cache
