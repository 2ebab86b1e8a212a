"""The Slurm side of a call: by the commands of this host, or by slurmrestd, as the settings say."""

from __future__ import annotations

import os
from datetime import timedelta

from dnm.converters.settings import Settings
from dnm.converters.slurm.commands import SlurmClient
from dnm.converters.slurm.interface import Slurm

_COMMAND_TIMEOUT = timedelta(seconds=30)


def connect_slurm(settings: Settings) -> Slurm:
    """Returns Slurm; nothing is asked of it yet."""
    if not settings.slurmrestd_url:
        return SlurmClient(os.environ, _COMMAND_TIMEOUT)
    from dnm.converters.slurm.rest import SlurmRestClient  # 20 ms that only those who use it pay

    return SlurmRestClient(
        settings.slurmrestd_url, settings.slurmrestd_token_file, _COMMAND_TIMEOUT
    )
