"""Finds the kubeconfig in force and makes an `Access` of it.

The official client loads the configuration and authenticates, whatever form it has: plug-ins,
refreshed tokens, proxies, a pod's service account. Its import is the dearest part of a run on a
small cluster, so a plain kubeconfig is read without it, with the same result (kubeconfig.py).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dnm.kube.access import Access
from dnm.kube.kubeconfig import read_plain
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.fault_points import fault_point
from dnm.model.trust import check_trust

_HOME_KUBECONFIG = Path("~/.kube/config")
_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
T = TypeVar("T")


def load_access(config: Config) -> Access:
    """`kubeconfig_path`, else KUBECONFIG, else ~/.kube/config, else the pod's service account.

    Raises KubeError that names the file and what to do. A plug-in that hangs is given up after
    `request_timeout`. A file may name a plug-in to run, so one that others can write is not obeyed.
    """
    source = find_kubeconfig(config)
    try:
        with fault_point("kube.load_access"):
            for path in map(Path, filter(None, source.split(os.pathsep))):
                if path.exists():
                    check_trust(path, KubeError)
            plain = read_plain(Path(source)) if source and os.pathsep not in source else None
            return plain or _load_official(source, config.request_timeout.total_seconds())
    except OSError as error:
        raise _unusable(source, error) from error


def find_kubeconfig(config: Config) -> str:
    """The kubeconfig in force (several, joined by colons, as KUBECONFIG may have); empty: the
    service account of the pod. Raises KubeError where there is nothing to use."""
    if config.kubeconfig_path is not None:
        path = config.kubeconfig_path.expanduser()
        if not path.is_file():
            raise KubeError(f"kubeconfig_path = {path}: there is no such file")
        return str(path)
    named = os.environ.get("KUBECONFIG", "")
    if named:
        paths = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
        if not any(path.is_file() for path in paths):
            raise KubeError(f"KUBECONFIG={named}: there is no such file")
        return os.pathsep.join(str(path) for path in paths)
    home = _HOME_KUBECONFIG.expanduser()
    if home.is_file():
        return str(home)
    if os.environ.get(_SERVICE_HOST):
        return ""
    raise KubeError(
        "no kubeconfig is found: set kubeconfig_path in the configuration, or KUBECONFIG, or "
        f"write {home}"
    )


def _load_official(source: str, seconds: float) -> Access:
    def within(call: Callable[[], T]) -> T:
        return _within(seconds, source, call)

    return within(lambda: _ask_official(source, within))


def _within(seconds: float, source: str, call: Callable[[], T]) -> T:
    """What the official client answers. It waits for a plug-in without a limit: so the call is made
    in a thread of its own, which can be left behind. Raises KubeError."""
    import threading

    answers: list[T] = []
    errors: list[Exception] = []

    def make() -> None:
        try:
            answers.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(seconds)
    if answers:
        return answers[0]
    if not errors:
        raise KubeError(
            f"{_describe(source)} took longer than request_timeout_seconds to give credentials: "
            "run the plug-in that it names by hand"
        )
    raise _unusable(source, errors[0]) from errors[0]


def _unusable(source: str, error: Exception) -> KubeError:
    return KubeError(
        f"can't use {_describe(source)}: {' '.join(str(error).split())}: mend it until "
        "'kubectl version' works with it"
    )


def _describe(source: str) -> str:
    return f"the kubeconfig {source}" if source else "the service account of this pod"


def _ask_official(source: str, within: Callable[[Callable[[], str]], str]) -> Access:
    from kubernetes import client
    from kubernetes import config as kubernetes_config

    loader: Any = kubernetes_config
    configuration = client.Configuration()
    if not source:
        loader.load_incluster_config(client_configuration=configuration)
        return _take_over(configuration, source, within)
    with _complaints() as complaints:
        loader.load_kube_config(config_file=source, client_configuration=configuration)
    access = _take_over(configuration, source, within)
    if complaints and not (configuration.api_key or access.cert_pem):
        raise KubeError("; ".join(complaints))
    return access


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the official client only logs: why a plug-in gave no credentials."""
    lines: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield lines
    finally:
        root.removeHandler(handler)


def _take_over(
    configuration: Any, source: str, within: Callable[[Callable[[], str]], str]
) -> Access:
    """The fields that decide a connection; names differ between versions of the client."""

    def renew() -> str:
        for identifier in ("BearerToken", "authorization"):
            value = configuration.get_api_key_with_prefix(identifier)
            if value:
                return str(value)
        return ""

    return Access(
        server=str(configuration.host).rstrip("/"),
        source=_describe(source),
        authorization=lambda: within(renew),
        ca_pem=_read_file(configuration.ssl_ca_cert),
        cert_pem=_read_file(configuration.cert_file),
        key_pem=_read_file(configuration.key_file),
        verify=bool(configuration.verify_ssl),
        server_name=getattr(configuration, "tls_server_name", None) or "",
        proxy=configuration.proxy or "",
        no_proxy=getattr(configuration, "no_proxy", None) or "",
    )


def _read_file(path: str | None) -> bytes:
    return Path(path).read_bytes() if path else b""
