"""Tests with random queue documents and YuniKorn's own code: dnm edits the documents that YuniKorn
accepts, and YuniKorn accepts the edits.

pytest does not collect them with the other tests of real servers: they need no rig, only the judge
that `make real` builds (`pytest --numprocesses 2 tests/real/queue_documents.py`). DNM_DOCUMENTS and
DNM_EDITS set how many, DNM_SEED which; every failure names its seed and its document."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable

import pytest

from dnm.model.value import Resources
from dnm.queues.yunikorn.files import judge_text
from dnm.queues.yunikorn.quantities import parse_yunikorn
from dnm.queues.yunikorn.tree import parse_tree
from tests.queue_kit import CORPUS, DATA, TREE, edit
from tests.queue_trees import random_tree
from tests.real.judge import CORES, ask_all

DOCUMENTS = int(os.environ.get("DNM_DOCUMENTS", "2000"))
EDITS = int(os.environ.get("DNM_EDITS", "1500"))
SEED = int(os.environ.get("DNM_SEED", "20261121"))
Record = Callable[[str, object], None]

JUDGED = [json.loads(line)["yaml"] for line in (DATA / "judged.jsonl").read_text().splitlines()]
SMALL = [text for text in CORPUS.values() if len(text) < 5000]
PARTS = [
    "submitacl: '*'", "submitacl: 'a  b'", "submitacl: ' a'", "adminacl: 'a b '", "adminacl: a b c",
    "adminacl: ''", "submitacl: ' * '", 'submitacl: "a\\tb"', "parent: true", "parent: false",
    "childtemplate: {resources: {max: {vcore: 1.5}}}", "childtemplate: {maxapplications: 1}",
    "childtemplate: {resources: {max: {vcore: ''}}}", "properties: {a: b}", "queues: []",
    "childtemplate: {properties: {x: y}, resources: {guaranteed: {memory: 1Gi}}}",
    "resources: {}", "resources: {max: {}}", "maxapplications: 3", "maxapplications: -1",
    "limits: [{limit: x, users: [u], maxresources: {vcore: 1}}]",
    "limits: [{limit: x, groups: ['*'], maxapplications: 1}]",
]  # fmt: skip
RULES = [
    "{name: provided}", "{name: user, create: true}", "{name: Fixed, value: root.a}",
    "{name: fixed}", "{name: fixed, value: 'a b'}", "{name: fixed, value: root.a, parent: "
    "{name: user}}", "{name: tag, value: namespace}", "{name: tag}", "{name: nonsense}",
    "{name: recovery}", "{name: test}", "{name: fixed, value: x, create: true}", "{name: ''}",
    "{name: user, filter: {type: deny, users: [u]}}", "{name: user, filter: {users: ['a.*']}}",
    "{name: user, filter: {users: ['[a']}}", "{name: user, filter: {type: both}}",
    "{name: user, filter: {users: ['^\\pL+$']}}", "{name: provided, parent: {name: nothing}}",
    "{name: user, filter: {groups: ['(?P<n>a)']}}", "{name: fixed, value: ROOT.A}",
]  # fmt: skip
HEADS = ["%YAML 1.1\n---\n", "%YAML 1.2\n---\n", "%YAML 2.0\n---\n", "%TAG ! !\n---\n", "---\n",
         "# %YAML 1.2\n", "\ufeff", "%FOO bar\n---\n", "%YAML 1.1\n%YAML 1.1\n---\n"]  # fmt: skip
SCRAPS = ["", " ", "  ", "\n", "\t", ":", "- ", "'", '"', "{", "}", "[", "]", "&a ", "*a", "<<: ",
          "!!str ", "!x ", "|", ">-", "#", "%", "---\n", "...\n", "0", "9", "m", "Ki", "E", "-",
          "~", "null", "root", "Root", "ROOT", "default", "name: ", ",", "\\", "\u00a0", "\x07",
          "é", "?", "@", "`", "queues:", "max: ", "yes", "1.5", "0x10", "2023-01-01"]  # fmt: skip


def random_document(rng: random.Random) -> str:
    """Returns a random queue document with parts that YuniKorn reads, perhaps an invalid one."""
    kind = rng.random()
    if kind < 0.35:
        text = _with_parts(rng)
    elif kind < 0.6:
        text = random_tree(rng)
    else:
        text = rng.choice([*SMALL, *JUDGED])
    if rng.random() < 0.12:
        text = rng.choice(HEADS) + text
    for _ in range(rng.choice((0, 0, 0, 1, 1, 3))):
        text = _broken(rng, text)
    return text


def _with_parts(rng: random.Random) -> str:
    root = rng.choice(["root", "root", "root", "Root", "ROOT", "a"])
    name = rng.choice(["name: default\n", "name: default\n", "name: ''\n", "name: Default\n"])
    lines = ["partitions:", f"  - {name.strip()}"]
    if rng.random() < 0.6:
        rules = ", ".join(rng.sample(RULES, rng.choice((1, 1, 2))))
        lines.append(f"    placementrules: [{rules}]")
    lines += ["    queues:", f"      - name: {root}"]
    lines += [f"        {part}" for part in rng.sample(PARTS, rng.choice((0, 0, 1)))]
    if rng.random() < 0.8:
        lines.append("        queues:")
        for child in rng.sample(["a", "b", "A", "root", "c.d", "x" * 65], rng.choice((1, 2))):
            lines.append(f"          - name: {child}")
            lines += [f"            {part}" for part in rng.sample(PARTS, rng.choice((0, 1, 2)))]
    return "\n".join(lines) + "\n"


def _broken(rng: random.Random, text: str) -> str:
    at = rng.randint(0, len(text))
    way = rng.random()
    if way < 0.4:
        return text[:at] + rng.choice(SCRAPS) + text[at:]
    if way < 0.6:
        return text[:at] + text[at + rng.randint(1, 6) :]
    if way < 0.8:
        lines = text.splitlines(keepends=True) or [""]
        line = rng.randrange(len(lines))
        lines.insert(rng.randrange(len(lines) + 1), lines[line])
        if rng.random() < 0.5:
            del lines[line]
        return "".join(lines)
    numbers = list(re.finditer(r"[0-9]+", text))
    if not numbers:
        return text
    result = rng.choice(numbers)
    new = rng.choice(["0", "1", "9223372036854775807", "010", str(int(result[0]) * 10)])
    return text[: result.start()] + new + text[result.end() :]


def seeded(part: int) -> random.Random:
    print(f"DNM_SEED={SEED}")
    return random.Random(f"{SEED} {part}")


# --- what dnm says of a document -----------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(2))
@pytest.mark.parametrize("version", CORES)
def test_document_accepted_by_yunikorn_is_edited_or_refused_with_a_reason(
    version: str, chunk: int, record_property: Record
) -> None:
    """YuniKorn accepts a document if a scheduler starts with it, and a running one reloads it. dnm
    may accept a document that YuniKorn refuses, because its edits make that no worse and the
    scheduler checks them before a write. dnm and YuniKorn must read the same limits."""
    rng = seeded(chunk)
    texts = [random_document(rng) for _ in range(DOCUMENTS // 2)]
    texts = [text for text in texts if text]  # the ConfigMap's empty text is the built-in document
    counts: Counter[str] = Counter()
    wrong: list[tuple[object, ...]] = []
    for text, answer in zip(texts, ask_all(version, texts), strict=True):
        takes = not (answer["load"] or answer["start"] or answer["reload"] or answer["inactive"])
        judged = judge_text("x", text)
        rules = {violation.rule for violation in judged.violations}
        counts[f"{'taken' if takes else 'refused'}, {'edited' if judged.is_ok else 'not'}"] += 1
        if takes and not rules <= {"dialect", "document"}:
            wrong.append((rules, text))
        if takes and judged.is_ok and answer["queues"] is not None:  # else there are several
            read = {path: dict(queue.max) for path, queue in parse_tree(text).queues.items()}
            document = {path: queue["max"] or {} for path, queue in answer["queues"].items()}
            if any(document[path] != limits for path, limits in read.items() if path != "root"):
                wrong.append((read, document, text))
    figures = f"YuniKorn {version}: {len(texts)} documents {dict(counts)}, {len(wrong)} wrong"
    record_property("figures", f"{figures}, DNM_SEED={SEED}")
    assert wrong[:3] == [] and counts["taken, edited"] > len(texts) // 8


# --- what its edits become -----------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(2))
@pytest.mark.parametrize("version", CORES)
def test_yunikorn_runs_every_edited_document_with_the_requested_limits(
    version: str, chunk: int, record_property: Record
) -> None:
    rng = seeded(10 + chunk)
    edits: list[tuple[str, dict[str, dict[str, dict[str, int]]]]] = []
    while len(edits) < EDITS // 2:
        edits += some_edits(rng, random_tree(rng) if rng.random() < 0.9 else TREE)
    numbers = 0
    for (text, wanted), answer in zip(edits, ask_all(version, (t for t, _ in edits)), strict=True):
        assert not (answer["load"] or answer["start"] or answer["reload"]), (answer, text)
        for path, kinds in wanted.items():
            for kind, amounts in kinds.items():
                assert (answer["queues"][path][kind] or {}) == amounts, (path, kind, text)
                numbers += len(amounts)
    figures = f"YuniKorn {version}: {len(edits)} edits, {numbers} limits as expected"
    record_property("figures", f"{figures}, DNM_SEED={SEED}")


def some_edits(
    rng: random.Random, text: str
) -> list[tuple[str, dict[str, dict[str, dict[str, int]]]]]:
    """Yields a history of lends and returns: each text, and its expected limits by arithmetic."""
    before = parse_tree(text)
    paths = [path for path in before.queues if path != "root"]
    lent: dict[str, dict[str, Resources]] = {}
    ledger, now, made = "", text, []
    for number in range(rng.randint(1, 6)):
        queue = rng.choice(paths)
        nodes = lent.setdefault(queue, {})
        if nodes and rng.random() < 0.4:
            nodes.pop(rng.choice(sorted(nodes)))
        else:
            names = rng.sample(("vcore", "memory", "pods", "nvidia.com/gpu"), rng.randint(1, 4))
            nodes[f"n{number}"] = {name: rng.choice((1, 110, 64_000, 2**38)) for name in names}
        edited = edit(now, ledger, lent, remembered=ledger)
        assert not edited.refusal, text
        now, ledger = edited.text, edited.ledger
        made.append((now, limits_wanted(text, lent, set(edited.held))))
    return made


def limits_wanted(
    text: str, lent: dict[str, dict[str, Resources]], held: set[str]
) -> dict[str, dict[str, dict[str, int]]]:
    """Returns queue -> baseline plus lent nodes below it, for queues without other bounds."""
    tree = parse_tree(text)
    wanted: dict[str, dict[str, dict[str, int]]] = {}
    for path, queue in tree.written.items():
        if path == "root" or path in held:
            continue
        amounts = {
            name: parse_yunikorn(name, quantity.text)
            for name, quantity in (queue.resources.max or {}).items()
        }
        if not any(amounts.values()):
            wanted[path] = {"max": {}}
            continue
        for below, nodes in lent.items():
            if below == path or below.startswith(f"{path}."):
                for size in nodes.values():
                    for name in amounts.keys() & size.keys():
                        if name != "pods" or amounts[name]:  # closed: stays so
                            amounts[name] += size[name]
        wanted[path] = {"max": amounts}
    return wanted
