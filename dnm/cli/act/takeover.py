"""`dnm takeover` and `dnm forget`, which read the cluster before they change the registry."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

from dnm.cli.terminal.operation import carry_out, granted, is_sure, new_operation, rehearse
from dnm.cli.terminal.options import (
    ConfigOption,
    NamesOption,
    NodeArgument,
    ReasonOption,
    YesOption,
)
from dnm.kube.client import KubeClient
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.printable import printable
from dnm.model.value import Unreadable
from dnm.run.exclusion import exclude_earlier_writes
from dnm.run.lease import judge_here, new_word
from dnm.run.registry import attach_lease, load_registry, opened_state
from dnm.verbs import adoption, holds
from dnm.verbs.adoption import refuse_unknown

_LONGEST_HOLDER = 300  # characters that are shown


def forget(
    config: ConfigOption,
    node: NodeArgument,
    output: NamesOption = "text",
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> str:
    """Forget a node that you have returned to Slurm manually."""
    registry = load_registry(config, datetime.now(UTC))
    granted(refuse_unknown(registry, node))
    there = KubeClient.connect(config).read_node(node)
    words = {"name": node, "node": there}
    rehearse(config, registry, adoption.forget, words)
    question = (
        f"dnm removes {node} from the registry and from the limit of its queue, and will not "
        "return it. Is the node back in Slurm?"
    )
    if not is_sure(question, yes):
        return f"nothing was changed: {node} stays in the registry"
    carry_out(config, new_operation("forget", node, reason), adoption.forget, **words)
    return f"{node} is removed from the registry; the next run lowers the limit of its queue"


def takeover(
    config: ConfigOption,
    output: NamesOption = "text",
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> str:
    """Take over this instance from another host.

    Stop dnm on the other host first: dnm refuses its runs from now on, because only one host may
    act for an instance_id."""
    with closing(KubeClient.connect(config)) as kube, opened_state(config) as state:
        attach_lease(config, state, kube)
        state.begins_anew = True
        lease, now = state.observe(), datetime.now(UTC)
        if isinstance(lease, Unreadable):
            raise KubeError(lease.error)
        judged = judge_here(config, state, load_registry(config, now, state), now)
        at_work = state.holder
        if not (judged.refusal or at_work):
            return f"no other dnm acts as instance {config.instance_id}: nothing was changed"
        holder = at_work
        if judged.elsewhere:
            holder = printable(judged.elsewhere.holder, _LONGEST_HOLDER)
        warning = "From now on it must not act any more. Is it off, or is dnm stopped there?"
        if not is_sure(f"{at_work}. {warning}" if at_work else _question(config, holder), yes):
            return "nothing was changed"
        operation = new_operation("takeover", config.instance_id, reason, taken_from=holder)
        words = {"word": state.registry or new_word(), "kept": lease.kept, "now": now}
        if state.kind == "file":  # the word must be in the registry before it is in the Lease
            carry_out(config, operation, holds.take_over, **words)
        state.seize(str(words["word"]))
        if state.kind == "kubernetes":
            carry_out(config, operation, holds.take_over, **words)
        exclude_earlier_writes(config, kube, state)
        for why in state.unexcluded.values():
            raise KubeError(why)
    return f"from now on {state.place.holder} acts as instance {config.instance_id}"


def _question(config: Config, holder: str) -> str:
    if not holder:
        return (
            f"The Lease does not name the host that acted last as instance {config.instance_id}. "
            "Is dnm stopped for good on every other host of this instance?"
        )
    return (
        f"{holder} acted last as instance {config.instance_id}, and is refused from now on. dnm "
        "finds its nodes by their marks. A new registry here also gets its pause, holds and "
        "exclusions. Is dnm stopped there for good?"
    )
