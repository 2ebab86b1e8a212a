"""Tests that node-convert never changes nodes of Slinky, by a table of the marks of such nodes."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from dnm.converters.claim import drain
from dnm.converters.conversion import NotClaimed
from dnm.converters.preempt import claim_from_jobs
from dnm.converters.select import ListVerdict, SlurmFacts, judge_nodes
from dnm.converters.settings import Machines
from dnm.converters.slurm import text
from dnm.converters.slurm.commands import SlurmRefused
from dnm.converters.slurm.text import JobRecord, Reservation
from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.slinky import pod_of, pods_of_job, writer_of
from tests.converters.test_select import NOW, RULES, node

POD = '{"namespace":"slurm","podName":"batch-x7f2k","node":"a001","nodeSetName":"batch"}'
FAR = Reservation(
    name="SlurmOperatorMaint-batch", start=NOW + timedelta(days=9), end=None, nodes=("a001",)
)


OF_SLINKY: dict[str, tuple[dict[str, Any], str]] = {
    "a pod": ({"comment": POD}, "its slurmd runs in pod slurm/batch-x7f2k"),
    "a dynamic node in a pod": (
        {"comment": POD, "state": "IDLE+DYNAMIC_NORM"}, "its slurmd runs in pod slurm/batch-x7f2k"),
    "a dynamic node": ({"state": "IDLE+DYNAMIC_NORM"}, "state flag DYNAMIC_NORM"),
    "the bridge's": ({"state": "IDLE+EXTERNAL"}, "state flag EXTERNAL"),
    "the operator's drain": (
        {"state": "IDLE+DRAIN", "reason": "slurm-operator: Pod (s/p) was cordoned"},
        "drained by slurm-operator, which alone lifts that: slurm-operator: Pod"),
    "the bridge's drain": (
        {"state": "MIXED+DRAIN", "reason": "slurm-bridge: slurm-bridge: removing"},
        "drained by slurm-bridge, which alone"),
    "a reason that stayed": (
        {"reason": "slurm-bridge: Corresponding Kubernetes node (/a001) is unschedulable"},
        "slurm-bridge has drained it before (slurm-bridge: Corresponding"),
    "maintenance": ({}, "reservation SlurmOperatorMaint-batch is slurm-operator's"),
    "a comment of the site's": ({"comment": "rack 7"}, "-"),
    "JSON of the site's": ({"comment": '{"namespace":"x"}'}, "-"),
    "another's reason": ({"reason": "not slurm-bridge: x"}, "-"),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_SLINKY)
def test_slinky_node_is_not_lent(case: str) -> None:
    fields, reason = OF_SLINKY[case]
    maintained = (FAR,) if case == "maintenance" else ()
    facts = SlurmFacts(nodes=(node(**fields),), jobs=(), reservations=maintained, read_at=NOW)
    (judged,) = judge_nodes(facts, RULES)
    assert judged.reason.startswith(reason)
    assert (judged.verdict is ListVerdict.OK) == (reason == "-")


def a_claim_of(**changes: Any) -> Any:
    """Returns a conversion that can only make the reads before a claim. Any other call to Slurm is
    an error, so that a test fails if dnm changes anything."""
    document = {"jobs": {}, "mode": "requeue", "node": node(), **changes}
    return SimpleNamespace(
        node="a001",
        settings=SimpleNamespace(
            instance="prod", preempt_mode=document["mode"], machines=Machines.OWN
        ),
        journal=SimpleNamespace(operation="7", facts={"preempt": ",".join(document["jobs"])}),
        slurm=SimpleNamespace(read_job=document["jobs"].__getitem__),
        read_node=lambda: document["node"],
        patiently=lambda ask: ask(),
        change_slurm=lambda change, is_so: is_so() or change(),
    )


@pytest.mark.parametrize("may_work", [False, True])
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"comment": POD}, "its slurmd runs in pod", id="a-pod"),
        pytest.param({"reason": "slurm-bridge: x"}, "has drained it before", id="the-bridge-s"),
    ],
)
def test_state_is_checked_before_a_drain(fields: dict[str, Any], why: str, may_work: bool) -> None:
    with pytest.raises(NotClaimed, match=why):
        drain(a_claim_of(node=node(**fields)), may_work=may_work)


@pytest.mark.parametrize("mode", ["requeue", "cancel"])
def test_job_with_pods_is_not_preempted(mode: str) -> None:
    job = JobRecord(
        state="RUNNING", is_requeueable=True, is_batch=True, admin_comment='{"pods":["dev/p1"]}'
    )  # fmt: skip
    with pytest.raises(NotClaimed, match="job 7 belongs to pod dev/p1"):
        claim_from_jobs(a_claim_of(jobs={"7": job}, mode=mode))


def test_forgotten_job_is_no_failure_of_the_node() -> None:
    """A job that ended meanwhile makes dnm skip the node, without the pause after a failure."""

    def read_job(job: str) -> JobRecord:
        raise SlurmRefused("failed", "slurm_load_jobs error: Invalid job id specified")

    claim = a_claim_of(jobs={"7": None})
    claim.slurm.read_job = read_job
    with pytest.raises(NotClaimed, match="job 7 is gone: slurm_load_jobs error: Invalid job id"):
        claim_from_jobs(claim)


def test_lent_state_is_reported_before_a_foreign_mark() -> None:
    own = Reservation(name="k8s-a001", start=NOW, end=None, nodes=("a001",))
    facts = SlurmFacts(nodes=(node(comment=POD),), jobs=(), reservations=(own,), read_at=NOW)
    assert judge_nodes(facts, RULES)[0].reason == "lent or being lent (reservation k8s-a001)"


@pytest.mark.parametrize(
    ("comment", "pod"),
    [(POD, "slurm/batch-x7f2k"), ("", ""), ("{}", ""), ("[]", ""), ('{"namespace":1}', ""),
     ('{"namespace":"","podName":"p"}', ""), ("[" * 9000, ""), ("\udce4", "")],
)  # fmt: skip
def test_pod_is_parsed_from_a_node_comment(comment: str, pod: str) -> None:
    assert pod_of(comment) == pod


UNKNOWN = ("with an unreadable name",)


@pytest.mark.parametrize(
    ("admin_comment", "pods"),
    [('{"pods":["dev/p1","dev/p2"]}', ("dev/p1", "dev/p2")), ('{"pods":[]}', ()), ("", ()),
     ("checked by ops", ()), ('{"pods":7}', UNKNOWN), ('{"pods":', UNKNOWN),
     ('{"pods":["dev/p1","dev', UNKNOWN), ('{"ticket":7}', ()), ('see "pods"', ())],
)  # fmt: skip
def test_parses_pods_of_a_job(admin_comment: str, pods: tuple[str, ...]) -> None:
    assert pods_of_job(admin_comment) == pods


def test_pods_of_a_job_are_read_from_scontrol() -> None:
    line = (
        "JobId=7 JobName=x UserId=u(1) JobState=RUNNING Requeue=1 Restarts=0 BatchFlag=0 "
        'ExitCode=0:0 WorkDir=/tmp AdminComment={"pods":["dev/p1"]} Comment=AdminComment'
    )
    assert pods_of_job(text.parse_job_record(line).admin_comment) == ("dev/p1",)
    spaced = line.replace('{"pods":["', '{"pods": ["')
    assert pods_of_job(text.parse_job_record(spaced).admin_comment) == UNKNOWN
    plain = line.replace('AdminComment={"pods":["dev/p1"]} ', "")
    assert text.parse_job_record(plain).admin_comment == ""


@pytest.mark.parametrize(
    ("reason", "writer"),
    [("slurm-operator: x", "slurm-operator"), ("slurm-bridge: x", "slurm-bridge"),
     ("slurm-operator", ""), ("dnm:prod op=1", ""), ("", "")],
)  # fmt: skip
def test_reason_prefix_identifies_its_author(reason: str, writer: str) -> None:
    assert writer_of(reason) == writer


@pytest.mark.parametrize(
    ("key", "effect", "evicts"),
    [
        ("slinky.slurm.net/managed-node", "NoExecute", True),
        ("nodeset.slinky.slurm.net/worker", "NoExecute", True),
        ("slinky.slurm.net/managed-node", "NoSchedule", False),
        ("example.org/other", "NoExecute", False),
    ],
)
def test_taints_of_slinky_evict_pods(key: str, effect: str, evicts: bool) -> None:
    taints = (Taint(key="a", effect="NoSchedule"), Taint(key=key, effect=effect))
    result = Node(name="a001", allocatable={}, taints=taints).evicting_taint
    assert result == (taints[1] if evicts else None)
