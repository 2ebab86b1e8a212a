"""Tests of the numbers in the examples of the pages: dnm's own code computes the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from dnm.config import numbers
from dnm.demand.pod_request import ContainerRequest, PodRequest, effective_request
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.observed import Breaker
from dnm.model.plan import Plan
from dnm.model.pod import Pod
from dnm.model.registry import Registry, RunRecord
from dnm.plan.breaker import next_chance, with_failure
from dnm.plan.rules.batch_floors import floor_bounds
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.quantities import yunikorn_amounts
from dnm.queues.yunikorn.tree import parse_tree
from tests.builders import a_batch_node, a_request
from tests.docs.pages import quoted, section, table_of
from tests.plan.pauses import paid
from tests.plan.worlds import World, queue_map
from tests.queue_kit import TREE, A, change, edit, lend, notes_of
from tests.scenes import DEV, GPU, NOW, bound, config, entry, lent, node, pods, size
from tests.site import QUEUE, Site, set_up_workshop

DECISIONS, QUEUES = "docs/decisions.md", "docs/queues.md"
CONFIG = config(headroom=0.95)


# --- when a queue gets nodes -------------------------------------------------------------------

DOCUMENT = """\
partitions:
  - name: default
    queues:
      - name: root
        queues:
          - name: anvil
            queues:
              - name: gpu
              - name: dev
                resources:
                  max: {{vcore: {}, memory: {}}}
"""


def cores_and_memory(cell: str) -> tuple[float, float]:
    """Parses a cell such as `80 / 320G` into cores and gigabytes."""
    cores, memory = cell.split(" / ")
    return float(cores), float(memory.removesuffix("G"))


def plan(
    conf: Config,
    limit: str,
    some: Sequence[Pod],
    nodes: Sequence[Node],
    registry: Registry | None = None,
) -> Plan:
    world = World().set(config=conf, registry=registry or Registry())
    text = DOCUMENT.format(*limit.split(" / "))
    batch = {name: a_batch_node(name) for name in (f"a{number}" for number in range(900, 950))}
    world.set(pods=tuple(some), nodes=list(nodes), maps=(queue_map(text=text), None), batch=batch)
    return world.plan()


def requested_count(made: Plan, queue: str = DEV) -> int:
    return sum(request.count for request in made.registry.requests if request.queue == queue)


@pytest.mark.parametrize("row", table_of(DECISIONS, "When a queue gets nodes"), ids=" | ".join)
def test_queue_gets_as_many_nodes_as_the_row_shows(row: list[str]) -> None:
    limit, used, count, each, free, verdict, number, reason = row
    have, ask = cores_and_memory(used), cores_and_memory(each)
    some = bound(1, size(*have), "full") + pods(int(count), size(*ask))
    nodes = [node("full", *have)]
    if free != "none":
        nodes.append(node("k1", *cores_and_memory(free)))
    made = plan(config(headroom=0.95, max_conversions_per_run=50), limit, some, nodes)
    (answer,) = (queue for queue in made.queues if queue.queue == DEV)
    assert (answer.verdict.value, answer.reason.text) == (verdict, reason)
    assert requested_count(made) == int(number)


# --- what a pod requests ------------------------------------------------------------------------


@pytest.mark.parametrize("row", table_of(DECISIONS, "What a pod requests"), ids=" | ".join)
def test_pod_is_counted_as_the_row_shows(row: list[str]) -> None:
    def requests(cell: str, is_sidecar: bool = False) -> tuple[ContainerRequest, ...]:
        amounts = [] if cell == "–" else cell.split(", ")
        return tuple(
            ContainerRequest(name=f"{cell} {number}", requests={"cpu": cpu}, is_sidecar=is_sidecar)
            for number, cpu in enumerate(amounts)
        )

    containers, sidecars, inits, overhead, counted = row
    pod = PodRequest(
        containers=requests(containers),
        init_containers=(*requests(sidecars, is_sidecar=True), *requests(inits)),
        overhead={} if overhead == "–" else {"cpu": overhead},
    )
    milli = int(counted[:-1]) if counted.endswith("m") else int(counted) * 1000
    assert effective_request(pod)["cpu"] == milli


# --- the restrictions ------------------------------------------------------------------------


@pytest.mark.parametrize("row", table_of(DECISIONS, "The restrictions", "max_conv"), ids=" | ".join)
def test_cap_leaves_as_many_nodes_as_the_row_shows(row: list[str]) -> None:
    most, there, wanted, per_run, started = map(int, row)
    names = [f"a{number:03}" for number in range(there)]
    registry = Registry(
        nodes={name: entry(name, namespace="gpu", queue=GPU, idle=None) for name in names},
        last_run=RunRecord(ledger=""),
    )
    some = pods(wanted * 2, size(64, 128))
    for name in names:
        some += bound(1, size(128, 256), name, namespace="gpu", app=f"on {name}")
    conf = config(max_converted_nodes=most, max_conversions_per_run=per_run)
    nodes = [lent(name, "gpu") for name in names]
    made = plan(conf, "10000 / 100000G", some, nodes, registry)
    assert requested_count(made) == started
    (answer,) = (queue for queue in made.queues if queue.queue == DEV)
    assert f"needs {wanted} of type a" in answer.sentence


def test_back_off_times_are_as_documented() -> None:
    backoff = with_failure(CONFIG, None, 4, NOW, "it failed")
    rows = minutes_listed_after("on dnm waits for")
    for failures, minutes in enumerate(rows, 2):
        backoff = with_failure(CONFIG, backoff, 4, NOW, "it failed")
        assert backoff.failures == failures
        assert backoff.until - NOW == timedelta(minutes=minutes)
        assert backoff.ask_at_most == max(1, 4 >> (failures - 1))
    assert len(rows) == 6 and with_failure(CONFIG, backoff, 4, NOW, "").until == backoff.until


def minutes_listed_after(behind: str) -> list[int]:
    """Returns the minutes that docs/decisions.md lists after the words `behind`."""
    (numbers,) = re.findall(rf"{behind} ([\d, ]+) min", section(DECISIONS, "The restrictions"))
    return [int(number) for number in numbers.split(", ")]


def test_chance_times_of_changed_demand_are_as_documented() -> None:
    rows = minutes_listed_after("node, after")
    for trips, minutes in enumerate(rows, 1):
        breaker = Breaker(unused=3, trips=trips, tripped_at=NOW)
        assert next_chance(CONFIG, breaker) - NOW == timedelta(minutes=minutes)
    assert len(rows) == 7


@pytest.mark.parametrize(
    "row", table_of(DECISIONS, "The restrictions", "nodes that"), ids=" | ".join
)
def test_floor_leaves_as_many_nodes_as_the_row_shows(row: list[str]) -> None:
    there, listed, coming, floor, left = row
    names = [f"a{n:03}" for n in range(int(listed))]
    batch = {name: a_batch_node(name, n < int(there)) for n, name in enumerate(names)}
    registry = Registry(requests=(a_request(count=int(coming)),) if int(coming) else ())
    conf = config(batch_floor=numbers.floor(floor))
    bounds = {bound.name: bound.left for bound in floor_bounds(conf, registry, batch)}
    assert bounds["batch_floor of type a"] == int(left)


# --- one node, minute by minute ----------------------------------------------------------------


def test_node_is_lent_and_returned_as_the_rows_show(sandbox: Sandbox, tmp_path: Path) -> None:
    set_up_workshop(sandbox, 3)
    sandbox.add_pods(12, "dev", queue=QUEUE, cpu="4", memory="16G", run_seconds=240)
    site = Site(sandbox, tmp_path / "site", reversion_idle_seconds=300)
    sandbox.tick(1)
    played = {}
    for minute in range(13):
        result = site.run()
        assert result.outcome is not None
        registry = result.outcome.registry
        phases = [lent_node.phase.value for lent_node in registry.nodes.values()]
        phase = (phases or ["requested" if registry.requests else "forgotten"])[0]
        words = dict.fromkeys(
            line.split()[0].removeprefix("action=") for line in result.outcome.actions
        )
        limit = parse_tree(sandbox.queues_text()).queues[QUEUE].max["vcore"] // 1000
        played[minute] = [phase, ", ".join(words) or "–", str(limit)]
        sandbox.tick(60)
    for number, *lines in table_of(DECISIONS, "One node, minute by minute"):
        assert played[int(number)] == lines, f"minute {number}"


# --- the queue document ------------------------------------------------------------------------

LENT = yunikorn_amounts(size(128, 256))


def vcore(made: DocumentEdit, queue: str = A) -> int:
    assert not made.refusal
    return parse_tree(made.text).queues[queue].max["vcore"] // 1000


def test_documented_limit_is_baseline_plus_serving_nodes() -> None:
    text, ledger = TREE, ""
    table = table_of(QUEUES, "A limit in numbers")
    assert len(table) == 5
    for serving, above, limit in table:
        names = [] if serving == "none" else serving.split(", ")
        made = edit(text, ledger, {A: dict.fromkeys(names, LENT)} if names else {})
        assert (vcore(made, "root.science"), vcore(made)) == (int(above), int(limit)), serving
        text, ledger = made.text, made.ledger
    assert text == TREE


@pytest.mark.parametrize("row", table_of(QUEUES, "When another client changes it"), ids=" | ".join)
def test_foreign_change_of_a_limit_is_read_as_the_row_shows(row: list[str]) -> None:
    current, reading, baseline, limit = row
    nodes = {A: {"a001": LENT}}
    before = lend(TREE, nodes, adjust_guaranteed=False)
    text = before.text
    if current != "208":
        text = change(text, "max: {vcore: 208,", f"max: {{vcore: {current},")
    made = edit(text, before.ledger, nodes, adjust_guaranteed=False)
    assert vcore(made) == int(limit)
    if baseline != "–":
        assert made.numbers[A].baseline["vcore"] == int(baseline) * 1000
    word = {"unchanged": "", "a manifest": "back at its baseline", "a new total": "new total"}
    expected = next((note for owner, note in word.items() if reading.startswith(owner)), None)
    if expected is None:
        assert "less than the lent amount" in made.held[A]
    else:
        assert expected in " ".join(notes_of(made)) and bool(notes_of(made)) == bool(expected)


@pytest.mark.parametrize("row", table_of(QUEUES, "Where a shrink stops"), ids=" | ".join)
def test_shrink_stops_where_the_row_shows(row: list[str]) -> None:
    used, before, after, why = row
    lending = lend(TREE, {A: {"a001": LENT}})
    assert vcore(lending) == int(before)
    made = edit(lending.text, lending.ledger, {}, floors={A: {"vcore": int(used) * 1000}})
    assert vcore(made) == int(after)
    assert (why == "the baseline") == (A not in made.held)
    assert why == "the baseline" or why in made.held[A]


def test_documented_baseline_spellings_are_restored() -> None:
    """By the page, dnm restores `80`, `80000m` and `"80"` as they were written."""
    lines = [code for code in quoted(section(QUEUES, "A limit in numbers")) if "80" in code]
    assert len(lines) == 3
    for written in lines:
        text = change(TREE, "max: {vcore: 80,", f"max: {{vcore: {written},")
        lending = lend(text, {A: {"a001": LENT}})
        assert vcore(lending) == 208
        assert edit(lending.text, lending.ledger, {}).text == text


# --- the idle time that is learned --------------------------------------------------------------

PAUSES = table_of(DECISIONS, "When a node goes back", "pauses")


@pytest.mark.parametrize(("pauses", "kept_for"), PAUSES)
def test_documented_idle_times_follow_from_the_pauses(pauses: str, kept_for: str) -> None:
    _, kept = paid([int(name) * 60 for name in pauses.split(", ")])
    assert kept == timedelta(minutes=int(kept_for))
