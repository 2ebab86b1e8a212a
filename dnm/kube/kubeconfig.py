"""Kubeconfigs, read as client-go reads them (tools/clientcmd: api/v1/types.go, loader.go for
merging, validation.go): one reader for all forms, so that kubectl and dnm never differ.

The rule: what client-go refuses is refused, and so is what is not understood. A text where a truth
value belongs never means "do not verify", and a key that would make dnm somebody else is not passed
over in silence.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from dnm.http.access import Access
from dnm.kube.exec_plugin import ExecPlugin, ExecSettings, run_plugin
from dnm.model.errors import KubeError
from dnm.model.trust import read_trusted

_LARGEST = 4 << 20  # bytes
T = TypeVar("T")


class _Strict(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    extensions: Any = None


class _KubeconfigCluster(_Strict, frozen=True, kw_only=True):
    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None


class _User(_Strict, frozen=True, kw_only=True):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    exec_plugin: ExecSettings | None = msgspec.field(name="exec", default=None)
    # Known, so that they are refused with a reason of their own.
    as_user: Any = msgspec.field(name="as", default=None)
    as_uid: Any = None
    as_groups: Any = None
    as_user_extra: Any = None
    auth_provider: Any = None


class _Context(_Strict, frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str | None = None


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
        return _access(_merge(paths), source, timeout)
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
    context = _convert(
        _find(merged, "contexts", current, "the current-context"), _Context, f"context {current!r}"
    )
    cluster_entry = _find(
        merged, "clusters", context.cluster, f"the cluster of context {current!r}"
    )
    cluster = _convert(cluster_entry, _KubeconfigCluster, f"cluster {context.cluster!r}")
    user_entry = _Entry({}, Path("/"))
    if context.user:
        user_entry = _find(merged, "users", context.user, f"the user of context {current!r}")
    user = _convert(user_entry, _User, f"user {context.user!r}")
    objection = _object_to_cluster(cluster) or _object_to_user(user)
    if objection:
        raise ValueError(objection)
    ca_pem = _pem(cluster_entry, "certificate-authority", cluster.certificate_authority_data)
    is_tls = (cluster.server or "").startswith("https:")
    access = Access(
        server=(cluster.server or "").rstrip("/"),
        source=source,
        authorization=lambda: "",
        ca_pem=ca_pem if is_tls else b"",
        cert_pem=_pem(user_entry, "client-certificate", user.client_certificate_data),
        key_pem=_pem(user_entry, "client-key", user.client_key_data),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name or "",
        proxy=cluster.proxy_url or proxy_of_environment("https" if is_tls else "http"),
        no_proxy="" if cluster.proxy_url else _environment("NO_PROXY"),
    )
    if user.exec_plugin is not None:
        plugin = ExecPlugin(
            settings=user.exec_plugin,
            base=user_entry.base,
            cluster=cluster_entry.value,
            ca_pem=ca_pem,
            source=source,
            timeout=timeout,
        )
        return _with_plugin(access, plugin)
    access = msgspec.structs.replace(access, authorization=_authorization(user, user_entry.base))
    return access if is_tls else msgspec.structs.replace(access, cert_pem=b"", key_pem=b"")


def _object_to_cluster(cluster: _KubeconfigCluster) -> str:
    """What client-go's validateClusterInfo, and its TLS configuration, refuse; empty: nothing."""
    if not cluster.server:
        return "its cluster has no server"
    has_ca = cluster.certificate_authority or cluster.certificate_authority_data
    if cluster.certificate_authority and cluster.certificate_authority_data:
        return "certificate-authority and certificate-authority-data are both given: keep one"
    if cluster.insecure_skip_tls_verify and has_ca:
        return (
            "insecure-skip-tls-verify is true and a certificate authority is given: take "
            "insecure-skip-tls-verify away"
        )
    if cluster.proxy_url and urlsplit(cluster.proxy_url).scheme not in ("http", "https"):
        return f"proxy-url = {cluster.proxy_url!r}: only http:// and https:// can be used"
    return ""


def _object_to_user(user: _User) -> str:
    """What client-go's validateAuthInfo refuses, and what dnm does not do; empty: nothing."""
    impersonation = (user.as_user, user.as_uid, user.as_groups, user.as_user_extra)
    if any(value is not None for value in impersonation):
        return "it acts as somebody else (as, as-uid, as-groups): dnm acts as its own account only"
    if user.auth_provider is not None:
        return "it has an auth-provider, which kubectl gave up in 1.26: use an exec plug-in"
    methods = [bool(user.token), bool(user.username or user.password)]
    if sum(methods) > 1:
        return "token and username are both given: keep one"
    certificates = bool(user.client_certificate), bool(user.client_certificate_data)
    keys = bool(user.client_key), bool(user.client_key_data)
    if all(certificates) or (any(certificates) and all(keys)):
        return "client-certificate or client-key is given as a file and as data: keep one"
    if any(certificates) != any(keys):
        return "client-certificate and client-key belong together, and only one is given"
    return user.exec_plugin.objection() if user.exec_plugin is not None else ""


def _pem(entry: _Entry, key: str, data: str | None) -> bytes:
    """The data where it is given, else the file; empty where neither is."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{key}-data is no base64: {error}") from error
    path = entry.value.get(key)
    return (entry.base / path).read_bytes() if path else b""


def _authorization(user: _User, base: Path) -> Callable[[], str]:
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
        with path.open("rb") as file:
            token = file.read(_LARGEST).decode("ascii").strip()
        return f"Bearer {token or otherwise}"
    except (OSError, ValueError) as error:
        if otherwise:
            return f"Bearer {otherwise}"
        raise KubeError(f"the token {path} can't be read: {error}") from error


def _with_plugin(access: Access, plugin: ExecPlugin) -> Access:
    """With what the plug-in gives now, and asks again for a token that expires."""
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


def _environment(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.lower()) or ""
