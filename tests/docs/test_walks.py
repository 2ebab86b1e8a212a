"""Tests that a run calls the functions that the tables of docs/architecture.md list, in order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from dnm.queues.yunikorn.document import judge_text
from tests.docs.pages import ROOT, quoted, table_of
from tests.site import QUEUE, Site, set_up_workshop

PAGE = "docs/architecture.md"
POD = "A pod, from bytes to a count"
LIMIT = "A limit, from the ConfigMap to the write"
NODE = "A node, through its phases"
STAGES = "The stages of a plan"
Call = tuple[str, str]  # file and function, as in a walk
ELSEWHERE = "dnm/converters/"  # the shipped converter is another process


def walk(title: str) -> list[Call]:
    """Returns the functions in a table of the page (a walk), in the order of its rows."""
    return [
        (file.strip("`"), name)
        for _, file, names in table_of(PAGE, title)
        for name in quoted(names)
        if not name[0].isupper() or "." in name  # a constructor is no call
        if not file.startswith(f"`{ELSEWHERE}")
    ]


def calls_of(run: Callable[[], object]) -> list[Call]:
    """Returns the called functions of dnm, each once, in the order of their first calls."""
    seen: dict[CodeType, None] = {}

    def listen(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            seen.setdefault(frame.f_code)

    judge_text.cache_clear()  # of texts that this process has read before
    before = sys.getprofile()
    sys.setprofile(listen)
    try:
        run()
    finally:
        sys.setprofile(before)
    results: dict[Call, None] = {}
    for code in seen:
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT / "dnm"):
            results[str(path.relative_to(ROOT)), code.co_qualname] = None
    return list(results)


def missing_calls(title: str, calls: list[Call]) -> list[Call]:
    return [named for named in walk(title) if named not in calls]


def in_order(title: str, calls: list[Call]) -> list[Call]:
    """Returns the called functions that a table of the page names, in the order of the calls."""
    named = walk(title)
    return [call for call in calls if call in named]


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    set_up_workshop(sandbox, 3)
    sandbox.add_pods(12, "dev", queue=QUEUE, cpu="4", memory="16G", run_seconds=100)
    sandbox.tick(1)
    return Site(sandbox, tmp_path / "site", move_in_place="true")


def test_pod_is_read_and_counted_as_the_walk_shows(site: Site) -> None:
    calls = calls_of(site.run)
    assert not missing_calls(POD, calls)
    assert in_order(POD, calls) == walk(POD)


def test_limit_is_read_and_written_as_the_walk_shows(site: Site) -> None:
    site.run()
    site.sandbox.tick(60)
    calls = calls_of(site.run)
    assert not missing_calls(LIMIT, calls)
    assert in_order(LIMIT, calls) == walk(LIMIT)


def test_node_passes_through_its_phases_as_the_walk_shows(site: Site) -> None:
    """Plays a failed lend, a join, an idle node that is needed again, and a return."""
    site.sandbox.behave(direction="k8s", act=False, exit_code=1)

    def story() -> None:
        was_fenced = False
        for _ in range(20):
            site.run()
            phases = {entry.phase for entry in site.registry.nodes.values()}
            if Phase.RELEASING in phases and not was_fenced:
                was_fenced = True
                late: dict[str, Any] = {"cpu": "60", "memory": "16G", "run_seconds": 100}
                site.sandbox.add_pods(2, "dev", queue=QUEUE, name="late", **late)
            site.sandbox.tick(60)

    calls = calls_of(story)
    assert not missing_calls(NODE, calls)
    assert not site.registry.nodes and not site.sandbox.violations


def test_plan_stages_run_in_the_documented_order(site: Site) -> None:
    """Plays a plan with a joining node and with pods that need further nodes."""
    site.run()
    site.sandbox.tick(60)
    site.sandbox.add_pods(200, "dev", queue=QUEUE, name="late", cpu="4", memory="16G")
    calls = calls_of(site.plan)
    assert not missing_calls(STAGES, calls)
    assert in_order(STAGES, calls) == walk(STAGES)
