"""The fixture of the tests on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm_lab import SlurmSite, make_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SlurmSite]:
    """Yields a site with the installed Slurm. tests/real/slurm_generations.py replaces it by sites
    with other versions."""
    with make_site(tmp_path) as made:
        yield made
