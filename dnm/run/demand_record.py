"""The record of which pods wait and run, written after a run, and the report of failed writes."""

from __future__ import annotations

from datetime import datetime

import msgspec

from dnm.model.config import Config
from dnm.model.plan import Outcome, Plan
from dnm.record.demand_lines import demand_history, write_demand
from dnm.record.transitions import Cause


def record_demand(config: Config, plan: Plan, outcome: Outcome, now: datetime) -> Outcome:
    """Records which pods wait and run, if that has changed. A failed write is only reported."""
    history = demand_history(config)
    try:
        write_demand(history, plan, Cause(now=now, run=plan.run, instance=config.instance_id))
    except OSError as error:
        return with_trouble(outcome, f"the record of demand {history.path}", error)
    return outcome


def with_trouble(outcome: Outcome, subject: str, error: OSError, left: str = "") -> Outcome:
    """Returns the outcome of a run with one more error: a file could not be written."""
    trouble = (
        f"{subject} can't be written ({error.strerror or error}): {left}free space, or fix the "
        "permissions of its directory"
    )
    return msgspec.structs.replace(outcome, errors=(*outcome.errors, trouble))
