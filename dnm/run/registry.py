"""The registry on disk: one versioned JSON document, replaced atomically, failing closed.

A file that is unreadable, of a newer version, or holds an unknown phase stops the run: an empty
registry is only what a site has that never had one. The document before the last change is kept
beside it (`.previous`). A file in the predecessor's flat form is taken over.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from dnm.model.bounded import read_regular
from dnm.model.config import Config
from dnm.model.errors import RegistryError
from dnm.model.fault_points import fault_point
from dnm.model.readers import Access, access_of, give_access, mend_access
from dnm.model.registry import LentNode, Phase, Registry
from dnm.model.trust import read_trusted

VERSION = 1
_LARGEST = 64 * 1024 * 1024  # bytes; a thousand lent nodes take 0.5 MiB


def previous_path(path: Path) -> Path:
    """Where the document before the last change is kept."""
    return path.with_name(path.name + ".previous")


def load_registry(config: Config, now: datetime) -> Registry:
    """The recorded state; a site without the file and without its predecessor starts empty.

    Raises RegistryError, which says what to do, for anything that can't be trusted.
    """
    path = config.converted_nodes_path
    content = _read(path)
    if content is None:
        if previous_path(path).exists():
            raise RegistryError(
                f"the registry {path} is missing but {previous_path(path)} exists: restore it with "
                f"'cp -p {previous_path(path)} {path}', or remove both if no node is lent"
            )
        return Registry()
    try:
        document = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RegistryError(_unreadable(path, f"it is not JSON ({error})")) from error
    if not isinstance(document, dict):
        raise RegistryError(_unreadable(path, "it is not a JSON object"))
    if "version" not in document:
        return _take_over(document, config, now)
    version = document["version"]
    if version != VERSION:
        raise RegistryError(
            f"the registry {path} has version {version!r}, this dnm knows version {VERSION}: "
            "run the dnm that wrote it, or restore an older copy"
        )
    try:
        return msgspec.convert(document, Registry)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise RegistryError(_unreadable(path, str(error))) from error


def _read(path: Path) -> bytes | None:
    try:
        os.lstat(path)  # where it is out of sight, it is not missing
        with fault_point("registry.read"):
            return read_trusted(path, _LARGEST, RegistryError)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise RegistryError(
            f"the registry {path} is not yours to read: ask its owner, or whoever writes the "
            "configuration to let your group read it (state_group in [settings])"
        ) from error
    except OSError as error:
        raise RegistryError(
            f"the registry {path} can't be read ({error.strerror}): mend its permissions"
        ) from error


def _unreadable(path: Path, why: str) -> str:
    return (
        f"the registry {path} can't be trusted, nothing was touched: {why}. Compare it with "
        f"{previous_path(path)} and with `kubectl get nodes`, then restore it"
    )


def encode_registry(registry: Registry) -> bytes:
    """The bytes on disk: equal registries give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(registry, order="sorted"), indent=1) + b"\n"


def save_registry(config: Config, registry: Registry) -> bool:
    """Writes it where the configuration has it, for those who may read it (`write_registry`)."""
    return write_registry(config.converted_nodes_path, registry, config.state_group)


def write_registry(path: Path, registry: Registry, group: str = "") -> bool:
    """Replaces the file if its content would change; says whether it did. Its owner may read it,
    and `group` where one is named: also what an earlier dnm left open to all.

    Temporary file in the same directory, fsync, the old one kept, rename, fsync of the directory.
    Raises RegistryError; the old file is then still whole.
    """
    content = encode_registry(registry)
    try:
        access = access_of(group)
        for file in (path, previous_path(path)):
            mend_access(file, access)
        if _stands(path, content):
            return False
        _replace(path, content, access)
    except OSError as error:
        raise RegistryError(
            f"the registry {path} can't be written ({error.strerror or error}): "
            "free space or mend the permissions of its directory; nothing further is done"
        ) from error
    return True


def _stands(path: Path, content: bytes) -> bool:
    with suppress(FileNotFoundError):
        return read_regular(path, _LARGEST) == content
    return False


def _replace(path: Path, content: bytes, access: Access) -> None:
    temporary = path.with_name(path.name + ".new")
    with fault_point("registry.write"):
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            give_access(descriptor, access)
            file.write(content)
            file.flush()
            with fault_point("registry.fsync"):
                os.fsync(file.fileno())
    if path.exists():
        spare = path.with_name(path.name + ".previous.new")
        with fault_point("registry.keep_previous"):
            spare.unlink(missing_ok=True)
            os.link(path, spare)
        with fault_point("registry.rename_previous"):
            os.replace(spare, previous_path(path))
    with fault_point("registry.rename"):
        os.replace(temporary, path)
    with fault_point("registry.fsync_directory"):
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _take_over(document: dict[str, Any], config: Config, now: datetime) -> Registry:
    """The predecessor's form: node -> {namespace, last_pod_end, owner}. Its nodes serve already,
    and what it added to the queues for each was the configured size. Its `last_pod_end` is the time
    of the conversion and no idle clock: that starts when dnm first sees the node idle."""
    path = config.converted_nodes_path
    nodes: dict[str, LentNode] = {}
    for name, entry in document.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("namespace"), str):
            raise RegistryError(_unreadable(path, f"entry {name!r} has no namespace"))
        namespace = entry["namespace"]
        owner = entry.get("owner") or config.instance_id
        policy = config.namespaces.get(namespace)
        if policy is None and owner == config.instance_id:
            raise RegistryError(
                f"the registry {path} says node {name!r} is lent to namespace {namespace!r}, which "
                "monitored_namespaces does not hold: add it there until the node is back"
            )
        node_type = config.type_of(name) or (policy.node_types[0] if policy else "")
        known = config.node_types.get(node_type)
        nodes[name] = LentNode(
            node_type=node_type,
            namespace=namespace,
            queue=policy.queue if policy else "",
            owner=str(owner),
            phase=Phase.SERVING,
            since=now,
            counted=dict(known.size) if known else {},
            was_used=True,
        )
    return Registry(nodes=nodes)
