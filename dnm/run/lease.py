"""The lease of an instance, at the edge: where this dnm is, and the lease read and written."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from dnm.converter.processes import boot_id, host_name
from dnm.model.bounded import read_regular
from dnm.model.cluster import ConfigMap
from dnm.model.config import Config
from dnm.model.errors import KubeConflict, LeaseError
from dnm.model.lease import Lease, Place
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.queues.lease import Actor, Judgement, after_refusal, judge_lease, with_lease

_TRIES = 5  # against others who write at the same time
_OTHERS_WRITE = (
    f"the queue document's ConfigMap was changed by others {_TRIES} times in a row while dnm "
    "wanted to write that it acts; the next run tries again"
)
_LONGEST_HOLDER = 300  # characters
_MACHINE_ID = Path("/etc/machine-id")  # machine-id(5)
_IN_A_POD = "KUBERNETES_SERVICE_HOST"  # every kubelet sets it


class ConfigMaps(Protocol):
    """The part of the Kubernetes client that is needed here."""

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None: ...
    def write_config_map(self, config_map: ConfigMap) -> ConfigMap: ...


def this_place(config: Config, machine_id: Path | None = None) -> Place:
    """Returns where this dnm is. A machine id is not to leave the host, so it is hashed with the
    name and the path; copied images have the same one, containers often none. A pod is no place:
    what it has on disk ends with it, and its name may be its host's."""
    path = os.path.realpath(config.converted_nodes_path)
    name = f"{host_name()}:{path}"
    try:
        machine = read_regular(machine_id or _MACHINE_ID, 1024).decode("ascii").strip()
    except (OSError, ValueError):
        machine = ""
    is_known = len(machine) == 32 and machine.isalnum() and _IN_A_POD not in os.environ
    home = hashlib.sha256(f"dnm {machine} {name}".encode(errors="surrogateescape")).hexdigest()
    return Place(
        holder=printable(name, _LONGEST_HOLDER),
        home=home[:32] if is_known else "",
        boot=boot_id(),
        up_for=timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME)),
    )


def take_lease(
    config: Config,
    kube: ConfigMaps,
    registry: Registry,
    save: Callable[[Registry], object],
    now: datetime,
    follows: bool = False,
) -> Registry:
    """Returns the registry that holds the instance's lease. A new token is saved before it is
    written, so that a kill in between leaves it ours; of two that write at once the API server
    refuses one. `follows`: the run before may be asleep; what it is about to write there must meet
    another version.

    Raises LeaseError where it is another's, KubeError where it can't be read or written.
    """
    for _ in range(_TRIES):
        found = _read(config, kube)
        if found is None:
            return registry
        judged = judge_here(config, found, registry, now)
        if judged.refusal:
            save(after_refusal(registry, judged))
            raise LeaseError(judged.refusal)
        if not (judged.is_due or follows):
            return registry
        lease = new_lease(config, judged.now)
        registry = _holding(registry, *filter(None, [judged.ours, lease]))
        save(registry)
        if _write(config, kube, found, lease):
            return _holding(registry, lease)
    raise KubeConflict(_OTHERS_WRITE)


def put_lease(config: Config, kube: ConfigMaps, lease: Lease) -> None:
    """Writes this lease, whoever has it now. Raises KubeError."""
    for _ in range(_TRIES):
        found = _read(config, kube)
        if found is None or _write(config, kube, found, lease):
            return
    raise KubeConflict(_OTHERS_WRITE)


def judge_here(
    config: Config, config_map: ConfigMap, registry: Registry, now: datetime
) -> Judgement:
    """Tells whether this registry may act, from here."""
    place = this_place(config)
    actor = Actor(instance=config.instance_id, place=place, registry=registry, now=now)
    return judge_lease(config_map, actor)


def new_lease(config: Config, at: datetime) -> Lease:
    """Returns a lease of this dnm that nobody else has."""
    place, token = this_place(config), os.urandom(8).hex()
    return Lease(holder=place.holder, token=token, at=at, home=place.home, boot=place.boot)


def _read(config: Config, kube: ConfigMaps) -> ConfigMap | None:
    """The ConfigMap; None: there is none to be written, so nobody can change a limit either."""
    found = kube.read_config_map(config.yunikorn_cm_namespace, config.yunikorn_cm_name)
    return None if found is None or found.immutable else found


def _write(config: Config, kube: ConfigMaps, found: ConfigMap, lease: Lease) -> bool:
    """Whether nobody else wrote in between."""
    try:
        kube.write_config_map(with_lease(found, config.instance_id, lease))
    except KubeConflict:
        return False
    return True


def _holding(registry: Registry, *leases: Lease) -> Registry:
    held: Registry = msgspec.structs.replace(registry, leases=leases, others_lease=None)
    return held
