"""The plan or the decisions that a run would make now, for commands. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from dnm.host.collection import without_collection
from dnm.model.config import Config
from dnm.model.plan import Pass
from dnm.plan.conversions import Decided
from dnm.plan.planner import decide
from dnm.run.planning import (
    at_place,
    connect,
    exit_code_of,
    look,
    make_pass_plan,
    needs_batch_nodes,
    wall_clock,
)
from dnm.run.snapshot import with_batch_nodes


def plan_pass(
    config: Config,
    environ: Mapping[str, str],
    clock: Callable[[], datetime] = wall_clock,
    events_at: datetime | None = None,
) -> Pass:
    """Returns the plan of `dnm plan` and its exit code. Events count as at the time `events_at`."""
    with at_place(config, environ, connect) as (state, edges):
        plan, _ = make_pass_plan(config, clock, edges, state, events_at)
    return Pass(plan=plan, exit_code=exit_code_of(plan))


@without_collection()
def decide_now(config: Config, environ: Mapping[str, str], asks_batch: bool = False) -> Decided:
    """Returns for `dnm explain` what a run would decide now, with all its inputs. With
    `asks_batch`, reads the nodes of Slurm even if no decision depends on them."""
    with at_place(config, environ, connect) as (state, edges):
        _, registry, facts, ends = look(config, wall_clock, edges, state)
        decided = decide(config, registry, facts)
        lacks = needs_batch_nodes(facts, decided.conversions.verdicts.values())
        if ends is not None and facts.batch is None and (lacks or asks_batch):
            decided = decide(config, registry, with_batch_nodes(facts, ends[1]))
    return decided
