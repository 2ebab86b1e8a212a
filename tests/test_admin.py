"""The verbs of a person, on a registry of real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnm import admin
from dnm.lifecycle import advance_node
from dnm.model import Config, ConverterProcess, LentNode, Phase, Reason, Registry
from dnm.registry import load_registry, save_registry
from tests.builders import NOW, a_batch_node, a_config, a_lent_node, facts

CONVERTER = ConverterProcess(pid=77, start_ticks=5)


def site(directory: Path, **nodes: LentNode) -> Config:
    config = a_config(directory)
    save_registry(config.converted_nodes_path, Registry(nodes=nodes))
    return config


@pytest.mark.parametrize("phase", [Phase.RETURNING, Phase.FAILED])
def test_a_reset_waits_for_the_converter_that_is_still_at_work(
    tmp_path: Path, phase: Phase
) -> None:
    config = site(tmp_path, a001=a_lent_node(phase, converter=CONVERTER, attempts=3))
    assert "given back" in admin.reset(config, "a001")
    entry = load_registry(config, NOW).nodes["a001"]
    assert (entry.phase, entry.attempts) == (Phase.RETURNING, 0)
    at_work = facts(batch=[a_batch_node(in_service=False)], running=frozenset([CONVERTER]))
    step = advance_node(config, "a001", entry, at_work)
    assert not step.wants_return and step.verdict.reason is Reason.RETURNING
