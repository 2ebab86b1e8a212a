"""The conversion of node names to Slurm's hostlist expressions: `a[001-003,007]`. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

_NUMBERED = re.compile(r"([A-Za-z0-9_.-]*?)([0-9]{1,9})")


def fold_hostlist(names: Iterable[str]) -> str:
    """Returns the shortest hostlist for exactly these names: `a[001-004,007],login`."""
    plain, numbers = [], defaultdict(list)
    for name in sorted(set(names)):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            numbers[match[1], len(match[2])].append(int(match[2]))
    folded = [
        _folded(prefix, width, _runs(sorted(numbers_of_prefix)))
        for (prefix, width), numbers_of_prefix in sorted(numbers.items())
    ]
    return ",".join([*folded, *plain])


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the (first, last) of each range of consecutive numbers in a sorted list."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


def _folded(prefix: str, width: int, runs: Sequence[tuple[int, int]]) -> str:
    if len(runs) == 1 and runs[0][0] == runs[0][1]:
        return f"{prefix}{runs[0][0]:0{width}d}"
    parts = [
        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
        for first, last in runs
    ]
    return f"{prefix}[{','.join(parts)}]"
