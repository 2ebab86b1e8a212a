"""What the API server keeps of a ConfigMap, in bytes."""

from __future__ import annotations

from dnm.model.errors import QueueError
from dnm.queues.source import LEDGER_ANNOTATION, SourceDocument, with_document

ANNOTATIONS_LIMIT = 256 * 1024  # keys and values of all annotations of an object
DATA_LIMIT = 1024 * 1024  # values of data and, unpacked from base64, of binaryData


def check_size(source: SourceDocument, text: str, ledger: str) -> None:
    """Raises QueueError where the ConfigMap with this text and ledger would grow beyond what
    Kubernetes keeps; one that is beyond it may still shrink."""
    config_map = source.config_map
    if config_map is None:
        return
    annotations = {**config_map.annotations, LEDGER_ANNOTATION: ledger}
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT and len(ledger) > len(source.ledger_text):
        raise QueueError(
            f"the ledger would need {len(ledger)} bytes and the annotations of the ConfigMap "
            f"{size}, Kubernetes allows {ANNOTATIONS_LIMIT}: no more nodes are counted until some "
            "are returned; `kubectl apply --server-side` keeps no copy of the manifest there"
        )
    new = with_document(source, text, ledger)
    size = sum(len(value.encode()) for value in new.data.values())
    size += sum(_unpacked_size(value) for value in new.binary_data.values())
    if size > DATA_LIMIT and len(text) > len(source.text):
        next_step = (
            "take out what is not needed"
            if source.is_gzip
            else "move the queues into binaryData as queues.yaml.gz"
        )
        raise QueueError(
            f"the ConfigMap would hold {size} bytes, Kubernetes allows {DATA_LIMIT}; {next_step}"
        )


def _unpacked_size(base64_text: str) -> int:
    return len(base64_text) * 3 // 4 - base64_text[-2:].count("=")
