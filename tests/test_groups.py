"""Tests that share a lab, or what a fixture has built, are played by one process."""

from __future__ import annotations

import pytest

GROUP = "groups"
pytestmark = pytest.mark.xdist_group(GROUP)


def test_test_group_is_visible_to_the_scheduler(request: pytest.FixtureRequest) -> None:
    """It goes by the end of a test's name, which pytest 9.2 no longer lets it set: then each
    process builds everything again, and every one has a Slurm of its own."""
    goes_by_groups = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.endswith(f"@{GROUP}") == goes_by_groups
