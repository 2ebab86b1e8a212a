"""Tests of runs of two instances with manual changes of the ConfigMap between them, in random
order. A second document (the shadow) has the limits without lent nodes. Every limit must be the
shadow's plus the serving nodes, or dnm asks an administrator. The check does not use dnm's code.

To play more sequences, set `DNM_SEQUENCES=10000 DNM_SEED=1` in the environment: `pytest -m ""
tests/queues/yunikorn/test_sequences.py -s`"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pytest
import yaml

from dnm.model.cluster import ConfigMap, FieldOwner
from dnm.model.queue_edit import QueueWants
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.edit import edit_source
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION, resolve_document
from tests.night import sample_by_day
from tests.queue_kit import notes_of

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SEQUENCES = int(os.environ.get("DNM_SEQUENCES", "400"))
SEED = int(os.environ.get("DNM_SEED", "20261123"))
SIZES = (128, 128, 64)
"""Cores of a node; two nodes of one size are common, and make equal totals."""

TREES = (
    {"science": 5000, "science.a": 80, "science.b": 168, "x": 300, "free": None},
    {"science": None, "science.a": 80, "science.b": 168, "x": None},
    {"science": 5000, "science.a": None, "x": None},
    {"x": 80},
)
Limits = dict[str, int]


def render(tree: Mapping[str, int | None], limits: Mapping[str, int]) -> str:
    """Returns the YAML of a queue tree with these limits."""
    lines = ["partitions:", "- name: default", "  queues:", "  - name: root", "    queues:"]
    for path in tree:
        indent = "    " + "    " * path.count(".")
        if "." in path and lines[-1].strip() != "queues:" and not _has_sibling(lines, indent):
            lines.append(f"{indent[:-2]}queues:")
        lines.append(f"{indent}- name: {path.split('.')[-1]}")
        if path in limits:
            lines.append(f"{indent}  resources: {{max: {{vcore: {limits[path]}}}}}")
    return "\n".join(lines) + "\n"


def _has_sibling(lines: list[str], indent: str) -> bool:
    return any(line.startswith(f"{indent}- name") for line in lines)


@lru_cache(4096)
def limits_in(text: str) -> Mapping[str, int]:
    """Returns queue -> limit in cores, read by a plain YAML parser."""
    results: Limits = {}

    def collect(queues: list[dict[str, Any]], above: str) -> None:
        for queue in queues:
            path = f"{above}{queue['name']}"
            if "resources" in queue:
                number = str(queue["resources"]["max"]["vcore"])
                results[path] = int(number[:-1]) // 1000 if number.endswith("m") else int(number)
            collect(queue.get("queues", []), f"{path}.")

    root = yaml.safe_load(text)["partitions"][0]["queues"][0]
    collect(root["queues"], "")
    return results


class Instance:
    """A dnm instance: its serving nodes, and the ledger that its last run recorded."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: dict[str, dict[str, int]] = {}  # queue -> node -> cores
        self.record = ""


class World:
    """The ConfigMap, the limits without lent nodes (the shadow), and earlier contents."""

    def __init__(self, tree: Mapping[str, int | None]) -> None:
        self.tree = tree
        self.shadow: Limits = {path: cores for path, cores in tree.items() if cores is not None}
        self.known = dict(self.shadow)  # of the last run
        self.text, self.ledger = render(tree, self.shadow), ""
        self.owner = ("kubectl-create", "Update")
        self.ledger_owner = "dnm"
        self.applied = ""
        self.instances = {name: Instance(name) for name in ("p", "q")}
        self.past: list[tuple[str, str, Limits]] = []  # each document with lent nodes
        self.last = ""  # the last text of dnm
        self.story: list[str] = [self.text]
        self.counts: Counter[str] = Counter()

    # --- what dnm does --------------------------------------------------------------------------

    def edit(self, instance: Instance) -> DocumentEdit:
        annotations = {LEDGER_ANNOTATION: self.ledger} if self.ledger else {}
        if self.applied:
            manifest = {"metadata": {}, "data": {"queues.yaml": self.applied}}
            annotations[LAST_APPLIED] = json.dumps(manifest)
        config_map = ConfigMap(
            namespace="yunikorn", name="yunikorn-configs", resource_version="1",
            data={"queues.yaml": self.text}, annotations=annotations,
            owners=(
                FieldOwner(manager=self.owner[0], operation=self.owner[1],
                           keys=frozenset({"queues.yaml"})),
                FieldOwner(manager=self.ledger_owner, operation="Update",
                           annotations=frozenset({LEDGER_ANNOTATION} if self.ledger else ())),
            ),
        )  # fmt: skip
        nodes = {
            f"root.{queue}": {name: {"vcore": cores * 1000} for name, cores in nodes.items()}
            for queue, nodes in instance.nodes.items()
        }
        wants = QueueWants(instance_id=instance.name, nodes=nodes, remembered=instance.record)
        return edit_source(resolve_document(config_map, None), wants)

    def run(self, name: str, ends: str = "well") -> bool:
        """Plays a run that ends `well`, `killed` (its ledger is recorded) or `failed`."""
        instance = self.instances[name]
        made = self.edit(instance)
        self.counts["runs"] += 1
        self.story.append(
            f"{name} runs ({ends}) with {instance.nodes}: {made.refusal or notes_of(made)}"
        )
        if made.refusal:
            self.counts["asked"] += 1
            assert (made.text, made.ledger) == (self.text, self.ledger), self.story_text
            return False
        if ends != "failed":
            instance.record = made.record or ""
        if ends == "well":
            self.known, self.is_a_manifest = dict(self.shadow), False
        if ends == "well" and made.is_changed:
            if made.text != self.text:
                self.owner = ("dnm", "Update")
            if made.ledger != self.ledger:
                self.ledger_owner = "dnm"
            self.text, self.ledger = made.text, made.ledger
            self.last = made.text
            self.remember()
        return True

    def remember(self) -> None:
        self.story.append(f"   -> {limits_in(self.text)} {self.ledger}")
        if self.ledger:
            self.past.append((self.text, self.ledger, dict(self.shadow)))

    def move(self, rng: random.Random, name: str) -> None:
        instance = self.instances[name]
        held = [(queue, node) for queue, nodes in instance.nodes.items() for node in nodes]
        if held and rng.random() < 0.45:
            queue, node = rng.choice(held)
            del instance.nodes[queue][node]
            if not instance.nodes[queue]:
                del instance.nodes[queue]
        else:
            queue = rng.choice(list(self.tree))
            self.counts["nodes"] += 1
            instance.nodes.setdefault(queue, {})[f"{name}{self.counts['nodes']}"] = rng.choice(
                SIZES
            )

    # --- what is true -----------------------------------------------------------------------------

    @property
    def expected(self) -> Limits:
        lent: Counter[str] = Counter()
        for instance in self.instances.values():
            for queue, nodes in instance.nodes.items():
                parts = queue.split(".")
                for depth in range(len(parts)):
                    lent[".".join(parts[: depth + 1])] += sum(nodes.values())
        return {path: cores + lent[path] for path, cores in self.shadow.items()}

    def settle(self, rng: random.Random) -> bool:
        """Plays runs of both until nothing changes. Returns False if dnm asks an administrator."""
        order = rng.sample(sorted(self.instances), 2)
        for _ in range(4):
            before = (self.text, self.ledger)
            answers = [self.run(name) for name in order]
            if all(answers) and (self.text, self.ledger) == before:
                assert limits_in(self.text) == self.expected, self.story_text
                return True
        if all(answers):
            raise AssertionError(f"it does not settle: {self.story_text}")
        for path, cores in limits_in(self.text).items():
            assert cores <= max(self.expected[path], *self.seen(path)), self.story_text
        self.counts["ends with a question"] += 1
        return False

    def seen(self, path: str) -> list[int]:
        """Returns the limits of a queue that were in earlier documents or set manually."""
        return [limits_in(text).get(path, 0) for text, _, _ in self.past] + [self.put.get(path, 0)]

    put: Mapping[str, int] = {}
    is_a_manifest = False

    @property
    def is_new(self) -> bool:
        """Returns whether a manifest has a new limit that no run has read. If the annotation or a
        comment then changed, that limit would look like a manual total."""
        return self.is_a_manifest and self.shadow != self.known

    @property
    def story_text(self) -> str:
        return "\n".join([*self.story, f"expected {self.expected}", f"owner {self.owner}"])

    # --- what people do -------------------------------------------------------------------------

    def write(self, text: str, ledger: str, owner: str, *, applied: str = "") -> None:
        if text != self.text:
            self.owner = (owner, "Update")
        if ledger != self.ledger:
            self.ledger_owner = owner
        self.text, self.ledger, self.applied = text, ledger, applied or self.applied
        self.put = limits_in(text)
        for older, its_ledger, shadow in self.past:
            if (older, its_ledger) == (text, ledger):
                self.shadow = dict(shadow)  # a restore of both restores that state
        self.story.append(f"{owner}: {self.put} ledger {ledger or 'none'}")


MANIFESTS = ("kubectl-client-side-apply", "kubectl-replace")


def edit_a_total(world: World, rng: random.Random) -> None:
    path, delta = rng.choice(list(world.shadow)), rng.choice((-64, -30, 7, 60, 64, 128))
    now = limits_in(world.text)
    baseline, total = world.shadow[path], now[path] + delta
    is_read = now == world.expected and world.owner[0] not in MANIFESTS
    if not (is_read or world.text == world.last) or baseline + delta < 1:
        return  # a value that no run has read cannot be a total
    if total > 6000 or (path == "science" and baseline + delta < 400):
        return
    pattern = rf"(name: {path.split('.')[-1]}\n *resources: {{max: {{vcore: )\d+"
    text = re.sub(pattern, rf"\g<1>{total}", world.text)
    is_back = total == world.known[path]  # the manifest's again, as docs/queues.md describes
    world.shadow[path] = total if is_back else baseline + delta
    if text == world.applied:
        world.shadow = dict(limits_in(text))  # it equals the last manifest by chance
    world.write(text, world.ledger, "kubectl-edit")


def edit_a_comment(world: World, rng: random.Random) -> None:
    if not world.is_new:
        world.write(f"# {rng.random()}\n{world.text}", world.ledger, "kubectl-edit")


def _new_shadow(world: World, rng: random.Random) -> Limits:
    shadow = dict(world.shadow)
    if rng.random() < 0.4:
        path = rng.choice(list(shadow))
        shadow[path] = max(shadow[path] + rng.choice((-20, 30, 64, 128, 220)), 1)
    return shadow


def apply_a_manifest(world: World, rng: random.Random) -> None:
    text = _manifest(world, rng)
    if text:
        world.write(text, world.ledger, "kubectl-client-side-apply", applied=text)


def replace_by_a_manifest(world: World, rng: random.Random) -> None:
    text = _manifest(world, rng)
    if text:
        world.write(text, "", "kubectl-replace")


def _manifest(world: World, rng: random.Random) -> str:
    """Returns a manifest without lent nodes, perhaps with a new limit; empty if dnm could not
    distinguish it from an export of the cluster."""
    shadow = _new_shadow(world, rng)
    text = render(world.tree, shadow)
    if world.last and limits_in(text) == limits_in(world.last):  # else equal by chance
        return text if world.text == world.last else ""
    if limits_in(text) != limits_in(world.text):
        world.shadow, world.is_a_manifest = shadow, True
        return text
    return ""  # a text that no run has read is no export


def lose_the_annotation(world: World, rng: random.Random) -> None:
    world.write(world.text, "", "kubectl-annotate")


def put_an_older_annotation_back(world: World, rng: random.Random) -> None:
    if world.past and not world.is_new:
        world.write(world.text, rng.choice(world.past)[1], "kubectl-annotate")


def put_a_copy_of_an_instance_there(world: World, rng: random.Random) -> None:
    if not world.is_new:
        world.write(world.text, world.instances[rng.choice("pq")].record, "kubectl-annotate")


def put_a_foreign_annotation_there(world: World, rng: random.Random) -> None:
    other = World({"their": None, **TREES[0]})
    other.instances["z"] = Instance("z")
    other.instances["z"].nodes = {"science.a": {"z1": 128}}
    other.run("z")
    world.write(world.text, other.ledger, "kubectl-annotate")


def put_an_older_export_back(world: World, rng: random.Random) -> None:
    if world.past:
        text, ledger, shadow = rng.choice(world.past)
        if text == world.text:
            return  # only the older annotation
        world.shadow = dict(shadow)
        world.write(text, ledger, "kubectl-replace")


def put_an_older_export_without_its_ledger_back(world: World, rng: random.Random) -> None:
    if world.past:
        text, _, shadow = rng.choice(world.past)
        if limits_in(text) != limits_in(world.text):
            world.shadow, world.is_a_manifest = dict(shadow), True
        if rng.random() < 0.5:
            world.write(text, "", "kubectl-replace")
        else:
            world.write(text, world.ledger, "kubectl-client-side-apply", applied=text)


def kill_a_run(world: World, rng: random.Random) -> None:
    name = rng.choice("pq")
    world.move(rng, name)
    world.run(name, "killed")


def fail_to_write(world: World, rng: random.Random) -> None:
    name = rng.choice("pq")
    world.move(rng, name)
    world.run(name, "failed")


def run_single_instance(world: World, rng: random.Random) -> None:
    name = rng.choice("pq")
    world.move(rng, name)
    world.run(name)


def return_every_node(world: World, rng: random.Random) -> None:
    """Returns all nodes of both instances and plays runs until nothing changes."""
    for instance in world.instances.values():
        instance.nodes = {}
    world.settle(rng)


STEPS: tuple[Callable[[World, random.Random], None], ...] = (
    edit_a_total, edit_a_comment, apply_a_manifest, replace_by_a_manifest, lose_the_annotation,
    put_an_older_annotation_back, put_a_copy_of_an_instance_there, put_a_foreign_annotation_there,
    put_an_older_export_back, put_an_older_export_without_its_ledger_back, kill_a_run,
    fail_to_write, run_single_instance, return_every_node,
)  # fmt: skip


def play(seed: int) -> Counter[str]:
    """Plays one sequence: idle runs, then runs with up to two manual changes between them."""
    rng = random.Random(seed)
    world = World(rng.choice(TREES))
    world.story.insert(0, f"sequence {seed}")
    assert world.settle(rng)  # the first runs lend nothing
    for _ in range(rng.randint(4, 14)):
        for name in rng.sample("pq", rng.randint(0, 2)):
            world.move(rng, name)
            if not world.run(name):
                break
        for step in rng.choices(STEPS, k=rng.choice((0, 1, 1, 2))):
            world.counts[step.__name__] += 1
            step(world, rng)
        if rng.random() < 0.7 and not world.settle(rng):
            return world.counts
    if world.settle(rng):
        for instance in world.instances.values():
            instance.nodes = {}
        if world.settle(rng):
            assert limits_in(world.text) == world.shadow, world.story_text
            assert not json.loads(world.ledger or "{}").get("instances", {}).keys() & {"p", "q"}
    return world.counts


@pytest.mark.parametrize("chunk", sample_by_day(8, range(8)))
def test_random_sequences_never_count_a_node_twice(chunk: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(chunk, SEQUENCES, 8):
        counts.update(play(SEED * 1_000_003 + number))
    print(f"DNM_SEED={SEED} chunk {chunk}: {dict(sorted(counts.items()))}")
    assert counts["runs"] > SEQUENCES / 2 and counts["asked"] < counts["runs"] / 3
