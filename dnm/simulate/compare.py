"""The comparison of configurations on one workload, with each other and with no lending. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from dnm.model.config import Config
from dnm.model.share import Share
from dnm.model.value import Value
from dnm.simulate.measure import Figures, play
from dnm.simulate.policy import TAINT, DnmPolicy
from dnm.simulate.values import Workload
from dnm.simulate.world import NobodyLends

NO_LENDING = "no-lending"


class Price(Value):
    """The effect of a configuration, compared with no lending. `pods_saved`: by how many minutes
    pods waited less in sum. `jobs_paid`: by how many minutes jobs waited more."""

    pods_saved: float
    jobs_paid: float


class Comparison(Value):
    """The simulated figures by name of the configuration, in the given order; `prices` if the
    workload has jobs. `errors`: errors that dnm's plans contained."""

    workload: str
    figures: Mapping[str, Figures]
    prices: Mapping[str, Price] = {}
    errors: tuple[str, ...] = ()


def play_under(
    workload: Workload, config: Config | None, report: Callable[[float], object] | None = None
) -> tuple[Figures, tuple[str, ...]]:
    """Simulates the workload under a configuration, or without lending if it is None. Returns the
    figures and the errors in dnm's plans. Calls `report` with the fraction that is simulated."""
    if config is None:
        return play(workload, NobodyLends(), report)[1], ()
    policy = DnmPolicy(workload, as_played(config, workload))
    _, figures = play(workload, policy, report)
    return figures, tuple(policy.errors)


def side_by_side(
    workload: Workload, played: Mapping[str, tuple[Figures, tuple[str, ...]]]
) -> Comparison:
    """Compares these results of `play_under` with each other and with the one without lending."""
    without, _ = played[NO_LENDING]
    prices = {
        name: Price(
            pods_saved=without.pods.total - figures.pods.total,
            jobs_paid=figures.jobs.total - without.jobs.total,
        )
        for name, (figures, _) in played.items()
        if name != NO_LENDING
    }
    errors = dict.fromkeys(error for _, some in played.values() for error in some)
    return Comparison(
        workload=workload.name,
        figures={name: figures for name, (figures, _) in played.items()},
        prices=prices if workload.jobs else {},
        errors=tuple(errors),
    )


def merge_configs(configs: Mapping[str, Config]) -> Config:
    """Returns the first configuration, extended by the namespaces and node types of the others and
    with the largest cap, so that one simulated cluster suits them all."""
    first, *further = configs.values()
    for other in further:
        first = msgspec.structs.replace(
            first,
            namespaces={**other.namespaces, **first.namespaces},
            node_types={**other.node_types, **first.node_types},
            max_converted_nodes=_larger(first.max_converted_nodes, other.max_converted_nodes),
        )
    return first


def _larger(share: int | Share, other: int | Share) -> int | Share:
    """Returns the larger cap. A percentage counts as larger, as the number of nodes is unknown."""
    if isinstance(share, Share) or isinstance(other, Share):
        return share if isinstance(share, Share) else other
    return max(share, other)


def as_played(config: Config, workload: Workload) -> Config:
    """Returns the configuration without options that the simulated cluster lacks. It keeps the
    workload's queues and node types with one namespace each, without kubelet settings, REST service
    and exclusions: dnm would lend no node for which these are unknown."""
    types = {
        name: msgspec.structs.replace(kind, labels={}, taints=(TAINT,), kubelet=None)
        for name, kind in config.node_types.items()
    }
    namespaces = {
        name: policy
        for name, policy in config.namespaces.items()
        if policy.queue in workload.limits
    }
    played: Config = msgspec.structs.replace(
        config.without_services(), node_types=types, namespaces=namespaces,
        exclude_nodes=frozenset(), exclude_partitions=(), exclude_features=(),
        exclude_reservations=(), partition_floors={}, type_floors={},
    )  # fmt: skip
    return played
