"""Finds the kubeconfig in force and makes an `Access` of it."""

from __future__ import annotations

import os
from pathlib import Path

from dnm.host.bounded import read_regular
from dnm.host.fault_points import fault_point
from dnm.http.access import Access
from dnm.kube.kubeconfig import (
    bearer_of_file,
    no_proxy_of_environment,
    proxy_of_environment,
    read_kubeconfig,
)
from dnm.model.config import Config
from dnm.model.errors import KubeError

_HOME_KUBECONFIG = Path("~/.kube/config")
_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
_LARGEST_CA = 4 << 20  # bytes
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_access(config: Config) -> Access:
    """Returns the access of `kubeconfig_path`, else KUBECONFIG, else ~/.kube/config, else the pod's
    service account.

    Raises KubeError that names the file and what to do. A plug-in that hangs is ended after
    `request_timeout`. A file may name a plug-in to run, so one that others can write is not obeyed.
    """
    source = find_kubeconfig(config)
    try:
        with fault_point("kube.load_access"):
            if not source:
                return _service_account()
            paths = [Path(part) for part in source.split(os.pathsep) if part]
            return read_kubeconfig(paths, config.request_timeout)
    except OSError as error:
        what = f"the kubeconfig {source}" if source else "the service account of this pod"
        raise KubeError(f"can't use {what}: {error}") from error


def _service_account() -> Access:
    """What every pod is given (client-go's rest.InClusterConfig); the token is read each time, as
    the kubelet exchanges it."""
    host, port = os.environ[_SERVICE_HOST], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = _SERVICE_ACCOUNT / "token"
    bearer_of_file(token)
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        source="the service account of this pod",
        authorization=lambda: bearer_of_file(token),
        ca_pem=read_regular(_SERVICE_ACCOUNT / "ca.crt", _LARGEST_CA),
        proxy=proxy_of_environment("https"),
        no_proxy=no_proxy_of_environment(),
    )


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
