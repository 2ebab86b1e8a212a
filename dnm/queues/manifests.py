"""Whether the document stands as a manifest was applied, by what the ConfigMap itself says of that:
the manifest that kubectl left in it, and who owns the field.
"""

from __future__ import annotations

import json

from dnm.model.cluster import ConfigMap, FieldOwner
from dnm.queues.source import LEDGER_ANNOTATION, SourceDocument

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Update the values of a chart or a module as a whole, without server-side apply.
_WHOLE = frozenset(("helm", "helm-controller", "argocd-controller", "HashiCorp"))


def is_applied(source: SourceDocument) -> bool:
    """Tells whether the text came as it is from a manifest of people. An export of the cluster's
    own object, which has the ledger in it, is none: its numbers contain what was lent."""
    found = source.config_map
    if found is None:
        return False
    return _is_last_applied(found, source) or any(
        _is_a_manifests(owner, source.key) for owner in found.owners
    )


def _is_last_applied(found: ConfigMap, source: SourceDocument) -> bool:
    try:
        manifest = json.loads(found.annotations.get(_LAST_APPLIED, "null"))
        field = "binaryData" if source.is_gzip else "data"
        stored = (found.binary_data if source.is_gzip else found.data)[source.key]
        annotations = manifest["metadata"].get("annotations") or {}
        is_same: bool = manifest[field][source.key] == stored
        return is_same and LEDGER_ANNOTATION not in annotations
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _is_a_manifests(owner: FieldOwner, key: str) -> bool:
    return (
        key in owner.keys
        and LEDGER_ANNOTATION not in owner.annotations
        and (owner.operation == "Apply" or owner.manager in _WHOLE)
    )
