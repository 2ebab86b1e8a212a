"""`dnm check`: the queue document, and whether it is the one in force."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dnm.cli.check import run_checks
from dnm.lab.sandbox.cluster import Sandbox
from tests.cli.check_site import QUEUES, CheckedSite, add_settings, ask_the_scheduler, results_of


@pytest.fixture
def site(tmp_path: Path, sandbox: Sandbox) -> CheckedSite:
    return CheckedSite(tmp_path, sandbox)


@pytest.fixture
def scheduled(site: CheckedSite) -> CheckedSite:
    return ask_the_scheduler(site)


def test_the_scheduler_has_another_document(scheduled: CheckedSite) -> None:
    scheduled.sandbox.set_queues(QUEUES.replace("vcore: 80", "vcore: 90"))
    shown = results_of(scheduled.findings(), "YuniKorn")
    assert any("another document in force" in text for text in shown)
    assert any("its limit is 80 vcore, 320G memory, the document's 90 vcore" in text
               for text in shown)  # fmt: skip


def test_the_scheduler_does_not_answer(site: CheckedSite) -> None:
    add_settings(site, "yunikorn_url = http://127.0.0.1:9\n")
    assert [finding.check for finding in site.bad()] == ["YuniKorn"]
    assert run_checks(site.ini, os.environ, "json") == 1


def test_quota_preemption_is_warned_of(site: CheckedSite) -> None:
    """A lowered limit would kill pods that started meanwhile."""
    partition = "  - name: default\n    preemption: {quotapreemptionenabled: true}\n"
    text = QUEUES.replace("  - name: default\n", partition)
    text = text.replace(
        "- name: dev\n", "- name: dev\n            properties: {quota.preemption.delay: 5m}\n"
    )
    site.sandbox.set_queues(text)
    assert any("quota preemption is on" in finding.text for finding in site.bad())


@pytest.mark.parametrize(
    ("policy", "is_named"),
    [
        pytest.param("    nodesortpolicy: {type: binpacking}\n", False, id="binpacking"),
        pytest.param("    nodesortpolicy: {type: fair}\n", True, id="fair"),
        pytest.param("", True, id="the default"),
    ],
)
def test_sorting_that_spreads_pods_is_named(site: CheckedSite, policy: str, is_named: bool) -> None:
    site.sandbox.set_queues(QUEUES.replace("    nodesortpolicy: {type: binpacking}\n", policy))
    found = [one for one in site.bad() if "nodesortpolicy is fair" in one.text]
    assert bool(found) is is_named
    assert all("binpacking" in one.remedy for one in found)
    assert run_checks(site.ini, os.environ) == 0, "it costs nodes and breaks nothing"


LIMITS = "- {limit: all, users: ['*'], maxresources: {vcore: 8}}"
LIMITED = {
    "users of the queue": ("- name: dev\n", f"- name: dev\n            limits: [{LIMITS[2:]}]\n"),
    "applications": ("- name: dev\n", "- name: dev\n            maxapplications: 2\n"),
    "users of root": ("- name: root\n", f"- name: root\n        limits: [{LIMITS[2:]}]\n"),
    "of the partition": ("- name: default\n", f"- name: default\n    limits: [{LIMITS[2:]}]\n"),
}


@pytest.mark.parametrize("name", LIMITED)
def test_limits_that_only_the_scheduler_counts_are_named(site: CheckedSite, name: str) -> None:
    """Without yunikorn_url; with it their pods are known."""
    before, after = LIMITED[name]
    site.sandbox.set_queues(QUEUES.replace(before, after, 1))
    shown = [finding for finding in site.findings() if "does not consider" in finding.text]
    assert [one.remedy for one in shown] == ["set yunikorn_url"], site.findings()
    ask_the_scheduler(site)
    assert not [finding for finding in site.findings() if "does not consider" in finding.text]


def test_without_such_limits_nothing_is_said_of_them(site: CheckedSite) -> None:
    assert not [finding for finding in site.findings() if "does not consider" in finding.text]
