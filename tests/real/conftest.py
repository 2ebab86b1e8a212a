"""One rig for all tests of a session; each test finds it as it was after its start."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real.account import KUBECONFIG, make_account
from tests.real.namespaces import INSIDE, run_directory
from tests.real.programs import RigError
from tests.real.rig import Rig
from tests.real.site import Site

if INSIDE not in os.environ:  # `make test` and others; `python -m tests.real test` plays them
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def started_rig() -> Iterator[Rig]:
    """A rig that does not start ends the session, with what its program said."""
    rig = Rig(run_directory())
    try:
        rig.start()
        make_account(rig)
        print("\nservers:", rig.versions())
    except RigError as error:
        rig.stop()
        pytest.exit(f"the rig did not start: {error}", returncode=3)
    try:
        yield rig
    finally:
        rig.stop()


@pytest.fixture
def rig(started_rig: Rig) -> Rig:
    started_rig.reset()
    return started_rig


MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(rig: Rig, tmp_path: Path) -> MakeSite:
    def make(name: str = "site", **settings: object) -> Site:
        return Site(rig, tmp_path / name, KUBECONFIG, **settings)  # type: ignore[arg-type]

    return make
