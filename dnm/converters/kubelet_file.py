"""The kubelet's file for a node that is lent: written beside the journals, handed to the hooks.

A hook gets its path and does with it what the site wants. The same settings are the same bytes, so
a repeated hook finds what it found before; a node whose type names nothing has no file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dnm.converters.journal import Direction, Journal
from dnm.converters.settings import Settings
from dnm.host.fault_points import fault_point
from dnm.model.errors import ConverterError

VARIABLE = "DNM_KUBELET_CONFIG"
HOOKS = ("prepare", "join")
_FOLDER = "kubelet"  # below state_dir


def check_kubelets(settings: Settings, node_type: str) -> None:
    """Looks at the settings before anything is claimed. Raises ConverterError for a type whose
    kubelets would not start with them."""
    known = settings.node_types.get(node_type)
    if known is None or known.kubelet is None:
        return
    from dnm.kubelet.check import why_not_lent

    why = why_not_lent(known)
    if why:
        raise ConverterError(f"{why}: nothing of this type is converted until that is mended")


def kubelet_facts(settings: Settings, journal: Journal, hook: str) -> Mapping[str, str]:
    """Writes the node's file and returns the variable that names it; nothing for other hooks, and
    for a type that names nothing. Raises ConverterError."""
    known = settings.node_types.get(journal.node_type)
    is_wanted = hook in HOOKS and journal.direction is Direction.K8S
    if not is_wanted or known is None or known.kubelet is None:
        return {}
    from dnm.kubelet.render import render

    text = render(known.kubelet)
    if not text:
        return {}
    path = settings.state_dir / _FOLDER / f"{journal.node}.yaml"
    try:
        _replace(path, text)
    except OSError as error:
        raise ConverterError(
            f"the kubelet's file {path} can't be written ({error.strerror or error}): free space "
            "or mend the permissions, then repeat"
        ) from error
    return {VARIABLE: str(path)}


def _replace(path: Path, text: str) -> None:
    """The file is whole at every moment."""
    temporary = path.with_suffix(".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with fault_point("hook.kubelet_file"):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
