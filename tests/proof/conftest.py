"""Fixtures: `warm` forks dnm processes quickly, `world` is an empty sandbox that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Warm
from tests.proof.harness import World


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    process = Warm(tmp_path_factory.mktemp("warm"), "adopts")
    yield process
    process.close()


@pytest.fixture
def world(warm: Warm, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "world", warm)
    yield made
    made.close()
