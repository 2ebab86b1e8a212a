"""Tests that pytest-xdist plays tests which share a real Slurm, or a fixture, in one process."""

from __future__ import annotations

import pytest

GROUP = "groups"
pytestmark = pytest.mark.xdist_group(GROUP)


def test_test_group_is_visible_to_the_scheduler(request: pytest.FixtureRequest) -> None:
    """pytest-xdist reads the group from the end of a test's id, which pytest 9.2 does not allow to
    set any more. Without the group, each process would start its own Slurm."""
    is_by_group = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.endswith(f"@{GROUP}") == is_by_group
