"""The parent of every value, exact amounts, and what could not be read.

Quantities are exact integers in YuniKorn's units under YuniKorn's names, everywhere past the edges:
`vcore` in millicores, `memory` and `ephemeral-storage` in bytes, any other type a plain count.
Instants are aware UTC `datetime`, durations `timedelta`. A fact that could not be read is an
`Unreadable`, never an empty value.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, TypeAlias, dataclass_transform

import msgspec

Resources: TypeAlias = Mapping[str, int]
"""Resource name -> amount, e.g. {"vcore": 128000, "memory": 256000000000, "nvidia.com/gpu": 4}."""
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]  # without a zone it can't be read


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parent of every value below."""


class Unreadable(Value):
    """A read that failed, and the reason."""

    what: str
    error: str
