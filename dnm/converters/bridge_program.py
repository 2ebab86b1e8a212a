"""bridge-convert: the program of machines that slurm-bridge has put into Slurm."""

from __future__ import annotations

from dnm.converters.bridge_lending import LENDING, TOUCHES, describe_lending
from dnm.converters.bridge_list import judge
from dnm.converters.bridge_return import RETURNING, check, describe_return
from dnm.converters.conversion import Stage
from dnm.converters.program import Program, forgetting_all
from dnm.converters.settings import Settings


def check_settings(settings: Settings) -> None:
    """Nothing is needed that Slurm and Kubernetes do not say."""


BRIDGE_CONVERT = Program(
    lending=LENDING,
    touches=TOUCHES,
    check=Stage("check", check),
    returning=RETURNING,
    forget_what_is_undone=forgetting_all(RETURNING),
    check_settings=check_settings,
    judge=judge,
    describe_lending=describe_lending,
    describe_return=describe_return,
)
