"""What slurmdbd has booked, for `dnm check` and `dnm report`: asked of Slurm's own programs."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.converters.slurm.commands import SlurmClient


def knows_account(environ: Mapping[str, str], name: str) -> bool:
    """Returns whether there is such an account. Raises SlurmError where slurmdbd is away."""
    return SlurmClient(environ).knows_account(name.lower())
