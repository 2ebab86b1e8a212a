"""A converter with the two verbs of the contract and no list: another program says how Slurm has
the nodes, the sandbox's here, and the shipped node-convert of a real Slurm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dnm.converter.contract import given_to_converter
from dnm.converter.node_list import list_batch_nodes
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.batch import BatchList
from dnm.model.lent import Phase
from tests.builders import a_config
from tests.site import QUEUE, Site, set_up_workshop
from tests.slurm_lab import SlurmSite, needs_slurm

pytestmark = needs_slurm
TWO_VERBS = """#!/bin/sh
[ "$1" = --set ] || { echo 'usage: node-convert --set k8s|batch ...' >&2; exit 2; }
for word in "$@"; do [ "$word" = --exclude ] && exit 2; done
exec @REAL@ "$@"
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("has_list", [False, True])
def test_it_lends_and_returns_with_a_list_and_without_says_what_it_lacks(
    sandbox: Sandbox, tmp_path: Path, has_list: bool
) -> None:
    tmp_path.chmod(0o755)
    real = str(sandbox.node_convert_path)
    converter = program(tmp_path / "node-convert", TWO_VERBS.replace("@REAL@", real))
    set_up_workshop(sandbox, 4)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=400)
    lists = {"batch_list_command": real} if has_list else {}
    site = Site(sandbox, tmp_path / "site", node_convert_path=converter, exclude_nodes="a001",
                **lists)  # type: ignore[arg-type]  # fmt: skip
    ran = site.run()
    if not has_list:
        assert "batch_list_command names a program that has" in " ".join(ran.plan.errors)
        return
    sandbox.tick(60)
    site.run()
    assert [entry.phase for entry in site.registry.nodes.values()] == [Phase.SERVING]
    assert site.lent() != ["a001"]
    for _ in range(20):
        sandbox.tick(60)
        site.run()
    assert site.lent() == [] and not sandbox.violations


def test_the_shipped_node_convert_reads_slurm_for_it(site: SlurmSite, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    converter = program(tmp_path / "node-convert", TWO_VERBS)
    shipped = f'#!/bin/sh\nexec "{sys.executable}" -m dnm.converters.cli "$@"\n'
    config = a_config(tmp_path, path=site.config, node_convert_path=converter,
                      batch_list_command=program(tmp_path / "list", shipped))  # fmt: skip
    site.lab.run("scontrol", "update", "nodename=a001", "state=drain", "reason=fan")
    listed = list_batch_nodes(config, given_to_converter(config, site.lab.environ))
    assert isinstance(listed, BatchList), listed
    found = {name: (row.verdict, row.in_service) for name, row in listed.nodes.items()}
    assert found["a001"] == ("SKIP", False) and found["a002"] == ("OK", True)
    assert listed.waiting == () and not (listed.leaves_out or listed.books)
    assert not any(row.tells_claim or row.claim for row in listed.nodes.values())
