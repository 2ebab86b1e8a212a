"""One process plays the tests that share a lab, or the result of a fixture."""

from __future__ import annotations

import pytest

GROUP = "groups"
pytestmark = pytest.mark.xdist_group(GROUP)


def test_test_group_is_visible_to_the_scheduler(request: pytest.FixtureRequest) -> None:
    """The scheduler reads the end of a test's name, which pytest 9.2 no longer allows to set.
    Without it, each process builds everything again, and has a Slurm of its own."""
    is_by_group = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.endswith(f"@{GROUP}") == is_by_group
