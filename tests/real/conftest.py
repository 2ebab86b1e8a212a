"""Fixtures: one real cluster (the rig) for all tests of a session, reset before each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.account import (
    KUBECONFIG,
    make_account,
    make_account_without_yunikorn,
    restore_account,
)
from tests.real.kueue import Kueue
from tests.real.namespaces import INSIDE, REPOSITORY, run_directory
from tests.real.programs import RigError
from tests.real.rig import KUBE_SCHEDULER, Rig
from tests.real.site import Site
from tests.real.unmanaged import (
    GUEST,
    SECTION,
    UNMANAGED,
    apply_policies,
    create,
    make_guest,
    taint_nodes,
)
from tests.real.versions import YUNIKORNS
from tests.real_slurm import SlurmLab
from tests.slurm_lab import restore_lab, the_lab

if INSIDE not in os.environ:  # `make test` and others; `python -m tests.real test` runs them
    collect_ignore_glob = ["test_*.py"]


SERVER_LINES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def started_rig(pytestconfig: pytest.Config) -> Iterator[Rig]:
    """Returns the real cluster. If it does not start, ends the session with the error."""
    rig = Rig(run_directory())
    try:
        rig.start()
        make_account(rig)
    except RigError as error:
        rig.stop()
        pytest.exit(f"the rig did not start: {error}", returncode=3)
    try:
        yield rig
        pytestconfig.stash[SERVER_LINES] = [rig.versions_line(), rig.memory_line()]
    finally:
        rig.stop()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Prints the versions and the memory that the servers reported."""
    for line in config.stash.get(SERVER_LINES, []):
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Reports skipped tests."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    is_own = all("tests/real" in argument for argument in session.config.args)
    if is_own and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def rig(started_rig: Rig) -> Rig:
    """Returns the real cluster with a version of YuniKorn."""
    started_rig.reset("" if started_rig.has_yunikorn else YUNIKORNS[0])
    return started_rig


@pytest.fixture
def plain_rig(started_rig: Rig) -> Rig:
    """Returns the real cluster with kube-scheduler and no queue system."""
    started_rig.reset(KUBE_SCHEDULER)
    return started_rig


@pytest.fixture
def kubeconfig_without_yunikorn(plain_rig: Rig) -> Iterator[Path]:
    """Yields the kubeconfig of the account that docs/none.md creates."""
    try:
        yield make_account_without_yunikorn(plain_rig)
    finally:
        restore_account(plain_rig)


@pytest.fixture(scope="module")
def kueue(started_rig: Rig) -> Iterator[Kueue]:
    """Yields Kueue's manager, which runs for the tests of a module."""
    kueue = Kueue(started_rig)
    try:
        kueue.start()
        yield kueue
    finally:
        kueue.remove()


@pytest.fixture
def kueue_rig(kueue: Kueue, plain_rig: Rig) -> Iterator[Rig]:
    """Yields the real cluster with kube-scheduler and Kueue, without objects of Kueue."""
    kueue.serve()
    try:
        yield plain_rig
    finally:
        kueue.clear()


@pytest.fixture
def kueue_kubeconfig(kueue_rig: Rig, kubeconfig_without_yunikorn: Path) -> Path:
    """Returns the kubeconfig of an account with the roles of rbac.yaml and of the one for Kueue."""
    kueue_rig.shell(f"kubectl apply -f {REPOSITORY}/etc/rbac-kueue.yaml")
    return kubeconfig_without_yunikorn


@pytest.fixture
def busy_rig(plain_rig: Rig) -> Iterator[Rig]:
    """Yields a cluster on which pods of another namespace fill all nodes. A further pod waits."""
    make_guest(plain_rig)
    apply_policies(plain_rig)
    for number in range(3):
        create(plain_rig, GUEST, f"wide-{number}", "64")
    plain_rig.wait_for(lambda: plain_rig.running(GUEST) == 2, "the nodes are full")
    yield plain_rig
    plain_rig.remove_guards()


MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(rig: Rig, tmp_path: Path) -> MakeSite:
    def make(name: str = "site", **settings: object) -> Site:
        return Site(rig, tmp_path / name, KUBECONFIG, **settings)  # type: ignore[arg-type]

    return make


@pytest.fixture
def lab() -> Iterator[SlurmLab]:
    """Yields the installed Slurm, and restores it at the end of the test."""
    lab = the_lab()
    try:
        yield lab
    finally:
        restore_lab(lab)


@pytest.fixture
def make_unmanaged_site(
    busy_rig: Rig, kubeconfig_without_yunikorn: Path, tmp_path: Path
) -> MakeSite:
    """Returns a function that makes a site without a queue system. Its converter registers Nodes
    with the taint of their namespace."""

    def make(name: str = "site", **settings: object) -> Site:
        values: dict[str, Any] = {**UNMANAGED, "sections": SECTION, **settings}
        site = Site(busy_rig, tmp_path / name, kubeconfig_without_yunikorn, **values)
        taint_nodes(site)
        return site

    return make
