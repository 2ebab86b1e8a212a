"""The tests of node-convert on the installed Slurm, repeated on Slurm of newer Debian suites.

pytest does not collect them with the other tests of real servers: they need no rig, and run in
parallel (`pytest --numprocesses 2 --dist loadgroup tests/real/slurm_generations.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.converters.test_slurm import *  # noqa: F403
from tests.converters.test_slurm_bad_days import *  # noqa: F403
from tests.real.slurm_roots import SUITES, programs_of
from tests.slurm_lab import SlurmSite, make_site

pytestmark = [pytest.mark.slurm]


@pytest.fixture(
    params=[pytest.param(suite, marks=pytest.mark.xdist_group(suite)) for suite in SUITES]
)
def programs(request: pytest.FixtureRequest) -> Path:
    """Returns the directory of Slurm's programs of a Debian suite."""
    return programs_of(request.param)


@pytest.fixture
def site(programs: Path, tmp_path: Path) -> Iterator[SlurmSite]:
    with make_site(tmp_path, programs) as made:
        yield made
