"""Base classes of fakes. mypy compares their methods with those of the real client. At run time
they inherit nothing, so that no code of dnm answers for a fake."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dnm.converter.node_convert import NodeConvert as ConverterFake
    from dnm.http.reader import Answer as AnswerFake
    from dnm.kube.client import KubeClient as KubeFake
    from dnm.kube.leases import LeaseObject as LeaseFake
    from dnm.kube.state import StateObjects as StateFake
    from dnm.kube.watching import Watcher as WatcherFake
else:
    AnswerFake = ConverterFake = KubeFake = LeaseFake = StateFake = WatcherFake = object

__all__ = [
    "AnswerFake", "ConverterFake", "KubeFake", "LeaseFake", "StateFake", "WatcherFake",
]  # fmt: skip
