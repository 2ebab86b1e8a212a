"""Kubeconfigs, read and merged as client-go does it (tools/clientcmd: loader.go): one reader for
all forms, so that kubectl and dnm never differ."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dnm.host.bounded import read_regular
from dnm.host.trust import read_trusted
from dnm.http.access import Access
from dnm.kube.kubeconfig_fields import (
    Context,
    ExecSettings,
    KubeconfigCluster,
    User,
    object_to_cluster,
    object_to_user,
)
from dnm.model.errors import KubeError

_LARGEST = 4 << 20  # bytes
T = TypeVar("T")


class _Entry(msgspec.Struct, frozen=True):
    """One named entry, and the folder that its paths are relative to."""

    value: Mapping[str, Any]
    base: Path


def read_kubeconfig(paths: Sequence[Path], timeout: timedelta) -> Access:
    """Returns the access that the current context of these files, merged, names: of each name and
    of the current context the first file decides. Files that don't exist are passed over.

    Raises KubeError with the file, the key and what is wrong with it.
    """
    source = f"the kubeconfig {os.pathsep.join(map(str, paths))}"
    try:
        access = _access(_merge(paths), source, timeout)
        return access if _is_tls(access.server) else _without_tls(access)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise KubeError(
            f"can't use {source}: {' '.join(str(error).split())}: mend it until 'kubectl version' "
            "works with it"
        ) from error


def _merge(paths: Sequence[Path]) -> dict[str, Any]:
    merged: dict[str, Any] = {"current-context": "", "clusters": {}, "users": {}, "contexts": {}}
    for path in paths:
        if not path.exists():
            continue
        document = _load(path)
        merged["current-context"] = merged["current-context"] or document.get("current-context")
        for kinds, kind in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for name, value in _named_entries(document, kinds, kind, path):
                merged[kinds].setdefault(name, _Entry(value, path.absolute().parent))
    return merged


def _load(path: Path) -> dict[str, Any]:
    import yaml

    content = read_trusted(path, _LARGEST, KubeError)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # Either loader is a safe one.
        document = yaml.load(content, loader)  # nosec B506
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path} is no kubeconfig")
    return document


def _named_entries(
    document: Mapping[str, Any], kinds: str, kind: str, path: Path
) -> list[tuple[str, Mapping[str, Any]]]:
    entries = document.get(kinds) or []
    if not isinstance(entries, list):
        raise ValueError(f"{kinds} of {path} is no list")
    found: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ValueError(f"an entry of {kinds} of {path} has no name")
        value = entry.get(kind)
        if not isinstance(value, dict | None):
            raise ValueError(f"{kind} {entry['name']!r} of {path} is no mapping")
        found.setdefault(entry["name"], value or {})
    return list(found.items())


def _convert(entry: _Entry, kind: type[T], what: str) -> T:
    try:
        return msgspec.convert(entry.value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{what}: {error}") from error


def _find(merged: Mapping[str, Any], kinds: str, name: str, what: str) -> _Entry:
    if not isinstance(name, str) or name not in merged[kinds]:
        raise ValueError(f"{what} {name!r} is not among its {kinds}")
    found: _Entry = merged[kinds][name]
    return found


def _access(merged: Mapping[str, Any], source: str, timeout: timedelta) -> Access:
    current = merged["current-context"]
    if not current:
        raise ValueError("it has no current-context")
    found = _find(merged, "contexts", current, "the current-context")
    context = _convert(found, Context, f"context {current!r}")
    of_context = f"of context {current!r}"
    cluster = _find(merged, "clusters", context.cluster, f"the cluster {of_context}")
    access = _access_to(cluster, context.cluster, source)
    if not context.user:
        return access
    user = _find(merged, "users", context.user, f"the user {of_context}")
    fields = _convert(user, User, f"user {context.user!r}")
    if objection := object_to_user(fields):
        raise ValueError(objection)
    access = msgspec.structs.replace(
        access,
        authorization=_authorization(fields, user.base),
        cert_pem=_pem(user, "client-certificate", fields.client_certificate_data),
        key_pem=_pem(user, "client-key", fields.client_key_data),
    )
    if fields.exec_plugin is None:
        return access
    return _with_plugin(access, (fields.exec_plugin, user.base), cluster.value, timeout)


def _access_to(entry: _Entry, name: str, source: str) -> Access:
    """The cluster's part: where it is, and how it is known."""
    cluster = _convert(entry, KubeconfigCluster, f"cluster {name!r}")
    if objection := object_to_cluster(cluster):
        raise ValueError(objection)
    server = (cluster.server or "").rstrip("/")
    return Access(
        server=server,
        source=source,
        authorization=lambda: "",
        ca_pem=_pem(entry, "certificate-authority", cluster.certificate_authority_data),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name or "",
        proxy=cluster.proxy_url or proxy_of_environment("https" if _is_tls(server) else "http"),
        no_proxy="" if cluster.proxy_url else no_proxy_of_environment(),
    )


def _is_tls(server: str) -> bool:
    return server.startswith("https:")


def _without_tls(access: Access) -> Access:
    return msgspec.structs.replace(access, ca_pem=b"", cert_pem=b"", key_pem=b"")


def _pem(entry: _Entry, key: str, data: str | None) -> bytes:
    """The data where it is given, else the file; empty where neither is."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{key}-data is no base64: {error}") from error
    path = entry.value.get(key)
    return read_regular(entry.base / path, _LARGEST) if path else b""


def _authorization(user: User, base: Path) -> Callable[[], str]:
    """The value of the header; a tokenFile is read again each time, and the token stands in for it
    where it can't be read (client-go's NewBearerAuthWithRefreshRoundTripper)."""
    if user.token_file:
        path = base / user.token_file
        bearer_of_file(path, user.token or "")  # what can't be read is said now
        return lambda: bearer_of_file(path, user.token or "")
    if user.token:
        return lambda: f"Bearer {user.token}"
    if user.username or user.password:
        pair = f"{user.username or ''}:{user.password or ''}".encode()
        basic = f"Basic {base64.b64encode(pair).decode()}"
        return lambda: basic
    return lambda: ""


def bearer_of_file(path: Path, otherwise: str = "") -> str:
    """Returns the header with the token of a file, or with `otherwise` where it can't be read and
    there is one. Raises KubeError."""
    try:
        token = read_regular(path, _LARGEST).decode("ascii").strip()
        return f"Bearer {token or otherwise}"
    except (OSError, ValueError) as error:
        if otherwise:
            return f"Bearer {otherwise}"
        raise KubeError(f"the token {path} can't be read: {error}") from error


def _with_plugin(
    access: Access,
    found: tuple[ExecSettings, Path],
    cluster: Mapping[str, Any],
    timeout: timedelta,
) -> Access:
    """With what the plug-in gives now, and asks again for a token that expires. `found`: its
    settings, and the folder that its paths are relative to."""
    from dnm.kube.exec_plugin import ExecPlugin, run_plugin  # few clusters have one

    settings, base = found
    plugin = ExecPlugin(
        settings=settings,
        base=base,
        cluster=cluster,
        ca_pem=access.ca_pem,
        source=access.source,
        timeout=timeout,
    )
    first = run_plugin(plugin)
    known = [first]

    def authorization() -> str:
        if known[0].is_due():
            known[0] = run_plugin(plugin)
        return f"Bearer {known[0].token}" if known[0].token else ""

    return msgspec.structs.replace(
        access,
        authorization=authorization,
        cert_pem=first.certificate or access.cert_pem,
        key_pem=first.key or access.key_pem,
    )


def proxy_of_environment(scheme: str) -> str:
    """Returns the proxy for addresses of this scheme, as Go's http.ProxyFromEnvironment does."""
    return _environment(f"{scheme.upper()}_PROXY")


def no_proxy_of_environment() -> str:
    """Returns the hosts that are reached without a proxy, as Go reads them."""
    return _environment("NO_PROXY")


def _environment(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.lower()) or ""
