"""`dnm check`: pods that no node would help, and the scheduler's own sums."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from tests.cli.check_site import CheckedSite, ask_the_scheduler


@pytest.fixture
def site(tmp_path: Path, sandbox: Sandbox) -> CheckedSite:
    return CheckedSite(tmp_path, sandbox)


def test_every_kind_of_pod_that_no_node_helps_is_named(site: CheckedSite) -> None:
    for number in range(8):
        site.sandbox.add_pods(1, "dev", queue="root.dev", cpu=str(200 + number))
    found = [finding.text for finding in site.bad() if finding.check == "node types"]
    named = [name for text in found for name in re.findall(r"\((pod-\d+)\)", text)]
    assert sorted(named) == [f"pod-{number}" for number in range(8)], found


@pytest.fixture
def scheduled(site: CheckedSite) -> CheckedSite:
    return ask_the_scheduler(site)


def test_the_scheduler_agrees(scheduled: CheckedSite) -> None:
    assert scheduled.bad() == []
    assert [finding.text for finding in scheduled.findings() if finding.check == "YuniKorn"] == [
        f"{scheduled.sandbox.url} has the document in force",
        "root.dev: in use, pending and limit are what dnm makes of them",
    ]


def test_the_scheduler_counts_otherwise(scheduled: CheckedSite) -> None:
    """It keeps the queue that an application began with; the pods' labels name another since."""
    for pod in ("pod-0", "pod-1", "pod-2"):
        scheduled.sandbox.edit("pods", pod, _name_another_queue, "dev")
    assert [finding.text for finding in scheduled.bad()] == [
        "root.dev: it has in use 12 vcore, 48G memory, dnm counts nothing"
    ]


def test_what_dnm_adds_to_a_request_is_no_difference(scheduled: CheckedSite) -> None:
    scheduled.sandbox.cordon("k1")
    scheduled.sandbox.add_pods(1, "dev", queue="root.dev", cpu="4", memory="0")
    scheduled.sandbox.tick()
    assert [finding.text for finding in scheduled.bad()] == []


def test_pods_that_are_not_counted_are_the_first_guess(scheduled: CheckedSite) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "nothing"}}
    scheduled.sandbox.add_pods(1, "dev", queue="root.dev", cpu="4", spec={"volumes": [volume]})
    scheduled.sandbox.tick()
    found = {finding.check: finding for finding in scheduled.bad()}
    assert "dnm counts nothing" in found["YuniKorn"].text
    assert found["YuniKorn"].remedy.startswith("perhaps 1 pod of those that don't count")
    assert "missing" in found["pods"].text


def _name_another_queue(pod: dict[str, dict[str, dict[str, str]]]) -> None:
    for place in ("labels", "annotations"):
        for key in pod["metadata"].get(place, {}):
            if key.endswith("queue"):
                pod["metadata"][place][key] = "root.parent.leaf"


SIDECAR = {
    "name": "proxy",
    "image": "none",
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "4", "memory": "8Gi"}},
}


@pytest.mark.parametrize(
    ("version", "said"),
    [("1.8.0", "3 pods with sidecars that YuniKorn before 1.9 counts twice"), ("1.9.0", "")],
)
def test_sidecars_that_take_more_of_a_queue_than_they_use(
    scheduled: CheckedSite, version: str, said: str
) -> None:
    """And dnm's sums are the scheduler's all the same."""
    scheduled.sandbox.yunikorn.version = version
    spec = {"initContainers": [SIDECAR]}
    scheduled.sandbox.add_pods(3, "dev", queue="root.dev", cpu="2", memory="1G", spec=spec)
    scheduled.sandbox.tick()
    found = [finding.text for finding in scheduled.bad()]
    assert len(found) == bool(said) and all(text.startswith(said) for text in found), found


def test_sidecars_where_the_scheduler_is_not_asked(site: CheckedSite) -> None:
    spec = {"initContainers": [SIDECAR]}
    site.sandbox.add_pods(1, "dev", queue="root.dev", cpu="2", memory="1G", spec=spec)
    (finding,) = site.bad()
    assert "can't ask for the release" in finding.text and "yunikorn_url" in finding.remedy
