"""`dnm takeover` and `dnm forget`, which ask the cluster."""

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
from dnm.run.lease import fence_queue_document, judge_here, new_word
from dnm.run.registry import attach_lease, load_registry, opened_state
from dnm.verbs import keeping, taking_in
from dnm.verbs.taking_in import why_not_known

_LONGEST_HOLDER = 300  # characters that are shown


def forget(
    config: ConfigOption,
    node: NodeArgument,
    output: NamesOption = "text",
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> str:
    """Drop a node that a person has returned to Slurm."""
    registry = load_registry(config, datetime.now(UTC))
    granted(why_not_known(registry, node))
    there = KubeClient.connect(config).read_node(node)
    words = {"name": node, "node": there}
    rehearse(config, registry, taking_in.forget, words)
    question = (
        f"{node} leaves the registry: dnm will not return it any more, and its queue shrinks. "
        "Is it back in Slurm?"
    )
    if not is_sure(question, yes):
        return f"{node} stays as it is"
    carry_out(config, new_operation("forget", node, reason), taking_in.forget, **words)
    return f"{node} is forgotten; the next run takes its part out of the queue"


def takeover(
    config: ConfigOption,
    output: NamesOption = "text",
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> str:
    """Act for the instance from here, in another host's place.

    Only one host's record acts for an instance_id. Stop dnm on the other host first.
    """
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
        who = printable(judged.elsewhere.holder, _LONGEST_HOLDER) if judged.elsewhere else at_work
        gone = "From now on it may do nothing more. Is it gone, or dnm stopped there?"
        if not is_sure(f"{at_work}. {gone}" if at_work else _ask_to_stop(config, who), yes):
            return "nothing was changed"
        operation = new_operation("takeover", config.instance_id, reason, taken_from=who)
        words = {"word": state.registry or new_word(), "kept": lease.kept, "now": now}
        if state.kind == "file":  # the registry has the word before the Lease has
            carry_out(config, operation, keeping.take_over, **words)
        state.seize(str(words["word"]))
        if state.kind == "kubernetes":
            carry_out(config, operation, keeping.take_over, **words)
        fence_queue_document(config, kube, state)
    return f"from now on {state.place.holder} acts as instance {config.instance_id}"


def _ask_to_stop(config: Config, who: str) -> str:
    if not who:
        return (
            f"Nobody knows who acted last as instance {config.instance_id}. Is dnm stopped for "
            "good on every other host that has this name?"
        )
    return (
        f"{who} acted last as instance {config.instance_id}, and is refused from now on. Its nodes "
        "are taken up by their marks. A registry that is new here gets its pause, holds and "
        "exclusions too. Is dnm stopped there for good?"
    )
