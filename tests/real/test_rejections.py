"""Tests of pods that the scheduler refuses or holds back: dnm lends no node and reports why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.http_api import Json
from tests.real.pod_kinds import gang
from tests.real.rig import Rig
from tests.real.site import DEV, NOTEBOOK, PODS, Site, pod
from tests.real.versions import YUNIKORNS


@pytest.fixture(params=YUNIKORNS)
def either_rig(request: pytest.FixtureRequest, rig: Rig) -> Rig:
    rig.use_scheduler(request.param)
    return rig


def make(rig: Rig, namespace: str, pods: Sequence[Json]) -> None:
    for manifest in pods:
        rig.api.post(f"/api/v1/namespaces/{namespace}/pods", manifest)


def phases(rig: Rig, namespace: str) -> dict[str, int]:
    results: dict[str, int] = {}
    for entry in rig.pods(namespace):
        phase = entry["status"].get("phase", "Pending")
        results[phase] = results.get(phase, 0) + 1
    return results


def plan_text(site: Site, queue: str) -> str:
    """Returns the output of `dnm plan`."""
    answer = site.dnm("plan")
    print(answer.stdout, answer.stderr)
    return answer.stdout


def assert_no_node_is_lent(site: Site) -> None:
    for _ in range(3):
        site.dnm("run")
    assert not [call for call in site.calls if "--set" in call]


def rests_at(rig: Rig, namespace: str, wanted: dict[str, int]) -> Callable[[], bool]:
    return lambda: phases(rig, namespace) == wanted


def test_gang_larger_than_its_queue_is_rejected_at_once(
    either_rig: Rig, make_site: MakeSite
) -> None:
    """The gang requests 60 vcore in a queue with 48. YuniKorn fails its pods at once."""
    make(either_rig, "notebook", gang("wide", 6, 2, "10")(NOTEBOOK))
    either_rig.wait_for(rests_at(either_rig, "notebook", {"Failed": 2}), "the gang is rejected")
    reasons = {entry["status"].get("reason") for entry in either_rig.pods("notebook")}
    assert reasons == {"ApplicationRejected"}
    site = make_site()
    assert_no_node_is_lent(site)
    assert f"queue {NOTEBOOK}: nothing" in plan_text(site, NOTEBOOK)


def test_pod_of_an_unknown_queue_is_rejected(either_rig: Rig, make_site: MakeSite) -> None:
    """YuniKorn has no placement rule that creates the queue."""
    rule = "      - name: tag\n        value: namespace\n        create: true\n"
    assert rule in QUEUES
    either_rig.write_queues(QUEUES.replace(rule, ""))
    make(either_rig, "dev", [pod("lost", "root.research.nowhere", "4", "4Gi")])
    either_rig.wait_for(rests_at(either_rig, "dev", {"Failed": 1}), "the pod is rejected")
    site = make_site()
    assert_no_node_is_lent(site)
    assert f"queue {DEV}: nothing" in plan_text(site, DEV)


def test_user_limit_creates_no_demand_for_nodes(either_rig: Rig, make_site: MakeSite) -> None:
    """A user may use 16 vcore and has ten pods of 5, of which three run. The queue's 48 vcore are
    too few for all, but no lent node would start a fourth pod."""
    user_limit(either_rig)
    site = make_site()
    assert_no_node_is_lent(site)
    assert "held back by a user or group limit" in plan_text(site, NOTEBOOK)


def test_application_limit_creates_no_demand_for_nodes(
    either_rig: Rig, make_site: MakeSite
) -> None:
    """With maxapplications 1, the second application waits, and a node would not start it."""
    application_limit(either_rig)
    site = make_site()
    assert_no_node_is_lent(site)
    message = plan_text(site, DEV)
    assert "maxapplications" in message


def user_limit(rig: Rig) -> None:
    make(rig, "notebook", [pod(f"n{number}", NOTEBOOK, "5", "1Gi") for number in range(10)])
    rig.wait_for(rests_at(rig, "notebook", {"Running": 3, "Pending": 7}), "three pods run")


def application_limit(rig: Rig) -> None:
    line = "                  - name: dev            # workshops\n"
    rig.write_queues(QUEUES.replace(line, f"{line}                    maxapplications: 1\n"))
    rig.wait_for(lambda: rig.queue(DEV).get("maxRunningApps") == 1, "it is active")
    make(rig, "dev", [pod(f"d{number}", DEV, "60", "8Gi") for number in range(2)])
    rig.wait_for(rests_at(rig, "dev", {"Running": 1, "Pending": 1}), "one pod runs")


LIMITS = {"user": (user_limit, NOTEBOOK), "application": (application_limit, DEV)}


@pytest.mark.parametrize("name", LIMITS)
def test_limit_unknown_without_yunikorn_url_lends_a_single_node_once(
    rig: Rig, make_site: MakeSite, name: str
) -> None:
    """dnm lends one node, returns it unused and lends no more. `dnm check` names the limit."""
    limit, queue = LIMITS[name]
    limit(rig)
    document = rig.queues_text()
    site = make_site(yunikorn_url=None)
    rows = [row for row in site.json("check")["checks"] if row["remedy"] == "set yunikorn_url"]
    assert any(queue in row["text"] for row in rows), rows

    def was_returned() -> bool:
        return any("--set batch" in call for call in site.calls) and site.has_returned_nodes()

    site.run_until(was_returned, "the node was lent and returned")
    for _ in range(6):
        site.dnm("run")
    assert sum("--set k8s" in call for call in site.calls) == 1, site.calls
    assert "waiting for something else" in " ".join(plan_text(site, queue).split())
    assert rig.queues_text() == document


def test_quota_of_zero_is_raised_if_dnm_may_raise_it(either_rig: Rig, make_site: MakeSite) -> None:
    """A queue with 0 vcore and some memory admits no pod that requests vcore. dnm counts such pods
    only if it may raise the limit."""
    text = QUEUES.replace(
        "                        memory: 400Gi\n                        vcore: 100\n",
        "                        memory: 400Gi\n                        vcore: 0\n",
    )
    assert text != QUEUES
    either_rig.write_queues(text)
    limit = {"vcore": 0, "memory": 400 * 2**30}
    either_rig.wait_for(lambda: either_rig.queue(DEV).get("maxResource") == limit, "in force")
    make(either_rig, "dev", [pod(f"d{number}", DEV, "4", "8Gi") for number in range(2)])
    site = make_site()
    site.run_until(rests_at(either_rig, "dev", {"Running": 2}), "the pods run on a lent node")
    assert len(site.lent) == 1
    either_rig.api.ask("DELETE", PODS)
    site.run_until(site.has_returned_nodes, "the node is returned")
    assert either_rig.queues_text() == text
