"""Who acts for an instance: what stands in the cluster of it, and where this dnm is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from dnm.model.value import Value


class RecordLease(Value, forbid_unknown_fields=False):
    """An instance's name as its last actor has it. `holder` names his host and registry to people;
    `token` is known to his registry alone; `home` and `boot` are as in `Place`."""

    holder: str
    token: str
    at: Annotated[datetime, msgspec.Meta(tz=True)]  # by the API server's clock
    home: str = ""
    boot: str = ""


class Place(Value):
    """Where a dnm is. `home`: this host and the path of its registry in one word; empty: there may
    be others like this one. `boot`: of the host, which is up for `up_for`."""

    holder: str = ""
    home: str = ""
    boot: str = ""
    up_for: timedelta = timedelta(0)
