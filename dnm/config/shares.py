"""Shares and percentages, as `numbers.py` reads numbers."""

from __future__ import annotations

import re

from dnm.config import names, values
from dnm.model.share import Floor, Share

_PERCENT = r"([0-9]{1,3}(?:\.[0-9]{1,3})?) ?%{1,2}"


def share(text: str) -> float:
    """More than 0, at most 1."""
    _refuse_percentage(text)
    if not re.fullmatch(r"[0-9]{0,3}(\.[0-9]{1,9})?", text) or not text:
        raise ValueError("is not a share; write a number above 0 and up to 1, e.g. 0.95")
    if not 0 < float(text) <= 1:
        raise ValueError("is out of range; write a number above 0 and up to 1, e.g. 0.95")
    return float(text)


def _refuse_percentage(text: str) -> None:
    if percent := re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,7})?) ?%{1,2}", text):
        raise ValueError(f"is a percentage; write {float(percent[1]) / 100:g}")


def floors(text: str) -> dict[str, object]:
    """What Slurm keeps of each type of node, with others behind it: `10, b: 5%, partition p: 2`."""
    found: dict[str, object] = {}
    types: dict[str, Floor] = {}
    partitions: dict[str, Floor] = {}
    said: set[str] = set()
    for entry in values.names(text):
        of, _, amount = entry.rpartition(":")
        kind, _, name = (of := " ".join(of.split())).rpartition(" ")
        if of in said:
            raise ValueError(f"has two for {of or 'all'}; write one")
        said.add(of)
        if not name:
            found["batch_floor"] = floor(amount.strip())
        elif kind == "partition":
            partitions[names.partition_name(name)] = floor(amount.strip())
        elif kind:
            raise ValueError(f"has '{of}'; write TYPE: 5, or partition NAME: 5")
        else:
            types[name] = floor(amount.strip())
    return {**found, "type_floors": types, "partition_floors": partitions}


def floor(text: str) -> Floor:
    """A number of nodes, or a percentage of them."""
    if re.fullmatch(r"[0-9]{1,6}", text):
        return Floor(nodes=int(text))
    percent = re.fullmatch(_PERCENT, text)
    if percent is None or float(percent[1]) > 100:
        raise ValueError("is no floor; write a number of nodes, e.g. 10, or a percentage, e.g. 5%")
    return Floor(percent=float(percent[1]))


def cap_share(text: str) -> Share:
    """A percentage of the nodes that the batch side has."""
    percent = re.fullmatch(_PERCENT, text)
    if percent is None or float(percent[1]) > 100:
        raise ValueError("is no percentage of the batch nodes; write one from 0% to 100%, e.g. 25%")
    return Share(percent=float(percent[1]))
