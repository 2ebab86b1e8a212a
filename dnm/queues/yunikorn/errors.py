"""The error of YuniKorn's REST API."""

from __future__ import annotations

from dnm.model.errors import DnmError


class YunikornError(DnmError):
    """The error if YuniKorn's REST API does not answer or refuses a document."""
