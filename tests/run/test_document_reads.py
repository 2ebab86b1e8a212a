"""Tests of how often a run parses and checks the queue document, counted in whole runs over the
sandbox's API. A run that edits also parses its new text; no run parses a text twice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.cluster import ConfigMap
from dnm.model.config import Config
from dnm.model.plan import Pass, SetQueueLimits
from dnm.queues.yunikorn.document import judge_text
from dnm.queues.yunikorn.tree import check_rules
from dnm.queues.yunikorn.yaml_nodes import compose
from dnm.run.planning import Edges, connect
from dnm.run.runner import run_pass
from tests.site import QUEUE, Site, set_up_workshop


class Counts(dict[CodeType, int]):
    @property
    def parses(self) -> int:
        return self.get(compose.__code__, 0)

    @property
    def verdicts(self) -> int:
        return self.get(check_rules.__code__, 0)


@contextmanager
def counting() -> Iterator[Counts]:
    """Counts the function calls of this thread, in which dnm runs, not the sandbox's threads."""
    counts = Counts()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            counts[frame.f_code] = counts.get(frame.f_code, 0) + 1

    judge_text.cache_clear()  # each run is a new process
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield counts
    finally:
        sys.setprofile(before)


def counted_run(site: Site) -> tuple[Pass, Counts]:
    with counting() as counts:
        ran = site.run()
    return ran, counts


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    set_up_workshop(sandbox, 4)
    return Site(sandbox, tmp_path / "site")


def edits(ran: Pass) -> int:
    return sum(isinstance(action, SetQueueLimits) for action in ran.plan.actions)


def lend(site: Site, cpu: str = "100") -> None:
    """Lends a node, up to the run in which it joins."""
    site.sandbox.add_pods(1, "dev", queue=QUEUE, cpu=cpu, memory="200G", run_seconds=300)
    assert not edits(site.run())
    site.sandbox.tick(60)


def test_run_without_changes_parses_the_document_once(site: Site) -> None:
    ran, counts = counted_run(site)
    assert ran.exit_code == 0 and not ran.plan.actions
    assert (counts.parses, counts.verdicts) == (1, 1)


def test_run_in_which_a_node_joins_parses_old_and_new_document(site: Site) -> None:
    lend(site)
    ran, counts = counted_run(site)
    assert edits(ran) == 1 and ran.outcome is not None and not ran.outcome.errors
    assert (counts.parses, counts.verdicts) == (2, 2)
    _, again = counted_run(site)
    assert (again.parses, again.verdicts) == (1, 1)


class Meddled:
    """dnm's client, with another client that writes between a run's plan and its write."""

    def __init__(self, site: Site, kube: KubeClient) -> None:
        self.site = site
        self.kube = kube
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kube, name)

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        if name == "yunikorn-configs":
            self.reads += 1
            if self.reads == 2:
                theirs = self.site.sandbox.queues_text() + "# their line\n"
                self.site.sandbox.set_queues(theirs)
        return self.kube.read_config_map(namespace, name)


def test_edit_is_repeated_after_another_writer_and_keeps_the_other_change(
    site: Site,
) -> None:
    lend(site)

    def connect_meddled(config: Config, environ: Mapping[str, str]) -> Edges:
        kube, converter = connect(config, environ)
        return cast(KubeClient, Meddled(site, kube)), converter

    with counting() as counts:
        ran = run_pass(site.config, dict(os.environ), lambda: False, site.now, connect_meddled)
    assert edits(ran) == 1 and ran.outcome is not None and not ran.outcome.errors
    assert (counts.parses, counts.verdicts) == (4, 4)
    written = site.sandbox.queues_text()
    assert written.endswith("# their line\n") and "vcore: 208" in written
