"""Two views of one moment, compared thing by thing. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from dnm.kube.pod_columns import PodColumns
from dnm.model.node import Node
from dnm.model.pod import Pod

View = tuple[Sequence[Node], PodColumns]
_NAMED = 5


def find_differences(kept: View, listed: View) -> str:
    """Returns how many things differ and the first of them, each with both versions; empty where
    none does."""
    pods = (_pods_of(kept[1]), _pods_of(listed[1]))
    nodes = ({one.name: (one.resource_version, one) for one in view[0]} for view in (kept, listed))
    found = [*_differing("pod", *pods), *_differing("node", *nodes)]
    if not found:
        return ""
    named = "; ".join(islice(found, _NAMED))
    return (
        f"{len(found)} of what was kept from watching differ from the full list, which is taken: "
        f"{named}"
    )


def _pods_of(columns: PodColumns) -> dict[str, tuple[str, Pod]]:
    return {
        pod.uid: (str(version), pod)
        for pod, version in zip(columns.to_pods(), columns.versions, strict=True)
    }


def _differing(
    what: str,
    kept: Mapping[str, tuple[str, Pod | Node]],
    listed: Mapping[str, tuple[str, Pod | Node]],
) -> Iterator[str]:
    if kept == listed:
        return
    for key in sorted(kept.keys() | listed.keys()):
        before, after = kept.get(key), listed.get(key)
        if before != after:
            thing = (after or before or ("", None))[1]
            assert thing is not None
            where = f"{thing.namespace}/{thing.name}" if isinstance(thing, Pod) else thing.name
            yield (
                f"{what} {where} is kept at version {before[0] if before else 'none'} and listed "
                f"at {after[0] if after else 'none'}"
            )
