"""Tests of reading NUMA nodes' free capacity from the objects of different exporters."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import msgspec

from dnm.kube.objects import ListPage
from dnm.kube.placing import read_zones


class Api:
    """An API with two objects: `available` is a number in one and a text in the other."""

    def asking(self, *_: object) -> Any:
        return nullcontext()

    def list_items(self, kind_list: object, of: type, *more: object) -> Any:
        page = {"items": [topology("a001", "4"), topology("a002", 4)]}
        return msgspec.json.decode(json.dumps(page).encode(), type=ListPage[of]).items  # type: ignore[valid-type]


def topology(name: str, available: object) -> dict[str, Any]:
    zone = {"type": "Node", "resources": [{"name": "cpu", "available": available}]}
    return {"metadata": {"name": name, "namespace": ""}, "zones": [zone]}


def test_malformed_numa_data_of_a_machine_hides_no_other_machine() -> None:
    result: Any = read_zones(Api())  # type: ignore[arg-type]
    assert [dict(result[name][0])["cpu"] for name in ("a001", "a002")] == [4000, 4000]
