"""Tests of the billing weights of nodes: units as in slurm.conf(5), and no forged values."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dnm.converters.sreport import _weigh, read_weights
from dnm.model.errors import SlurmError
from tests.converter.programs import script

PARTITION = "PartitionName=gpu AllowGroups=ALL TRESBillingWeights=CPU=1.0"


@pytest.mark.parametrize(
    ("amounts", "weights", "billed"),
    [
        ({"cpu": "2", "mem": "8192M"}, "CPU=1.0,Mem=0.25G", 4),
        ({"mem": "8G"}, "Mem=0.25G", 2),
        ({"mem": "8192M"}, "Mem=0.25", 2048),
        ({"mem": "8G"}, "Mem=0.25", 2048),
    ],
)
def test_memory_weight_without_suffix_is_per_megabyte(
    amounts: dict[str, str], weights: str, billed: float
) -> None:
    assert _weigh(amounts, weights, is_most=False) == billed


def read(directory: Path, system: str) -> dict[str, float]:
    node = (
        "NodeName={} CPUAlloc=0 OS={} State=IDLE Partitions=gpu CfgTRES=cpu=128,mem=256000M "
        "Reason=x\n"
    )
    text = node.format("a001", "Linux") + node.format("a002", system)
    (directory / "nodes").write_text(text)
    cases = (
        f"*config*) echo x ;;\n*partition*) echo '{PARTITION}' ;;\n*nodes*) cat {directory}/nodes"
    )
    script(directory, f'case "$*" in\n{cases} ;;\nesac', "scontrol")
    return read_weights({"PATH": f"{directory}:{os.environ['PATH']}"})


def test_slurmd_text_changes_no_weight(tmp_path: Path) -> None:
    """slurmd may put any text into OS=, which scontrol prints before Slurm's own fields."""
    assert read(tmp_path, "Linux Partitions=gpu CfgTRES=cpu=1")["a002"] == 128
    with pytest.raises(SlurmError, match="NodeName=a001 twice"):
        read(tmp_path, "Linux\nNodeName=a001 Partitions=gpu CfgTRES=cpu=9999 x")
