"""The identity of this dnm: its host, the host's current boot, and the path of its registry."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path

from dnm.host.trust import read_regular
from dnm.model.config import Config
from dnm.model.lease import Place
from dnm.model.printable import printable

_HOST = os.uname().nodename
_BOOT = "/proc/sys/kernel/random/boot_id"
_LONGEST_HOLDER = 300  # characters
_MACHINE_ID = Path("/etc/machine-id")  # machine-id(5)
_IN_A_POD = "KUBERNETES_SERVICE_HOST"  # every kubelet sets it


@lru_cache
def boot_id() -> str:
    """Returns the kernel's id of this boot, or an empty text. Process ids and start times repeat
    after each boot, so they are unique only together with this id."""
    with suppress(OSError), open(_BOOT, encoding="ascii") as file:
        return file.read(100).strip()
    return ""


def host_name() -> str:
    """Returns the name of this host, or of this container."""
    return _HOST


def this_place(config: Config, machine_id: Path | None = None) -> Place:
    """Returns the identity of this dnm. Its `home` is a hash of machine id, host name and path,
    since a machine id must not leave the host. Host images may share an id, and containers often
    have none. A pod gets no `home`: its disk ends with it, and its name may be that of its host."""
    name = f"{host_name()}:{os.path.realpath(config.converted_nodes_path)}"
    try:
        machine = read_regular(machine_id or _MACHINE_ID, 1024).decode("ascii").strip()
    except (OSError, ValueError):
        machine = ""
    is_unique = len(machine) == 32 and machine.isalnum() and _IN_A_POD not in os.environ
    import hashlib  # as in dnm.model.lease

    home = hashlib.sha256(f"dnm {machine} {name}".encode(errors="surrogateescape")).hexdigest()
    return Place(
        holder=printable(name, _LONGEST_HOLDER),
        home=home[:32] if is_unique else "",
        boot=boot_id(),
        up_for=timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME)),
    )
