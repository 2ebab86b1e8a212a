"""The books of a span, from the history and the registry as they stand here."""

from __future__ import annotations

from datetime import datetime

from dnm.cli.history import lines_since
from dnm.model.config import Config
from dnm.model.history import JOBS
from dnm.record.accounts import Accounts, Bookkeeper
from dnm.run.recorded import unseen_since
from dnm.run.registry import load_registry

KINDS = frozenset({"node", "request", "queue", "limit", "verb", JOBS})


def make_accounts(config: Config, since: datetime, now: datetime) -> Accounts:
    """Returns the books since then. Raises DnmError where they can't be read."""
    keeper = Bookkeeper(since)
    for line in lines_since(config, since, KINDS):
        keeper.add(line)
    return keeper.close(load_registry(config, now), now, unseen_since(config, now))
