# Targets first create .venv if they need it. Nothing is installed outside the checkout, except
# Debian packages such as Slurm and kubectl: `make test`, run as root, installs those that are
# missing.

# The distribution's Python if it is at least 3.11, because the packages run on it. A Python that
# was built from source without optimisations takes half as long again for everything.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo /usr/bin/python3 || echo python3)
VENV := .venv
LOCK := requirements/test.txt
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKED := $(PIP) --require-hashes --requirement

# Without stored bytecode, each test process would compile all tests again, and each `dnm` all of
# dnm.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: commits compiled coverage docs lock edges test-oldest test-newest mutants help demo quick pure test test-night lint audit real programs roots test-real test-real-all test-operator test-bridge stories generations bench bench-real bench-economy soak storm reserved model tools packages release test-packages clean

help:
	@echo "make demo           run a demo workshop on an embedded cluster (about a minute)"
	@echo "make quick          run linters, mypy and the tests that need no other program (about a minute)"
	@echo "make commits        check the subjects of new commits: length, and a verb in the imperative"
	@echo "make test           run all tests outside tests/real; of the long tests, a sample"
	@echo "make test-oldest    test dependencies in their oldest allowed versions (test-newest: the newest)"
	@echo "make test-night     run the long tests completely, then soak, storm, bench-economy, coverage"
	@echo "make coverage       measure the lines and branches of decision code that the fast tests execute"
	@echo "make test-real      run a few end-to-end tests on a real kube-apiserver, YuniKorn, Slurm; builds them"
	@echo "make test-real-all  run all end-to-end tests on real servers, in all tested releases; builds them"
	@echo "make lock           update requirements/: the newest versions of all dependencies, with hashes"
	@echo "make packages       build a deb and an rpm in dist/"
	@echo "make docs           build a site of the pages with search in build/site/"
	@echo "make release        build all artefacts in dist/, try each in a clean root, add checksums and SBOM"
	@echo "make test-operator  test nodeset-convert with the real slurm-operator; builds it once"
	@echo "make test-bridge    test bridge-convert with slurm-bridge, from a checkout that you name"
	@echo "make test-packages  install, upgrade and remove the deb and the rpm in clean roots"
	@echo "make bench          measure dnm's speed on a large cluster; writes docs/bench.md"
	@echo "make bench-real     measure it on a real API server with 500 nodes and 15,000 pods"
	@echo "make bench-economy  compare dnm with other policies over 24 workloads of two days"
	@echo "make mutants        check that the fast tests detect a sample of code changes (minutes)"
	@echo "make model          check every interleaving of several hosts in a formal model (half a minute)"
	@echo "make soak           check the invariants over at least 10,000 runs in virtual time"
	@echo "make reserved       test reserving the nodes of an event in a real Slurm (minutes)"
	@echo "make storm          run the installed command 1,000 times under injected faults (minutes)"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# With editable_mode=compat, only the path of the checkout is added to sys.path. setuptools' finder
# would slow each start of Python.
$(STAMP): pyproject.toml $(LOCK) | $(BIN)/python
	@echo "installing dnm and the packages of its tests into $(VENV), once: one or two minutes"
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

# Installs the Debian packages that the tests use.
tools:
	@sh tests/packages.sh help2man

packages: $(STAMP)
	@sh tests/packages.sh help2man
	$(BIN)/python -m tests.real build nfpm
	$(BIN)/python -m packages.build

# Installs each artefact in a clean root directory and runs the rehearsal of docs/production.md with
# it. The deb and the rpm need root for this. RELEASE="--into DIRECTORY" writes to another
# directory.
release: $(STAMP)
	@sh tests/packages.sh help2man rpm buildah
	$(LOCKED) requirements/release.txt
	$(BIN)/python -m tests.real build nfpm
	$(BIN)/python -m tests.real.package_roots build
	$(BIN)/python -m packages.release $(RELEASE)

test-packages: packages
	@sh tests/packages.sh rpm buildah
	$(BIN)/python -m tests.real.package_roots build
	$(BIN)/python -m pytest tests/real/packages.py tests/real/image.py

# Builds the site of the pages in build/site/, which loads nothing from other hosts. A link or
# anchor without a target is an error. PICTURES=1 first redraws docs/pictures/.
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

# pip-audit queries PyPI's service. If that is unreachable, this is printed, and the target
# succeeds.
audit: $(STAMP)
	$(BIN)/pip-audit --skip-editable --progress-spinner off 2>&1 | sh tests/audit.sh

# Tests that need no other program: pure functions, and the import rules.
PURE := calendar config demand kubelet model plan simulate sizing test_layers.py
quick: $(STAMP)
	$(MAKE) --jobs 2 --output-sync=target lint pure

pure: compiled
	$(BIN)/python -m pytest -m 'not night' --numprocesses 2 --dist loadgroup $(addprefix tests/,$(PURE))

# Compiles the tests once. In a new checkout, each process of pytest would compile most of them, all
# at the same time.
compiled: $(STAMP)
	@ls tests/__pycache__/test_*-pytest-*.pyc >/dev/null 2>&1 || \
		$(BIN)/python -m pytest --collect-only >/dev/null

# Runs first the checks that need no other program. The rest runs in five processes on two cores:
# two processes wait for Slurm most of the time, and each further process would read all test files
# again.
test: $(STAMP) tools
	$(MAKE) --jobs 2 --output-sync=target lint audit pure
	$(BIN)/python -m pytest -m 'not night' --numprocesses 5 --dist loadgroup --no-loadscope-reorder \
		$(addprefix --ignore=tests/,$(PURE))

# The tests that use dependencies most. They run with the oldest versions that pyproject.toml allows
# (test-oldest) and with the newest of today (test-newest). EDGES=tests runs all tests instead.
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

# The lines and branches of decision code that the fast tests execute: the least percentage of each
# package. Raise the bounds, never lower them. coverage.py also measures commands that tests start.
COVERED := plan:99.0 queues:98.3 sizing:99.5
# These tests fail under coverage.py: it writes files outside of fault points, and it opens more
# files than one test permits.
UNMEASURED := --ignore tests/host/test_shortage.py --deselect \
	tests/proof/test_fault_point_coverage.py::test_run_has_no_effect_outside_of_fault_points
coverage: $(STAMP) tools
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m pytest -m 'not night' --numprocesses 3 --dist loadgroup $(UNMEASURED)
	$(BIN)/coverage combine --quiet
	status=0; for bound in $(COVERED); do \
		$(BIN)/coverage report --include "dnm/$${bound%:*}/*" --fail-under $${bound#*:} || status=1; \
	done; exit $$status

# Runs the long tests, of which `make test` runs a sample, and repeats the random tests with new
# values. Takes about an hour.
test-night: $(STAMP) tools
	$(BIN)/python -m pytest -m night --numprocesses 3 --dist loadgroup
	$(BIN)/python -m pytest -m 'hypothesis and not night' --hypothesis-profile anew --numprocesses 3
	$(MAKE) soak storm bench-economy coverage

# The end-to-end tests (stories) on real servers that CI runs: one of each kind. Only the servers
# that these need are built. Stories mostly wait, so two groups of them run at the same time.
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

# Builds everything that all stories need. Debian packages are unpacked while Go compiles.
real: $(STAMP) tools packages
	$(MAKE) --jobs 2 programs roots

programs:
	$(BIN)/python -m tests.real build kubernetes kueue kubelet-1.34 kubelet-1.30 yunikorn-1.9
	$(BIN)/python -m tests.real.judge

roots:
	$(BIN)/python -m tests.real.package_roots build
	$(BIN)/python -m tests.real.slurm_roots build

# All stories, in groups (rows) that run at the same time, because stories mostly wait. Each row has
# its own servers.
ROW_1 := races kubelet
ROW_2 := preemption kubelet_story scheduler_away workshop without_queue_system kube_scheduler jupyterhub
ROW_3 := changes slurm_story events check
ROW_4 := in_kubernetes manual
ROW_5 := shared_hosts one_lease bridge_story
ROW_6 := kueue kueue_capacity kueue_queues kueue_faults kueue_check kueue_workloads kueue_page
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

# Not in CI: slurm-operator and slurm-bridge take minutes to compile, and check their objects only
# every half minute. DNM_SLURM_OPERATOR=/path tests this checkout instead of the release on Go's
# proxy.
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

# Tests every tenth changed place of the code (mutant). Not in CI: takes at most an hour.
# MUTANTS="--every 1 sizing" tests all mutants of one package.
mutants: $(STAMP)
	$(LOCKED) requirements/mutants.txt
	nice $(BIN)/python -m tests.mutants $(MUTANTS)

soak: $(STAMP)
	$(BIN)/python -m tests.proof.soak

# Checks the whole model. `make test-night` checks it without the search for cycles.
model:
	@sh tests/packages.sh
	@sh docs/model/run.sh

# Not in CI: takes minutes. STORM="--seed 7 --runs 200" sets the seed of the faults and the number
# of runs.
storm: $(STAMP)
	$(BIN)/python -m tests.proof.storm $(STORM)

# Not in CI: runs in real time, five minutes for one attempt. DNM_PROOF_ROUNDS=20 makes 20 attempts.
reserved: $(STAMP) tools
	$(BIN)/python -m pytest -s tests/real/reserved_nodes.py

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest .pytest_cache .hypothesis .mypy_cache .ruff_cache
