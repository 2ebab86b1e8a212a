"""The site of the tests on real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm_lab import SlurmSite, make_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SlurmSite]:
    """Returns a site with the installed Slurm; tests/real/slurm_generations.py uses other
    versions."""
    with make_site(tmp_path) as made:
        yield made
