"""Reads a plain kubeconfig itself, to spare every run of a small site half its time.

Plain is: one file, a server, certificates, a token or a password. Whatever else stands there (a
plug-in, a refreshed token, a proxy, a key that is not named here) is left to the official client;
a test holds both readings equal. Loading that client costs as much as reading 15,000 pods.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

from dnm.kube.access import Access

_TOP = {"apiVersion", "kind", "clusters", "contexts", "users", "current-context", "preferences"}
_CONTEXT = {"cluster", "user", "namespace"}
_CLUSTER = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
}
_USER = {
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "token",
    "tokenFile",
    "username",
    "password",
}
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class _NotPlainError(Exception):
    """The official client must read it, and say what is wrong with it."""


def read_plain(path: Path) -> Access | None:
    """None: not plain, or not readable; whoever reads it then says why."""
    if any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return None
    import yaml

    try:
        with path.open("rb") as file:
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            # Either loader is a safe one.
            document = yaml.load(file, loader)  # nosec B506
        return _read(document, path)
    except (_NotPlainError, OSError, ValueError, RecursionError, yaml.YAMLError):
        return None


def _read(document: Any, path: Path) -> Access:
    top = _mapping(document, _TOP)
    context = _named(top, "contexts", "context", top.get("current-context"), _CONTEXT)
    cluster = _named(top, "clusters", "cluster", context.get("cluster"), _CLUSTER)
    user = _named(top, "users", "user", context.get("user"), _USER)
    skips_verification = cluster.get("insecure-skip-tls-verify", False)
    if not isinstance(skips_verification, bool):
        raise _NotPlainError
    server = _text(cluster, "server").rstrip("/")
    is_tls = server.startswith("https")
    base = path.absolute().parent
    authorization = _authorization(user, base)
    access = Access(
        server=server,
        source=f"the kubeconfig {path}",
        authorization=lambda: authorization,
        ca_pem=_pem(cluster, "certificate-authority", base) if is_tls else b"",
        cert_pem=_pem(user, "client-certificate", base) if is_tls else b"",
        key_pem=_pem(user, "client-key", base) if is_tls else b"",
        verify=not skips_verification,
        server_name=_text(cluster, "tls-server-name", needed=False),
    )
    if bool(access.cert_pem) != bool(access.key_pem):
        raise _NotPlainError
    return access


def _mapping(value: Any, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or not value.keys() <= known | {"extensions"}:
        raise _NotPlainError
    return value


def _named(
    document: dict[str, Any], kinds: str, kind: str, name: Any, known: set[str]
) -> dict[str, Any]:
    """The one entry of that name."""
    entries = document.get(kinds)
    if not isinstance(name, str) or not name or not isinstance(entries, list):
        raise _NotPlainError
    found = [entry for entry in entries if isinstance(entry, dict) and entry.get("name") == name]
    if len(found) != 1:
        raise _NotPlainError
    return _mapping(found[0].get(kind), known)


def _text(source: dict[str, Any], key: str, needed: bool = True) -> str:
    value = source.get(key)
    if value is None and not needed:
        return ""
    if not isinstance(value, str) or not value:
        raise _NotPlainError
    return value


def _pem(source: dict[str, Any], key: str, base: Path) -> bytes:
    """The data where it is given, else the file; empty where neither is."""
    if f"{key}-data" in source:
        try:
            return base64.b64decode(_text(source, f"{key}-data"), validate=True)
        except binascii.Error as error:
            raise _NotPlainError from error
    if key in source:
        return (base / _text(source, key)).read_bytes()
    return b""


def _authorization(user: dict[str, Any], base: Path) -> str:
    """The header, in the order of precedence of the official client."""
    if "token" in user:
        return f"Bearer {_text(user, 'token')}"
    if "tokenFile" in user:
        return f"Bearer {(base / _text(user, 'tokenFile')).read_text().strip()}"
    if "username" in user and "password" in user:
        pair = f"{_text(user, 'username')}:{_text(user, 'password')}"
        return f"Basic {base64.b64encode(pair.encode('ascii')).decode()}"
    return ""
