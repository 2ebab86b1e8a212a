"""The charge of a lent node to an account."""

from __future__ import annotations

from datetime import datetime

from dnm.model.value import Moment, Value


class Charge(Value):
    """The account that pays for a lent node, and the requests of its pods by resource: `rate` is
    the amount since then, `used` the earlier amount times seconds."""

    account: str
    since: Moment
    rate: dict[str, int] = {}
    used: dict[str, float] = {}

    def used_until(self, now: datetime) -> dict[str, float]:
        """Returns the requests of the pods until then, times seconds."""
        seconds = max((now - self.since).total_seconds(), 0.0)
        names = {**self.used, **self.rate}
        return {name: self.used.get(name, 0) + self.rate.get(name, 0) * seconds for name in names}
