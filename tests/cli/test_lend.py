"""lend, extend, return and adopt: what is recorded, what is refused with a sentence, who it was."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dnm.cli.by_hand import adopt, extend, lend
from dnm.cli.give_back import give_back
from dnm.cli.output import shown
from dnm.cli.person import RefusedError
from dnm.kube.nodes import mark_annotations
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.manifests import node_manifest
from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import Leaving, Phase
from dnm.model.node import Mark
from dnm.model.orders import Keeping, LendOrder
from dnm.model.registry import Registry
from dnm.run.registry import load_registry, save_registry
from dnm.verbs.lending import USUAL, Wanted
from tests.builders import NOW, QUEUE, a_config, a_lent_node, a_request
from tests.site import WORKSHOP_QUEUES, Site

LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=9)
ORDER = LendOrder(
    id="o1", node_type="a", namespace="dev", count=2, since=NOW, until=LATER, nodes=()
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    policy = NamespacePolicy(name="dev", queue=QUEUE, node_types=("a",), max_nodes=3)
    config = a_config(tmp_path, namespaces={"dev": policy}, exclude_nodes=frozenset({"a009"}))
    nodes = {
        "a001": a_lent_node(order="o1", stays_until=LATER),
        "a002": a_lent_node(Phase.FAILED, error="it burns"),
        "a003": a_lent_node(Phase.RETURNING),
        "a004": a_lent_node(owner="other"),
        "a005": a_lent_node(),
        "a006": a_lent_node(leaves=Leaving.BY_HAND),
    }
    kept = Keeping(since=NOW, until=LATER)
    save_registry(config, Registry(nodes=nodes, held=("a005",), orders=(ORDER,),
                                   excluded={"a008": kept}))  # fmt: skip
    return config


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Nobody's pods wait for anything."""
    sandbox.set_queues(WORKSHOP_QUEUES)
    sandbox.add_namespace("dev")
    sandbox.add_machines(4)
    return Site(sandbox, tmp_path / "site")


def registry_of(config: Config) -> Registry:
    return load_registry(config, NOW)


def test_an_order_is_written_down_with_who_and_why(config: Config) -> None:
    (said,) = lend(config, Wanted(namespace="dev", count=2, until=LATER, reason="a course"))
    order = registry_of(config).orders[-1]
    assert (order.count, order.node_type, order.until, order.reason) == (2, "a", LATER, "a course")
    assert " on " in order.who and not order.is_forced and order.nodes == ()
    assert said.startswith(f"2 nodes of type a for dev until {LATER:%Y-%m-%d %H:%M} UTC")
    assert f"`dnm return {order.id}`" in said
    lend(config, Wanted(namespace="dev", nodes=("a050", "a051"), is_forced=True))
    order = registry_of(config).orders[-1]
    assert order.nodes == ("a050", "a051") and order.count == 2 and order.is_forced
    assert order.until - order.since == USUAL


def test_what_is_refused_is_said_and_changes_nothing(config: Config) -> None:
    before = registry_of(config)
    for verb, why in (
        (lambda: lend(config, Wanted(namespace="gone", count=1)), "'gone' is not monitored; there"),
        (lambda: lend(config, Wanted(namespace="dev", nodes=("a009",))), "a009 is kept out of"),
        (lambda: extend(config, ["a001", "a099"], LATER), "'a099' is not a node that this dnm"),
        (lambda: extend(config, ["a001", "a002"], LATER), r"a002 is on its way back \(failed\)"),
        (lambda: give_back(config, ["a001", "a005"]), "a005 is held: `dnm unhold a005` first"),
    ):
        with pytest.raises(RefusedError, match=why) as refused:
            verb()
        assert refused.value.exit_code == 2 and registry_of(config) == before


def test_nodes_of_two_types_are_two_orders(config: Config) -> None:
    """docs/by-hand.md's second example."""
    types = {**config.node_types, "b": replace(config.node_types["a"], name="b")}
    dev = replace(config.namespaces["dev"], node_types=("a", "b"))
    both = replace(config, node_types=types, namespaces={"dev": dev})
    said = lend(both, Wanted(namespace="dev", nodes=("a050", "b001", "b002"), reason="course"))
    first, second = registry_of(config).orders[-2:]
    assert (first.node_type, first.nodes, first.count) == ("a", ("a050",), 1)
    assert (second.node_type, second.nodes, second.count) == ("b", ("b001", "b002"), 2)
    assert first.id != second.id and first.until == second.until
    assert [one.split(" for ")[0] for one in said] == ["a050", "b[001-002]"]


def test_an_order_is_extended_with_what_came_of_it(config: Config) -> None:
    """What leaves, and what a person has given another end, is left as it is."""
    registry = registry_of(config)
    came = a_lent_node(order=ORDER.id, stays_until=ORDER.until)
    goes = a_lent_node(order=ORDER.id, leaves=Leaving.BY_HAND)
    coming = a_request(order=ORDER.id, stays_until=ORDER.until)
    nodes = {**registry.nodes, "a020": came, "a021": goes}
    save_registry(config, replace(registry, nodes=nodes, requests=(coming,)))
    until = LATER + timedelta(hours=3)
    assert extend(config, [ORDER.id, "a001"], until) == [
        f"{ORDER.id} holds until {shown(until)}, with all that came of it",
        f"a001 stays until {shown(until)}, idle or not",
    ]
    after = registry_of(config)
    assert [one.until for one in after.orders if one.id == ORDER.id] == [until]
    assert after.nodes["a020"].stays_until == after.requests[0].stays_until == until
    assert after.nodes["a001"].stays_until == until
    assert after.nodes["a021"] == goes and after.nodes["a005"] == registry.nodes["a005"]


def test_an_order_that_gets_nothing_now_says_why_not(site: Site) -> None:
    site.sandbox.batch.start_job(["a001"])
    done = site.command("lend", "-n", "dev", "--node", "a001", "--now")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].endswith("1 of 1 missing; waits: a001: job 1001 is running")


def test_extended(config: Config) -> None:
    until = LATER + timedelta(hours=1)
    (said,) = extend(config, ["a001", "a005"], until)
    assert said.startswith("each of a[001,005] stays until ")
    nodes = registry_of(config).nodes
    assert nodes["a001"].stays_until == nodes["a005"].stays_until == until


def test_a_returned_node_leaves_and_its_order_shrinks(config: Config) -> None:
    (said,) = give_back(config, ["a001"], "a017 is loud")
    assert said.startswith("a001 is fenced by the next run, and goes back once its pods have ended")
    registry = registry_of(config)
    entry = registry.nodes["a001"]
    assert (entry.leaves, entry.stays_until, entry.order) == (Leaving.BY_HAND, None, "")
    assert [order.count for order in registry.orders] == [1]


def test_an_order_is_returned_with_all_that_came_of_it(config: Config) -> None:
    said = give_back(config, ["o1"])
    assert said[0] == "nothing more comes of o1" and said[1].startswith("a001 is fenced")
    registry = registry_of(config)
    assert registry.orders == () and registry.nodes["a001"].leaves is Leaving.BY_HAND


def test_an_order_ends_and_says_which_of_its_nodes_stays(config: Config) -> None:
    before = registry_of(config)
    stuck = replace(before.nodes["a002"], order="o1", stays_until=LATER)
    save_registry(config, replace(before, nodes={**before.nodes, "a002": stuck}))
    said = give_back(config, ["o1"])
    assert said[0] == "nothing more comes of o1"
    assert said[1] == "a002 has failed: `dnm reset a002` returns it; it burns"
    after = registry_of(config)
    assert after.orders == () and after.nodes["a001"].leaves is Leaving.BY_HAND
    assert not after.nodes["a002"].is_kept_at(datetime.now(UTC)), "should it mend"


def test_as_a_new_user_would_try_it(sandbox: Sandbox, site: Site) -> None:
    """Over HTTP, with the installed command: two nodes for an afternoon, one of them longer, one
    out at once; then one that an administrator has converted."""
    said = site.command("lend", "2", "--namespace", "dev", "--for", "2h", "--reason", "course",
                        "--now")  # fmt: skip
    assert said.returncode == 0 and "action=convert" in said.stdout, said.stderr
    sandbox.tick(1)
    site.command("run")
    site.command("run")
    status = site.command("status").stdout
    assert "2 nodes there, 0 missing" in " ".join(status.split()), status
    document = json.loads(site.command("status", "-o", "json").stdout)
    assert [one["missing"] for one in document["orders"]] == [0]
    assert all(one["stays_until"] for one in document["nodes"])
    lent = sorted(site.registry.nodes)
    assert len(lent) == 2 and all(n.phase is Phase.SERVING for n in site.registry.nodes.values())
    assert site.command("extend", lent[0], "--for", "3h").returncode == 0
    assert site.command("return", lent[1], "--now", "--reason", "loud").returncode == 0
    assert sandbox.get("nodes", lent[1])["spec"]["unschedulable"] is True  # type: ignore[index]
    for _ in range(4):
        sandbox.tick(60)
        site.command("run")
    assert sorted(site.registry.nodes) == lent[:1]
    # An administrator converts one: it is seen, and taken in by adopt alone.
    other = sorted(set(sandbox.batch.machines) - set(lent))[0]
    sandbox.batch.claim(sandbox.batch.machines[other], "by-hand", "root converts it")
    sandbox.batch.machines[other].place = "kubernetes"
    sandbox.add_node(other, labels={"dev": "true"})
    site.command("lend", "1", "--namespace", "dev", "--node", other)  # so that Slurm is asked
    plan = site.command("plan").stdout
    assert f"{other}: wait: came to Kubernetes by hand, and is not recorded" in plan, plan
    refused = site.command("adopt", other, "--namespace", "gone")
    assert refused.returncode == 2 and "'gone' is not monitored" in refused.stderr
    assert site.command("adopt", other, "--namespace", "dev").returncode == 0
    site.command("run")
    assert site.registry.nodes[other].phase is Phase.SERVING
    verbs = site.command("history", "--kind", "verb").stdout
    for word in ("lend", "extend", "return", "adopt", "course", "loud"):
        assert word in verbs


def _marked(sandbox: Sandbox) -> None:
    manifest = node_manifest("a001", {"cpu": "8"})
    mark = Mark(instance="other", node_type="a", namespace="dev", queue=QUEUE)
    manifest["metadata"]["annotations"] = mark_annotations(mark)
    sandbox.create(manifest)


@pytest.mark.parametrize(
    ("arrange", "why"),
    [
        pytest.param(lambda s: None, "Kubernetes has no Node a001", id="no-node"),
        pytest.param(lambda s: s.add_node("a001"), "Slurm has a001 in service (IDLE)",
                     id="in-service"),
        pytest.param(lambda s: _marked(s), "carries the mark of instance other", id="marked"),
    ],
)  # fmt: skip
def test_not_adopted(sandbox: Sandbox, site: Site, arrange: Any, why: str) -> None:
    arrange(sandbox)
    with pytest.raises(RefusedError) as refused:
        adopt(site.config, dict(os.environ), "a001", "dev")
    assert why in str(refused.value)


def test_one_of_a_partition_that_is_kept_out_is_not_adopted(sandbox: Sandbox, site: Site) -> None:
    """Nobody would ask again: what stands in the record is not judged anew."""
    sandbox.batch.claim(sandbox.batch.machines["a001"], "by-hand", "root converts it")
    sandbox.batch.machines["a001"].place = "kubernetes"
    sandbox.add_node("a001")
    config = replace(site.config, exclude_partitions=("batch",))
    with pytest.raises(
        RefusedError, match="kept out of lending: exclude_nodes names partition batch"
    ):
        adopt(config, dict(os.environ), "a001", "dev")
    assert "recorded for dev" in adopt(site.config, dict(os.environ), "a001", "dev")


def test_a_run_that_is_made_at_once_is_one_like_any_other(sandbox: Sandbox, site: Site) -> None:
    made = site.command("lend", "1", "--namespace", "dev", "--now", DNM_LOG_CONSOLE="1")
    assert made.returncode == 0 and "action=convert" in made.stderr, made.stderr
