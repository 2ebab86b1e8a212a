"""Functions that read and replace the ledger, an annotation of an object in the sandbox."""

from __future__ import annotations

from typing import Any

from dnm.lab.sandbox.cluster import Sandbox

LEDGER = "dynamic-node-manager/ledger"


def ledger_of(stored: Any) -> str:
    """Returns the ledger of an object of the sandbox; empty if it has none."""
    return str((stored["metadata"].get("annotations") or {}).get(LEDGER, ""))


def store_ledger(sandbox: Sandbox, plural: str, name: str, text: str, namespace: str = "") -> None:
    """Stores another ledger, or removes it if the text is empty."""

    def change(item: Any) -> None:
        annotations = item["metadata"].setdefault("annotations", {})
        annotations.pop(LEDGER, None)
        if text:
            annotations[LEDGER] = text

    sandbox.edit(plural, name, change, namespace)
