"""What every pod is given, read by the official client."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dnm.kube.kubeconfig import choose_proxy, read_token, renew
from dnm.model.errors import KubeError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

_GIVEN = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_service_account(named: str) -> Configuration:
    """Returns the way to the cluster that the pod is in. Raises KubeError and OSError."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.incluster_config import InClusterConfigLoader

    configuration = Configuration()
    token = _GIVEN / "token"
    try:
        InClusterConfigLoader(str(token), str(_GIVEN / "ca.crt")).load_and_set(configuration)
    except (ValueError, ConfigException) as error:
        raise KubeError(f"can't use {named}, {_GIVEN}: {error}") from error
    # The client would look once a minute.
    configuration.refresh_api_key_hook = partial(renew, partial(read_token, token), str(token))
    choose_proxy(configuration, "")
    return configuration
