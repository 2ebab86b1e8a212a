"""Tests of `dnm queues` (output, exit codes) and of warnings in `dnm check`, on the sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config
from dnm.model.errors import ExitCode, QueueError
from dnm.model.queue_edit import QueueWants
from dnm.model.value import Resources
from dnm.plan.queue_reports import headroom
from dnm.queues.yunikorn.admin.queue_verbs import check_cluster, show_queues
from dnm.queues.yunikorn.admin.rebase_verb import rebase_queues
from dnm.queues.yunikorn.advice import warn_of_gangs, warn_of_quota_preemption
from dnm.queues.yunikorn.document import read_document
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.rebase import LimitMeaning, rebase_document
from dnm.queues.yunikorn.rest import YunikornClient
from dnm.queues.yunikorn.source import DEFAULT_PLACE, LEDGER_ANNOTATION, SourceDocument, read_source
from dnm.queues.yunikorn.tree import parse_tree
from tests.queue_kit import TREE, A, B, change, lend, nodes_of
from tests.queue_writer import write
from tests.site import WORKSHOP_QUEUES, a_workshop_site


@pytest.fixture
def kube(sandbox: Sandbox) -> Iterator[KubeClient]:
    sandbox.set_queues(TREE)
    kubeconfig = sandbox.kubeconfig
    config = Config(path=Path("x"), namespaces={}, node_types={}, kubeconfig_path=kubeconfig)
    client = KubeClient.connect(config)
    yield client
    client.close()


def test_queue_document_of_the_cluster_is_checked(
    sandbox: Sandbox, kube: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_cluster(kube, DEFAULT_PLACE, YunikornClient(sandbox.url), output="text") == 0
    assert "queues.yaml: dnm can edit it, 5 queues; YuniKorn accepts it" in capsys.readouterr().out
    sandbox.yunikorn.has_webhook = False
    sandbox.set_queues(change(TREE, "vcore: 80", "vcore: 7"))
    assert check_cluster(kube, DEFAULT_PLACE, None, output="text") == 1
    printed = capsys.readouterr().out
    assert "configmap/yunikorn/yunikorn-configs/queues.yaml:13: root.science.a:" in printed


def test_missing_config_map_is_an_error_of_check_and_of_a_run(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Once, `queues check` reported that dnm can edit the document, although there was none."""
    site = a_workshop_site(sandbox, tmp_path)
    site.run_until_rest()
    sandbox.delete("configmaps", "yunikorn-configs", "yunikorn")
    cause = "there is no ConfigMap yunikorn/yunikorn-configs"
    for words in (["queues", "check"], ["check"]):
        checked = site.command(*words, COLUMNS="1000")
        assert checked.returncode == 1 and cause in checked.stdout
        assert "dnm can edit it" not in checked.stdout
    shown = site.command("queues", "show")
    assert shown.returncode != 0 and cause in shown.stderr
    ended = site.run()
    assert ended.exit_code == ExitCode.NEEDS_PERSON
    assert ended.plan.errors[0].startswith(cause) and len(ended.plan.errors) == 1
    assert cause in ended.plan.queues[0].detail


def test_unreadable_ledger_is_an_error_of_check(
    sandbox: Sandbox, kube: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(item: dict[str, dict[str, dict[str, str]]]) -> None:
        item["metadata"].setdefault("annotations", {})[LEDGER_ANNOTATION] = "{"

    sandbox.edit("configmaps", "yunikorn-configs", breaks, "yunikorn")
    assert check_cluster(kube, DEFAULT_PLACE, None, output="text") == 1
    assert "cannot read the annotation" in capsys.readouterr().out


def test_rule_that_only_yunikorn_checks_is_a_violation(
    kube: KubeClient, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    class Strict(YunikornClient):
        def validate(self, text: str) -> str:
            return "an extension says no"

    assert check_cluster(kube, DEFAULT_PLACE, Strict(sandbox.url), output="json") == 1
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["violations"][0]["rule"] == "yunikorn"
    assert "an extension says no" in entry["violations"][0]["message"]


def test_unreachable_yunikorn_is_an_advice_only(
    kube: KubeClient, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox.fault("down", path="/ws/v1")
    assert check_cluster(kube, DEFAULT_PLACE, YunikornClient(sandbox.url), output="text") == 0
    assert "advice: YuniKorn at" in capsys.readouterr().out


def test_queues_show_lists_limits_lent_nodes_and_headroom(
    sandbox: Sandbox,
    kube: KubeClient,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(sandbox.kubeconfig, None, "prod", nodes_of(A, "n1", "n2"))
    write(sandbox.kubeconfig, None, "test", nodes_of(B, "m1"))
    used: dict[str, Resources] = {
        A: {"vcore": 100_000},
        "root.science": {"vcore": 1_300_000, "memory": 10**12},
    }
    assert show_queues(kube, DEFAULT_PLACE, used, output="text") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "queue resource limit baseline lent used headroom" in printed
    assert "root the cluster's size" in printed
    assert "science vcore 1384 1000 384 1300 84" in printed
    assert "a vcore 336 80 256 100 84 memory 832G 320G 512G 0G 832G" in printed
    assert "free none" in printed
    assert "root.science.b test m1 128 vcore" in printed
    assert show_queues(kube, DEFAULT_PLACE, None, output="text") == 0
    assert "336 80 256 ? ?" in " ".join(capsys.readouterr().out.split())


def test_queues_show_prints_json(
    sandbox: Sandbox, kube: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    show_queues(kube, DEFAULT_PLACE, None, output="text")
    assert "no node serves a queue yet" in capsys.readouterr().out
    write(sandbox.kubeconfig, None, "prod", nodes_of(A, "n1"))
    show_queues(kube, DEFAULT_PLACE, {}, output="json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == "dnm.queues.show/1"
    row = next(row for row in shown["queues"] if row["queue"] == A)
    assert row["limit"]["vcore"] == 208_000 and row["baseline"]["vcore"] == 80_000
    assert row["lent"]["vcore"] == row["nodes"]["prod"]["n1"]["vcore"] == 128_000
    assert row["headroom"] == {"vcore": 208_000, "memory": 576 * 10**9}


def test_headroom_is_the_tightest_limit_up_to_root() -> None:
    queues = parse_tree(TREE).queues
    used: dict[str, Resources] = {"root.science": {"vcore": 970_000}, A: {"memory": 4 * 10**11}}
    assert headroom(queues, used, A) == {"vcore": 30_000, "memory": 0}
    assert headroom(queues, used, "root.free") == {}


def test_rebase_writes_the_ledger_that_was_confirmed(
    sandbox: Sandbox, kube: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox.set_queues(lend(TREE, nodes_of(A, "n1")).text)  # without its ledger
    wants = QueueWants(instance_id="prod", nodes=nodes_of(A, "n1"))
    with pytest.raises(QueueError, match="dnm queues rebase --as total"):
        write(sandbox.kubeconfig, None, "other", nodes_of(B, "m1"), remembered=None)

    kept: list[str | None] = []

    def rebase_as(reading: LimitMeaning, is_sure: bool = True) -> str:
        def change_it(source: SourceDocument) -> DocumentEdit:
            return rebase_document(read_document(source), wants, reading)

        asked: list[str] = []

        def answer(question: str) -> bool:
            asked.append(capsys.readouterr().out)
            return is_sure

        lock = nullcontext(kept.append)
        assert rebase_queues(kube, DEFAULT_PLACE, change_it, answer, lock) == 0
        return "".join(asked) + "| " + capsys.readouterr().out

    before = sandbox.queues_text()
    message = rebase_as(LimitMeaning.BASELINE, is_sure=False)
    assert f"{A}: max vcore 208 -> 336" in message and message.endswith("| nothing was written\n")
    message = rebase_as(LimitMeaning.TOTAL, is_sure=False)
    assert message.startswith("no limit changes\n")
    assert f"{A}: max without lent nodes: 80 vcore, 320G memory" in message
    with pytest.raises(QueueError, match="dnm queues rebase --as total"):
        write(sandbox.kubeconfig, None, "other", nodes_of(B, "m1"), remembered=None)
    assert rebase_as(LimitMeaning.TOTAL).endswith("| the answer is recorded\n")
    for reading in LimitMeaning:
        message = rebase_as(reading)
        assert message.startswith("| these limits are as dnm wrote") and "nothing was wr" in message
    assert sandbox.queues_text() == before
    assert kept == [read_source(kube, DEFAULT_PLACE).ledger_text]


def test_restored_older_export_needs_an_administrator_after_all_returns(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Once, dnm took the export's limit for a baseline, although it contains lent nodes."""
    site = a_workshop_site(sandbox, tmp_path)
    site.run_until_rest()
    export = sandbox.queues_text()
    assert export != WORKSHOP_QUEUES
    for pod in site.pods():
        sandbox.delete("pods", pod, "dev")
    for _ in range(2):
        site.run_until_rest()
        sandbox.tick(3600)
    site.run_until_rest()
    assert not site.lent() and sandbox.queues_text() == WORKSHOP_QUEUES
    sandbox.set_queues(export)
    asked = site.run()
    assert asked.exit_code == ExitCode.NEEDS_PERSON
    assert "which dnm itself wrote earlier" in " ".join(asked.plan.errors)
    sandbox.set_queues(WORKSHOP_QUEUES)
    assert site.run().exit_code == ExitCode.OK
    sandbox.set_queues(export)
    site.run()
    assert site.command("queues", "rebase", "--as", "baseline").returncode == 1  # no terminal
    answered = site.command("queues", "rebase", "--as", "baseline", "--yes")
    assert (answered.returncode, answered.stdout.splitlines()[-1]) == (0, "the answer is recorded")
    for _ in range(2):
        quiet = site.run()
        assert quiet.exit_code == ExitCode.OK and not quiet.plan.errors
    again = site.command("queues", "rebase", "--as", "baseline", "--yes")
    assert again.returncode == 0 and "nothing was written" in again.stdout


def test_document_changed_during_the_confirmation_is_confirmed_again(
    sandbox: Sandbox, kube: KubeClient
) -> None:
    sandbox.set_queues(lend(TREE, nodes_of(A, "n1")).text)
    wants = QueueWants(instance_id="prod", nodes=nodes_of(A, "n1"))
    questions = 0

    def answer(question: str) -> bool:
        nonlocal questions
        questions += 1
        text = sandbox.queues_text()
        if questions == 1:
            sandbox.set_queues(change(text, "max: {vcore: 208,", "max: {vcore: 300,"))
        return True

    def change_it(source: SourceDocument) -> DocumentEdit:
        return rebase_document(read_document(source), wants, LimitMeaning.BASELINE)

    kept: list[str | None] = []
    assert rebase_queues(kube, DEFAULT_PLACE, change_it, answer, nullcontext(kept.append)) == 0
    assert kept == [read_source(kube, DEFAULT_PLACE).ledger_text]
    assert questions == 2 and "max: {vcore: 428," in sandbox.queues_text()


PREEMPTION = """\
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true}
    queues:
      - name: a
        properties: {quota.preemption.delay: 1m}
        queues:
          - {name: b, resources: {max: {vcore: 5}}}
          - {name: c, properties: {preemption.quota.delay: "0"}}
      - {name: d, properties: {quota.preemption.delay: 0s}}
"""


def test_quota_preemption_is_warned_of() -> None:
    queues = ["root.a.b", "root.a.c", "root.d", "root.nowhere"]
    lines = warn_of_quota_preemption(parse_tree(PREEMPTION), queues)
    assert [text.split(":")[0] for text in lines] == ["root.a.b", "root.a.c"]
    assert "root.a has a delay of 1m" in lines[0]
    off = change(PREEMPTION, "quotapreemptionenabled: true", "enabled: true")
    assert warn_of_quota_preemption(parse_tree(off), queues) == ()


def test_large_gangs_are_warned_of() -> None:
    document = parse_tree(TREE)
    largest: dict[str, Resources] = {
        A: {"vcore": 64_000, "pods": 8},
        B: {"vcore": 65_000},
        "root.free": {},
    }
    small, large = warn_of_gangs(document, largest)
    assert small.startswith(A) and "64 vcore, 8 pods" in small and "smaller" not in small
    assert "The max of root.science.b is smaller: YuniKorn rejects the gang" in large
