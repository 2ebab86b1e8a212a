"""The error of YuniKorn's REST API."""

from __future__ import annotations

from dnm.model.errors import DnmError


class YunikornError(DnmError):
    """A missing answer of YuniKorn's REST API, or a document that it refused."""
