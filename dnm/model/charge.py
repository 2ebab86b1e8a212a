"""The charge of a lent node to an account."""

from __future__ import annotations

from datetime import datetime

from dnm.model.value import Moment, Value


class Charge(Value):
    """The account that pays for a lent node, and what its pods request. `rate`: the amount of each
    resource from `since` on. `used`: the sum of amount times seconds before `since`."""

    account: str
    since: Moment
    rate: dict[str, int] = {}
    used: dict[str, float] = {}

    def used_until(self, now: datetime) -> dict[str, float]:
        """Returns what the pods requested until `now`: amount times seconds of each resource."""
        seconds = max((now - self.since).total_seconds(), 0.0)
        names = {**self.used, **self.rate}
        return {name: self.used.get(name, 0) + self.rate.get(name, 0) * seconds for name in names}
