"""The tests beside slurm-bridge again, with slurm-bridge's own controllers for nodes and workloads.

pytest does not collect them with the others: they need a checkout that the site names:
`DNM_SLURM_BRIDGE=/path make test-bridge`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.rig import Rig
from tests.real.slurm_bridge import Bridge, BridgedSlurm, RealBridge
from tests.real.test_bridge_story import (
    at_work,
    site,
    slurm,
    test_bridged_node_is_lent_and_returned_manually,
    test_no_job_is_lost_while_new_jobs_arrive,
    test_workshop_beside_slurm_bridge_loses_no_job,
)

__all__ = (
    "site",
    "slurm",
    "test_bridged_node_is_lent_and_returned_manually",
    "test_no_job_is_lost_while_new_jobs_arrive",
    "test_workshop_beside_slurm_bridge_loses_no_job",
)


@pytest.fixture
def bridge(rig: Rig, slurm: BridgedSlurm) -> Iterator[Bridge]:
    with at_work(rig, slurm, RealBridge) as bridge:
        yield bridge
