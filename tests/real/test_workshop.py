"""Test of the workshop on real servers: seventy-five people join, four nodes are lent, and all are
returned.

75 pods of 4 cores and 16 GiB request 300 vcore and 1,200 GiB. The queue has 100 and 400, and a node
adds 128 and 256: it takes two nodes by vcore and four by memory. The two full-time nodes run 32 of
the pods, and four lent nodes run 64, so that four are enough."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.rig import Rig
from tests.real.site import DEV, PODS, add_pods, with_nodes
from tests.real.versions import YUNIKORNS

PEOPLE = 75
LEAST = 4


def checksum(rig: Rig) -> str:
    """Returns YuniKorn's own checksum of its active document."""
    answer = json.loads(rig.rest.ask("GET", "/ws/v1/config", Accept="application/json"))
    return str(answer["Checksum"])


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest().upper()


@pytest.mark.parametrize("yunikorn", YUNIKORNS)
def test_workshop_gets_four_nodes_and_returns_them(
    rig: Rig, make_site: MakeSite, yunikorn: str
) -> None:
    rig.use_scheduler(yunikorn)
    site = make_site()
    add_pods(rig, PEOPLE)
    site.run_until(lambda: rig.running("dev") == PEOPLE, "every pod of the workshop runs")
    assert len(site.lent) == LEAST
    assert rig.queue(DEV)["maxResource"] == with_nodes(LEAST)
    rig.wait_for(lambda: checksum(rig) == sha256(rig.queues_text()), "the document is active")
    rig.api.ask("DELETE", PODS)
    site.run_until(site.has_returned_nodes, "every node is returned")
    assert rig.queues_text() == QUEUES
    rig.wait_for(lambda: checksum(rig) == sha256(QUEUES), "the document is active")
    assert rig.nodes() == {"k1", "k2"}
    assert not rig.has_ledger()
    assert rig.queue(DEV)["maxResource"] == with_nodes(0)
