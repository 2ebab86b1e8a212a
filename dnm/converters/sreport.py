"""Readers of Slurm's accounts and of nodes' billing weights."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dnm.converters.slurm.commands import SlurmClient, checked_name
from dnm.converters.slurm.text import records
from dnm.model.errors import SlurmError

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_AMOUNT = re.compile(r"([0-9.]+)([KMGTP]?)")


def knows_account(environ: Mapping[str, str], name: str) -> bool:
    """Returns whether Slurm has this account. Raises SlurmError if slurmdbd does not answer."""
    command = ("sacctmgr", "-nP", "show", "account", checked_name(name.lower()), "format=account")
    return name.lower() in SlurmClient(environ).ask(*command).split()


def read_weights(environ: Mapping[str, str]) -> dict[str, float]:
    """Returns the billing units of an hour of each node. Leaves out a node if none of its
    partitions has TRESBillingWeights. Raises SlurmError."""
    client = SlurmClient(environ)
    config = client.ask("scontrol", "show", "config")
    is_most = bool(re.search(r"^PriorityFlags\s*=.*MAX_TRES", config, re.MULTILINE))
    partitions = client.ask("scontrol", "-a", "-o", "show", "partition")
    weights = dict(
        re.findall(r"^PartitionName=(\S+) .*?TRESBillingWeights=(\S+)", partitions, re.M)
    )
    by_node = {}
    for name, line in records(client.ask("scontrol", "-a", "-o", "show", "nodes"), "Node"):
        # The last match counts: OS=, free text from slurmd, comes before these fields.
        tres, of = (re.search(rf".* {key}=(\S*)", line) for key in ("CfgTRES", "Partitions"))
        weighed = [weights[item] for item in (of[1].split(",") if of else ()) if item in weights]
        if tres is not None and weighed:
            amounts = dict(item.split("=", 1) for item in tres[1].split(",") if "=" in item)
            by_node[name] = _weigh(amounts, weighed[0], is_most)
    return by_node


def _weigh(amounts: Mapping[str, str], weights: str, is_most: bool) -> float:
    """Returns the sum of the weighted amounts, or with MAX_TRES (`is_most`) the largest of them
    (assoc_mgr_tres_weighted)."""
    billed = [0.0]
    for text in weights.split(","):
        name, _, weight = text.partition("=")
        factor, amount = map(_AMOUNT.fullmatch, (weight, amounts.get(name.lower(), "0")))
        if factor is None or amount is None:
            raise SlurmError(f"TRESBillingWeights={weights[:80]} can't be read; fix slurm.conf")
        unit = _UNITS[amount[2]] - _UNITS[factor[2] or "M"] if amount[2] else 0  # slurm.conf: MB
        billed.append(float(amount[1]) * 1024.0**unit * float(factor[1]))
    return max(billed) if is_most else sum(billed)
