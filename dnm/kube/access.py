"""How the API server is reached, and who asks: an `Access`, loaded once a run.

The official client reads what there is; which file that is, and whether others could have written
it, is said here and in `kubeconfig.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from dnm.host.fault_points import fault_point
from dnm.model.config import Config
from dnm.model.errors import KubeError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

_HOME_KUBECONFIG = Path("~/.kube/config")
_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one API server."""

    source: str  # what it was read from, for messages
    configuration: Configuration
    files: tuple[IO[bytes], ...] = ()  # in memory, which the configuration names

    @property
    def server(self) -> str:
        """URL, without a slash at its end."""
        return str(self.configuration.host)


def load_access(config: Config) -> Access:
    """Returns the access of `kubeconfig_path`, else KUBECONFIG, else ~/.kube/config, else the pod's
    service account.

    Raises KubeError that names the file and what to do. A plug-in that hangs is ended after
    `request_timeout`. A file may name a plug-in to run, so one that others can write is not obeyed.
    """
    source = find_kubeconfig(config)
    named = f"the kubeconfig {source}" if source else "the service account of this pod"
    try:
        with fault_point("kube.load_access"):
            if not source:
                from dnm.kube.service_account import load_service_account

                return Access(source=named, configuration=load_service_account(named))
            from dnm.kube.kubeconfig import load_kubeconfig

            paths = [Path(part) for part in source.split(os.pathsep) if part]
            configuration, files = load_kubeconfig(paths, named, config.request_timeout)
            return Access(source=named, configuration=configuration, files=files)
    except OSError as error:
        raise KubeError(f"can't use {named}: {error}") from error


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
