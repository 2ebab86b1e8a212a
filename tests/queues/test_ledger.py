"""The annotation: readable, terse, never taken for empty."""

from __future__ import annotations

import json

import pytest

from dnm.model.errors import QueueError
from dnm.queues.ledger import MOST_TOTALS, decode_ledger, encode_ledger
from dnm.queues.rebase import Reading, rebase_document
from tests.queue_kit import NODE, ONE, TREE, A, edit, lend, read, wants


def test_the_ledger_is_json_that_people_can_read() -> None:
    stored = json.loads(lend(TREE, ONE).ledger)
    assert stored["version"] == 1
    assert stored["instances"]["prod"]["queues"] == {A: {"n1": 0}}
    assert dict(zip(stored["resources"], stored["sizes"][0], strict=True)) == NODE
    assert stored["limits"][A]["max"] == {"vcore": "80", "memory": "320G"}


def test_what_was_written_stands_there_where_it_does_not_follow() -> None:
    made = lend(TREE, ONE)
    held = edit(made.text, made.ledger, {}, floors={A: {"vcore": 150_000}})
    assert json.loads(held.ledger)["limits"] == {A: {"max": {"vcore": ["80", "150"]}}}
    assert encode_ledger(decode_ledger(held.ledger)) == held.ledger


BROKEN = {
    "no JSON": ("{", "can't be read"),
    "newer": ('{"version":2}', "of version 2, this dnm knows 1"),
    "unknown field": ('{"version":1,"extra":1}', "unknown field `extra`"),
    "a bad number": ('{"version":1,"limits":{"root.a":{"max":{"vcore":"1.5"}}}}', "invalid"),
    "a bad kind": ('{"version":1,"limits":{"root.a":{"min":{"vcore":"1"}}}}', "neither max"),
    "no size": ('{"version":1,"instances":{"p":{"queues":{"root.a":{"n":0}}}}}', "index"),
    "minus": ('{"version":1,"instances":{"p":{"queues":{"root.a":{"n":-1}}}}}', ">= 0"),
}  # fmt: skip


@pytest.mark.parametrize(("ledger", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_ledger_is_never_an_empty_one(ledger: str, reason: str) -> None:
    with pytest.raises(QueueError, match=reason):
        decode_ledger(ledger)
    refused = edit(TREE, ledger, {})
    assert reason in refused.refusal and refused.ledger == ledger
    mended = rebase_document(read(TREE, ledger), wants(ONE), Reading.BASELINE)
    assert mended.text == lend(TREE, ONE).text


def test_more_limits_than_totals_are_kept_make_no_write_of_an_idle_run() -> None:
    """The totals that stand there pushed each other out of the list, once in every run."""
    lines = ["partitions:", "- name: default", "  queues:", "  - name: root", "    queues:"]
    names = [f"q{number}" for number in range(MOST_TOTALS // 4 + 50)]
    both = "{vcore: 80, memory: 320G}"
    lines += [f"    - {{name: {name}, resources: {{max: {both}, guaranteed: {both}}}}}"
              for name in names]  # fmt: skip
    nodes = {f"root.{name}": {f"n-{name}": NODE} for name in names}
    made = lend("\n".join(lines) + "\n", nodes)
    again = edit(made.text, made.ledger, nodes, remembered=made.noted)
    assert not again.is_changed and not again.refusal


WIDE: dict[str, dict[str, object]] = {
    "resources": {"resources": [f"r{number}" for number in range(20_000)]},
    "a path, of which each queue above is summed up": {
        "instances": {"p": {"queues": {"a." * 50_000 + "b": {"n1": 0}}}}
    },
}


@pytest.mark.parametrize("what", WIDE)
def test_another_instance_s_ledger_can_not_be_wide_without_bound(what: str) -> None:
    stored = {"version": 1, "resources": ["vcore"], "sizes": [[1]], **WIDE[what]}
    with pytest.raises(QueueError, match="of length <= 10") as raised:
        decode_ledger(json.dumps(stored))
    assert len(str(raised.value)) < 600
