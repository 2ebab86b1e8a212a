"""The access to an API server: its address and the credentials of dnm, loaded once a run.

dnm reads the files of a kubeconfig within bounds, and only if no other user can write them. It
merges several files as client-go does (tools/clientcmd, loader.go): the first one decides. The
official client gets the entries of the current context, with the files that these name as copies in
memory. `tests/kube/test_clients_own.py` shows for each part what the client would do instead."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

import msgspec
from urllib3 import disable_warnings
from urllib3.exceptions import InsecureRequestWarning
from urllib3.util import make_headers

from dnm.host.fault_points import fault_point
from dnm.host.trust import read_trusted
from dnm.kube.kubeconfig_fields import Context, KubeconfigCluster, User, check_cluster, check_user
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.printable import printable

if TYPE_CHECKING:
    from kubernetes.client import Configuration

_HOME_KUBECONFIG = "~/.kube/config"
_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
_LARGEST = 4 << 20  # bytes
_TOKEN = "BearerToken"
T = TypeVar("T")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The address and the credentials with which dnm reaches one API server."""

    source: str  # where the access was read from, for messages
    configuration: Configuration
    files: tuple[IO[bytes], ...] = ()  # in memory, which the configuration names

    @property
    def server(self) -> str:
        """Returns the URL of the API server, without a slash at its end."""
        return str(self.configuration.host)

    def authorization(self) -> dict[str, str]:
        """Returns the Authorization header with the current credentials, or no header if there are
        none. The KubeError that it may raise shows no credentials."""
        from kubernetes.config import ConfigException

        try:
            settings = self.configuration.auth_settings()
        except (OSError, ConfigException) as error:  # of the service account of a pod
            raise KubeError(f"can't use {self.source}: {error}") from error
        headers = {
            setting["key"]: setting["value"] for setting in settings.values() if setting["value"]
        }
        for value in headers.values():
            if not (value.isascii() and value.isprintable() and value.count(" ") == 1):
                raise KubeError(
                    f"can't use {self.source}: its token has spaces, line ends or foreign letters"
                )
        return headers


def load_access(config: Config) -> Access:
    """Returns the access from `kubeconfig_path`, else KUBECONFIG, else ~/.kube/config, else the
    pod's service account.

    Raises KubeError that names the file and the next step. A plug-in that hangs is ended after
    `request_timeout`. A file may name a plug-in, so dnm refuses it if other users can write it."""
    try:
        with fault_point("kube.load_access"):
            if source := find_kubeconfig(config):
                paths = [Path(part) for part in source.split(os.pathsep) if part]
                return _load_kubeconfig(paths, f"the kubeconfig {source}", config.request_timeout)
            return _load_service_account()
    except OSError as error:
        why = f"can't use the kubeconfig or the pod's service account: {error}"
        raise KubeError(f"{why}: set kubeconfig_path to a file that this user may read") from error


def find_kubeconfig(config: Config) -> str:
    """Returns the path of the kubeconfig (several paths are joined by colons), or an empty text to
    use the pod's service account. Raises KubeError if dnm finds none of these, and OSError."""
    if config.kubeconfig_path is not None:
        path = config.kubeconfig_path.expanduser()
        if not path.is_file():
            raise KubeError(
                f"kubeconfig_path = {path}: there is no such file; create it, or correct the key"
            )
        return str(path)
    if named := os.environ.get("KUBECONFIG", ""):
        paths = [Path(os.path.expanduser(part)) for part in named.split(os.pathsep) if part]
        if not any(path.is_file() for path in paths):
            raise KubeError(f"KUBECONFIG={named}: there is no such file. Correct the variable")
        return os.pathsep.join(str(path) for path in paths)
    home = Path(os.path.expanduser(_HOME_KUBECONFIG))
    if home.is_file():
        return str(home)
    if os.environ.get(_SERVICE_HOST):
        return ""
    raise KubeError(
        "dnm found no kubeconfig: set kubeconfig_path in the configuration, or KUBECONFIG, or "
        f"write {home}"
    )


class _Named(msgspec.Struct, frozen=True):
    name: str
    cluster: dict[str, Any] | None = None
    user: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    """A kubeconfig. dnm checks only the entries of the current context."""

    api_version: Literal["v1", ""] | None = msgspec.field(name="apiVersion", default=None)
    kind: Literal["Config", ""] | None = None
    current_context: str | None = None
    clusters: list[_Named] | None = None
    users: list[_Named] | None = None
    contexts: list[_Named] | None = None


class _Entry(msgspec.Struct, frozen=True):
    """A named entry of a kubeconfig, and the folder to which its relative paths belong."""

    value: Mapping[str, Any]
    base: Path


def _load_kubeconfig(paths: Sequence[Path], source: str, timeout: timedelta) -> Access:
    """Returns the access of the current context of these files, merged. Skips a file that does not
    exist. Raises KubeError with the file, the key and the cause."""
    from kubernetes.config import ConfigException

    try:
        return _load_chosen(_merge(paths), source, timeout)
    except (
        OSError, ValueError, TypeError, KeyError, RecursionError, msgspec.MsgspecError,
        ConfigException,
    ) as error:  # fmt: skip
        raise KubeError(
            f"can't use {source}: {printable(' '.join(str(error).split()), 600)}: correct it until "
            "'kubectl version' works with it"
        ) from error


def _merge(paths: Sequence[Path]) -> dict[str, Any]:
    merged: dict[str, Any] = {"current-context": "", "clusters": {}, "users": {}, "contexts": {}}
    for path in paths:
        if not path.exists():
            continue
        document = _load(path)
        merged["current-context"] = merged["current-context"] or document.current_context
        for kinds in ("clusters", "users", "contexts"):
            names = set()
            for item in getattr(document, kinds) or ():
                if item.name in names:
                    raise ValueError(f"{kinds} of {path} have two entries {item.name!r}: keep one")
                names.add(item.name)
                value = getattr(item, kinds.removesuffix("s")) or {}
                merged[kinds].setdefault(item.name, _Entry(value, path.absolute().parent))
    return merged


def _load(path: Path) -> _File:
    import msgspec.yaml

    content = read_trusted(path, _LARGEST, KubeError)
    try:
        # An empty file counts as a kubeconfig, as for kubectl.
        return msgspec.yaml.decode(content, type=_File | None) or _File()
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is not a kubeconfig: {error}") from error


def _find(
    merged: Mapping[str, Any], kinds: str, name: str, subject: str, kind: type[T]
) -> tuple[_Entry, T]:
    if name not in merged[kinds]:
        raise ValueError(f"{subject} {name!r} is not among its {kinds}")
    entry = merged[kinds][name]
    try:
        return entry, msgspec.convert(entry.value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{kinds[:-1]} {name!r}: {error}") from error


def _choose(merged: Mapping[str, Any]) -> tuple[_Entry, KubeconfigCluster, _Entry, User]:
    """Returns cluster and user of the current context, each as its entry and as decoded fields."""
    current = merged["current-context"]
    if not current:
        raise ValueError("it has no current-context")
    _, context = _find(merged, "contexts", current, "the current-context", Context)
    subject = f"the cluster of context {current!r}"
    cluster, of_cluster = _find(merged, "clusters", context.cluster, subject, KubeconfigCluster)
    check_cluster(of_cluster)
    if not context.user:
        return cluster, of_cluster, _Entry({}, cluster.base), User()
    user, of_user = _find(merged, "users", context.user, f"the user of context {current!r}", User)
    check_user(of_user)
    if of_user.auth_provider is not None:
        from dnm.kube.credentials import check_provider  # few have one

        check_provider(of_user.auth_provider)
    return cluster, of_cluster, user, of_user


def _load_chosen(merged: Mapping[str, Any], source: str, timeout: timedelta) -> Access:
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config_from_dict

    cluster, of_cluster, user, of_user = _choose(merged)
    entries = {"certificate-authority": cluster, "client-certificate": user, "client-key": user}
    contents = {key: _content(entry, key) for key, entry in entries.items()}
    credential_keys = ("token", "username", "password", "auth-provider")
    credentials = {key: user.value[key] for key in credential_keys if user.value.get(key)}
    token_of: Callable[[], str] | None = None
    if of_user.exec_plugin is not None:
        from dnm.kube.credentials import ExecPlugin  # few clusters have one

        plugin = ExecPlugin(of_user.exec_plugin, user.base, source, timeout)
        contents |= plugin.ask(cluster.value, contents["certificate-authority"])
        token_of = plugin.token
    elif of_user.token_file:
        from dnm.kube.credentials import read_token  # few have one

        token_of = partial(read_token, user.base / of_user.token_file, of_user.token or "")
    if token := token_of() if token_of is not None else of_user.token:
        credentials["token"] = token
    files = {key: _in_memory(content) for key, content in contents.items() if content}
    named = {key: f"/proc/self/fd/{file.fileno()}" for key, file in files.items()}
    configuration = Configuration()
    load_kube_config_from_dict(
        _as_document(cluster.value, credentials, named),
        client_configuration=configuration,
        persist_config=False,
    )
    # The client's own hook reads the file of a token once, and hides the failure of a plug-in.
    configuration.refresh_api_key_hook = token_of and partial(_renew, token_of)
    if not configuration.verify_ssl:  # set in the file; a warning in each run does not help
        disable_warnings(InsecureRequestWarning)
    _choose_proxy(configuration, of_cluster.proxy_url or "")
    return Access(source=source, configuration=configuration, files=tuple(files.values()))


def _as_document(
    cluster: Mapping[str, Any], user: dict[str, Any], named: Mapping[str, str]
) -> dict[str, Any]:
    """Returns a kubeconfig of one context for the client, with certificates and keys as files."""
    server_keys = ("server", "insecure-skip-tls-verify", "tls-server-name")
    reached = {key: cluster[key] for key in server_keys if cluster.get(key) is not None}
    for key, path in named.items():
        (reached if key == "certificate-authority" else user)[key] = path
    name = "dnm"
    return {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": reached}],
        "users": [{"name": name, "user": user}],
    }


def _content(entry: _Entry, key: str) -> bytes:
    """Returns a certificate or key from an entry or the file that it names; b"" if it has none."""
    if data := entry.value.get(f"{key}-data"):
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{key}-data is not base64: {error}") from error
    path = entry.value.get(key)
    return read_trusted(entry.base / path, _LARGEST, KubeError) if path else b""


def _in_memory(content: bytes) -> IO[bytes]:
    """Writes a certificate or key to a file in memory, so that none is written to a disk, and
    returns the file. The official client opens it through the path of its descriptor in /proc."""
    file = open(os.memfd_create("credentials"), "w+b")  # noqa: SIM115  open as long as the access
    file.write(content)
    file.flush()
    return file


def _load_service_account() -> Access:
    """Returns the access by the service account of dnm's own pod. Raises KubeError and OSError."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_incluster_config

    named, configuration = "the service account of this pod", Configuration()
    try:
        load_incluster_config(client_configuration=configuration)
        _choose_proxy(configuration, "")
    except (ValueError, ConfigException) as error:
        raise KubeError(f"can't use {named}: {error}") from error
    return Access(source=named, configuration=configuration)


def _renew(token_of: Callable[[], str], configuration: Configuration) -> None:
    """Sets the current token in the client's configuration, before each request."""
    configuration.api_key[_TOKEN] = f"Bearer {token_of()}"


def _choose_proxy(configuration: Configuration, of_cluster: str) -> None:
    """Sets the proxy of the kubeconfig, else that of the environment for this scheme, but none for
    loopback, as Go does. Release 36 of the client ignores proxy-url and always uses HTTP_PROXY."""
    proxies = getproxies_environment()
    server = urlsplit(configuration.host)
    url = of_cluster or ("" if is_loopback(server.hostname or "") else proxies.get(server.scheme))
    configuration.proxy, configuration.no_proxy = None, None if of_cluster else proxies.get("no")
    if not url:
        return
    proxy = urlsplit(url if "://" in url else f"http://{url}")
    configuration.proxy = f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}"
    if proxy.username:
        pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        configuration.proxy_headers = make_headers(proxy_basic_auth=pair)


def is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"
