"""Where the Kubernetes API is and how to prove who asks: an `Access`, loaded once a run.

The official client loads the configuration and authenticates, whatever form it has. Its import
costs more than all other reading of a small cluster, so it is imported only here, when needed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from dnm.errors import KubeError
from dnm.model import Config
from dnm.touch import touch

_HOME_KUBECONFIG = Path("~/.kube/config")
_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one API server. File names are absolute; empty means not given."""

    server: str  # URL, without a slash at its end
    source: str  # what it was read from, for messages
    authorization: Callable[[], str]  # value of the header, refreshed when it is due; empty: none
    ca_file: str = ""
    ca_data: str = ""  # PEM
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    server_name: str = ""  # expected in the certificate, where it is not the host
    proxy: str = ""
    no_proxy: str = ""


def load_access(config: Config) -> Access:
    """`kubeconfig_path`, else KUBECONFIG, else ~/.kube/config, else the pod's service account.

    Raises KubeError that names the file and what to do. A plug-in that hangs is given up after
    `request_timeout`.
    """
    source = find_kubeconfig(config)
    answer: list[Access | BaseException] = []

    def load() -> None:
        try:
            answer.append(_load_official(source))
        except BaseException as error:
            answer.append(error)

    with touch("kube.load_access"):
        # The official client waits for a plug-in without a limit; a thread can be left behind.
        thread = threading.Thread(target=load, daemon=True)
        thread.start()
        thread.join(config.request_timeout.total_seconds())
    if not answer:
        raise KubeError(
            f"loading {_describe(source)} took longer than request_timeout_seconds: run the "
            "credential plug-in that it names by hand"
        )
    if isinstance(answer[0], BaseException):
        error = answer[0]
        if isinstance(error, KubeError):
            raise error
        raise KubeError(
            f"can't use {_describe(source)}: {' '.join(str(error).split())}: mend it until "
            "'kubectl version' works with it"
        ) from error
    return answer[0]


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
        if not any(Path(part).expanduser().is_file() for part in named.split(os.pathsep) if part):
            raise KubeError(f"KUBECONFIG={named}: there is no such file")
        return named
    home = _HOME_KUBECONFIG.expanduser()
    if home.is_file():
        return str(home)
    if os.environ.get(_SERVICE_HOST):
        return ""
    raise KubeError(
        "no kubeconfig is found: set kubeconfig_path in the configuration, or KUBECONFIG, or "
        f"write {home}"
    )


def _describe(source: str) -> str:
    return f"the kubeconfig {source}" if source else "the service account of this pod"


def _load_official(source: str) -> Access:
    from kubernetes import client
    from kubernetes import config as kubernetes_config

    loader: Any = kubernetes_config
    configuration = client.Configuration()
    if source:
        loader.load_kube_config(config_file=source, client_configuration=configuration)
    else:
        loader.load_incluster_config(client_configuration=configuration)
    return _take_over(configuration, _describe(source))


def _take_over(configuration: Any, source: str) -> Access:
    """The fields that decide a connection; names differ between versions of the client."""

    def authorization() -> str:
        for identifier in ("BearerToken", "authorization"):
            value = configuration.get_api_key_with_prefix(identifier)
            if value:
                return str(value)
        return ""

    return Access(
        server=str(configuration.host).rstrip("/"),
        source=source,
        authorization=authorization,
        ca_file=configuration.ssl_ca_cert or "",
        cert_file=configuration.cert_file or "",
        key_file=configuration.key_file or "",
        verify=bool(configuration.verify_ssl),
        server_name=getattr(configuration, "tls_server_name", None) or "",
        proxy=configuration.proxy or "",
        no_proxy=getattr(configuration, "no_proxy", None) or "",
    )
