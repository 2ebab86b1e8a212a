"""The labels and taints by which a Node is a namespace's, and their exchange for another's. Pure.

They are those that a converter gives a node that it lends: `<namespace>=true`, and what the node
type's section says. Of all else that a Node carries nothing is touched.
"""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.value import Value


class LabelChange(Value):
    """`labels`: as they are to be, None where there is to be none. `off`, `on`: taints."""

    labels: Mapping[str, str | None]
    off: tuple[Taint, ...] = ()
    on: tuple[Taint, ...] = ()

    def is_done(self, node: Node) -> bool:
        """Returns whether the Node carries all of the new namespace, and nothing of the old."""
        return (
            all(node.labels.get(key) == text for key, text in self.labels.items())
            and all(taint in node.taints for taint in self.on)
            and not any(taint in node.taints for taint in self.off)
        )

    def is_begun(self, node: Node) -> bool:
        """Returns whether the Node carries anything that is the new namespace's alone."""
        new = {key: text for key, text in self.labels.items() if text is not None}
        return any(node.labels.get(key) == text for key, text in new.items()) or any(
            taint in node.taints for taint in self.on
        )


def change_labels(config: Config, node_type: str, before: str, after: str) -> LabelChange:
    """Returns what differs between nodes of a type that are lent to these two namespaces."""
    known = config.node_types.get(node_type)
    old = {**(known.labels_for(before) if known else {}), before: "true"}
    new = {**(known.labels_for(after) if known else {}), after: "true"}
    was = known.taints_for(before) if known else ()
    will = known.taints_for(after) if known else ()
    gone: dict[str, str | None] = {key: None for key in old if key not in new}
    changed = {key: text for key, text in new.items() if old.get(key) != text}
    return LabelChange(
        labels={**gone, **changed},
        off=tuple(taint for taint in was if taint not in will),
        on=tuple(taint for taint in will if taint not in was),
    )
