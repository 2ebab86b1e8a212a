"""nodeset-convert: the program of machines whose slurmd runs in a pod of slurm-operator's."""

from __future__ import annotations

from dnm.converters.conversion import Stage
from dnm.converters.nodeset_label import label_of
from dnm.converters.nodeset_lending import LENDING, TOUCHES, describe_lending
from dnm.converters.nodeset_list import judge
from dnm.converters.nodeset_return import RETURNING, check, describe_return
from dnm.converters.program import Program, forgetting_all
from dnm.converters.settings import Settings


def check_settings(settings: Settings) -> None:
    label_of(settings)


NODESET_CONVERT = Program(
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
