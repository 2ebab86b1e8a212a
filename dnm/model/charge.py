"""The usage of a lent node that a Slurm account pays for."""

from __future__ import annotations

from datetime import datetime

from dnm.model.value import Moment, Value


class Charge(Value):
    """The Slurm account that pays for a lent node, and the resources that the node's pods request.
    `rate` has the amounts from `since` on, `used` the amounts times seconds before `since`."""

    account: str
    since: Moment
    rate: dict[str, int] = {}
    used: dict[str, float] = {}

    def used_until(self, now: datetime) -> dict[str, float]:
        """Returns, by resource, the sum of requested amount times seconds until `now`."""
        seconds = max((now - self.since).total_seconds(), 0.0)
        names = {**self.used, **self.rate}
        return {name: self.used.get(name, 0) + self.rate.get(name, 0) * seconds for name in names}
