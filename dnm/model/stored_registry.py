"""The document of a registry as it is stored: in a file of a host, or in a Secret of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.value import Value

VERSION = 1
MOVED, ARRIVING = "moved", "arriving"  # in place of the version: it is elsewhere, or not in force
LARGEST = 64 * 1024 * 1024  # bytes; a thousand lent nodes take 0.5 MiB
KEYS = ("registry.json", "registry.json.gz", "previous.json", "previous.json.gz")
"""The keys of the Secret's data that dnm writes; it leaves other keys alone."""


class StoredRegistry(Value):
    """The Secret with the registry. `version`: its resourceVersion; empty: it does not exist yet.
    `number`: of the run that wrote it last; -1: it was made manually. `data`: of `KEYS`, as the API
    has it, in base64."""

    version: str = ""
    number: int = 0
    data: Mapping[str, str] = {}


def unreadable(where: str, previous: str, why: str) -> str:
    """Returns why a document is not obeyed, and what to do."""
    return (
        f"the registry {where} can't be trusted, nothing was touched: {why}. Compare it with "
        f"{previous} and with `kubectl get nodes`, then restore it"
    )
