"""The registry as it is stored: in a file of a host or in a Secret of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.value import Value

VERSION = 1
MOVED, ARRIVING = "moved", "arriving"  # instead of the version: it is elsewhere, or not yet valid
LARGEST = 64 * 1024 * 1024  # bytes; a thousand lent nodes take 0.5 MiB
KEYS = ("registry.json", "registry.json.gz", "previous.json", "previous.json.gz")
"""The keys of the Secret's data that dnm writes. It does not change other keys."""


class StoredRegistry(Value):
    """The Secret that contains the registry. `version` is its resourceVersion, empty if it does not
    exist. `number` is that of the last run that wrote it, or -1 if it was made manually. `data` has
    the values of `KEYS`, in base64 as in the API."""

    version: str = ""
    number: int = 0
    data: Mapping[str, str] = {}


def unreadable(where: str, previous: str, why: str) -> str:
    """Returns the message that the stored registry cannot be used, why, and what to do next."""
    return (
        f"the registry {where} can't be used: {why}. Nothing was changed. Compare it with "
        f"{previous} and with `kubectl get nodes`, then restore it"
    )
