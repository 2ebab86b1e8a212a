"""A shipped converter that runs in the process of the test, on a model of Slurm and Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import pytest

from dnm.converters import to_k8s
from dnm.converters.conversion import NodeConversion, Sides, StopRequest
from dnm.converters.journal import Direction, Journal, JournalStore, JournalWriter, NodeResult
from dnm.converters.pool import Candidate, ConversionPool, program_of
from dnm.converters.settings import Machines, Settings
from tests.converters.nodeset_world import BOOTED, patience
from tests.reaper import in_memory

NODE = "a000"
W = TypeVar("W")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Yields a directory in memory if possible, because converters sync their journals often."""
    with TemporaryDirectory(dir=in_memory()) as directory:
        yield Path(directory)


def a_journal(node: str = "a001", **fields: Any) -> Journal:
    """Returns the journal (a converter's record of its stages) of a lend that has begun."""
    journal = Journal(
        node=node, operation="op-1", direction=Direction.K8S, instance="prod", begun=BOOTED
    )
    return msgspec.structs.replace(journal, **fields)


class PlayedProgram(Generic[W]):
    """A converter. Each call makes new clients of Slurm and Kubernetes; a test can replace them."""

    machines: ClassVar[Machines]
    keys: ClassVar[dict[str, Any]] = {}
    control: Callable[[], StopRequest] = StopRequest
    slurm: type[Any]
    kube: type[Any]

    def __init__(self, directory: Path, world: W, **settings: Any) -> None:
        self.world = world
        self.settings = Settings(
            machines=self.machines, state_dir=directory, hooks_dir=directory,
            **{"instance": "prod", **self.keys, **patience(), **settings},
        )  # fmt: skip
        self.store = JournalStore(directory)
        self.said: list[str] = []

    def pool(self) -> ConversionPool:
        sides = Sides(slurm=lambda _: self.slurm(self.world), kube=lambda _: self.kube(self.world))
        return ConversionPool(
            self.settings, program_of(self.machines), self.store, self.control(), self.said.append,
            lambda result: None, sides=sides,
        )  # fmt: skip

    def lend(self, node: str = NODE) -> NodeResult:
        return self.pool().lend([Candidate(node=node)], 1, "a", "dev")[0]

    def bring_back(self, node: str = NODE) -> NodeResult:
        return self.pool().bring_back([node])[0]

    def resume(self) -> list[NodeResult]:
        return self.pool().resume(self.store.load_open("prod", lambda why: None))

    def under_way(self) -> NodeConversion:
        """Returns a conversion that has claimed its node in Slurm and done nothing else."""
        writer = JournalWriter(self.store, a_journal(NODE, node_type="a", namespace="dev"))
        sides = self.pool().sides
        node_conversion = NodeConversion(
            self.settings, writer, StopRequest(), self.said.append, sides
        )
        to_k8s.claim(node_conversion)
        return node_conversion

    def change_settings(self, **settings: Any) -> None:
        self.settings = msgspec.structs.replace(self.settings, **settings)
