"""bridge-convert: the program of machines that slurm-bridge has put into Slurm."""

from __future__ import annotations

from dnm.convert.bridge_lending import LENDING, TOUCHES, describe_lending
from dnm.convert.bridge_list import judge
from dnm.convert.bridge_return import RETURNING, check, describe_return
from dnm.convert.conversion import Stage
from dnm.convert.program import Program, forgetting_all
from dnm.convert.settings import Settings


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
