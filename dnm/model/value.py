"""The parent class of all values, the type of exact amounts, and the value for an unreadable fact.

Amounts are exact integers under the names of Kubernetes: `cpu` in millicores, `memory` and
`ephemeral-storage` in bytes, other types plain counts. Only a queue system knows other names.
Instants are aware UTC `datetime`, durations `timedelta`. A fact that could not be read is an
`Unreadable`, never an empty value."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, TypeAlias, dataclass_transform

import msgspec

Resources: TypeAlias = Mapping[str, int]
"""Resource name -> amount, e.g. {"cpu": 128000, "memory": 256000000000, "nvidia.com/gpu": 4}."""
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]  # text without a zone is refused


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parent of all value classes: immutable msgspec structs that reject unknown fields."""


class Unreadable(Value):
    """A fact that could not be read: its subject, and the error."""

    subject: str
    error: str
