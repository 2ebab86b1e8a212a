"""Functions for compressed texts (gzip in base64), which a ConfigMap has in `binaryData`."""

from __future__ import annotations

import base64
import gzip
import io
import zlib

from dnm.model.cluster import ConfigMap
from dnm.model.errors import QueueError

_UNPACKED_LIMIT = 8 * 1024 * 1024  # bytes; of lists within lists they take a gigabyte to read


def pack(text: str) -> str:
    """Compresses a text, without a time stamp, so that equal texts give equal results."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def unpack(config_map: ConfigMap, key: str, packed: str) -> str:
    """Decompresses the text of a key. Raises QueueError if the value is not gzip of UTF-8 text."""
    try:
        content = base64.b64decode(packed, validate=True)
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            text = file.read(_UNPACKED_LIMIT + 1)
        if len(text) > _UNPACKED_LIMIT:
            raise ValueError(f"it unpacks to more than {_UNPACKED_LIMIT} bytes")
        return text.decode()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise QueueError(
            f"binaryData {key} of ConfigMap {config_map.namespace}/{config_map.name} is not gzip "
            f"of UTF-8 text ({error}). YuniKorn ignores it and uses another document. "
            "Write it again"
        ) from error


def size_of(base64_text: str) -> int:
    """Returns the number of bytes that a base64 text encodes."""
    return len(base64_text) * 3 // 4 - base64_text[-2:].count("=")
