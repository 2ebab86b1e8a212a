"""Tests of a converter that supports only `--set k8s` and `--set batch`. Another program lists the
nodes: the sandbox's, or the shipped node-convert on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnm.converter.contract import converter_env
from dnm.converter.node_list import list_batch_nodes
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.batch import BatchList
from dnm.model.value import Unreadable
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


def test_converter_without_list_and_slurm_reports_the_missing_option(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    real = str(sandbox.node_convert_path)
    converter = program(tmp_path / "node-convert", TWO_VERBS.replace("@REAL@", real))
    set_up_workshop(sandbox, 4)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=400)
    site = Site(sandbox, tmp_path / "site", node_convert_path=converter)
    assert "add --list to the converter" in " ".join(site.run().plan.errors)


def test_shipped_node_convert_lists_nodes_for_a_two_verb_converter(
    site: SlurmSite, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    converter = program(tmp_path / "node-convert", TWO_VERBS)
    config = a_config(tmp_path, path=site.config, node_convert_path=converter)
    site.lab.run("scontrol", "update", "nodename=a001", "state=drain", "reason=fan")
    listed = list_batch_nodes(config, converter_env(config, site.lab.environ))
    assert isinstance(listed, BatchList), listed
    results = {name: (row.verdict, row.in_service) for name, row in listed.nodes.items()}
    assert results["a001"] == ("SKIP", False) and results["a002"] == ("OK", True)
    assert listed.waiting == () and not (listed.leaves_out or listed.can_reserve)
    assert not any(row.reports_claim or row.claim for row in listed.nodes.values())


@pytest.mark.parametrize(
    ("is_there", "said"),
    [
        pytest.param(
            True, "printed no list of nodes: exit code 2, usage", id="Slurm-does-not-answer"
        ),
        pytest.param(False, "--list: exit code 2, usage: node-convert", id="no-command-of-Slurm"),
    ],
)
def test_unreadable_slurm_is_not_an_empty_list(tmp_path: Path, is_there: bool, said: str) -> None:
    tmp_path.chmod(0o755)
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir(mode=0o755)
    for name in ("scontrol", "sinfo", "squeue") if is_there else ():
        program(bin_directory / name, "#!/bin/sh\necho 'Unable to contact slurmctld' >&2\nexit 1\n")
    converter = program(tmp_path / "convert", TWO_VERBS)
    config = a_config(tmp_path, node_convert_path=converter)
    environ = {"PATH": f"{bin_directory}:/nonexistent"}
    listed = list_batch_nodes(config, converter_env(config, environ))
    assert isinstance(listed, Unreadable) and said in listed.error
    assert "add --list to the converter" in listed.error
    assert ("dnm's own node-convert --list" in listed.error) is is_there
