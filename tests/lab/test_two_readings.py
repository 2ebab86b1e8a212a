"""dnm and the sandbox read the same pods and documents for themselves, and agree; a misreading that
is planted in either is found. YuniKorn's own answers judge the sandbox's reading of amounts."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dnm.lab.sandbox.pod_reading import AmountError, canonical_amount, kubernetes_amount
from dnm.queues.tree import check_text
from tests.lab.readings import (
    DOMAIN,
    amount_by_dnm,
    amount_by_sandbox,
    amount_texts,
    document_by_dnm,
    document_by_sandbox,
    pod_by_dnm,
    pod_by_sandbox,
    pods,
)
from tests.queue_kit import DATA

pytestmark = pytest.mark.xdist_group("two readings")  # what `_pool` has made is made once
TRIES = settings(
    max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
VECTORS = json.loads((DATA / "yunikorn_vectors.json").read_text())
JUDGED = [json.loads(line) for line in (DATA / "judged.jsonl").read_text().splitlines()]
TAKEN = [  # by YuniKorn and, in its stricter dialect, by dnm
    one["yaml"] for one in JUDGED if one["ok"] and not check_text(one["yaml"])
]


# --- the sandbox and YuniKorn --------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS["quantity"], ids=lambda vector: repr(vector["text"]))
def test_the_sandbox_reads_amounts_as_yunikorn_did(vector: dict[str, Any]) -> None:
    for name, field in (("memory", "other"), ("vcore", "vcore_milli")):
        assert amount_by_sandbox(name, vector["text"], False) == vector[field]


CANONICAL = {  # what kubernetes v1.34's resource.Quantity prints of it
    "4": "4", "0.5": "500m", ".5": "500m", "1000m": "1", "1500m": "1500m", "1000000": "1M",
    "16000000000": "16G", "1000000u": "1", "0.1n": "1n", "9E": "9E", "0Gi": "0", "1024": "1024",
    "1.5Gi": "1536Mi", "-1.5Gi": "-1536Mi", "0.5Gi": "512Mi", "1024Mi": "1Gi", "0.5Ki": "512",
    "1.5Ki": "1536", "0.1Ki": "102400m", "1.1Ki": "1126400m", "2000Ki": "2000Ki",
    "528000000Ki": "515625Mi", "1048576Ki": "1Gi", "1e3": "1e3", "12E2": "1200", "1.5e3": "1500",
    "3e4": "30e3", "15e-1": "1500e-3", "12e-4": "1200e-6",
}  # fmt: skip


@pytest.mark.parametrize(("written", "kept"), CANONICAL.items())
def test_the_sandbox_keeps_amounts_as_the_api_server_writes_them(written: str, kept: str) -> None:
    assert canonical_amount(written) == kept


@TRIES
@given(amount_texts)
def test_an_amount_as_it_is_kept_is_the_same_amount(text: str) -> None:
    try:
        amount = kubernetes_amount(text)
    except AmountError:
        return
    kept = canonical_amount(text)
    assert kubernetes_amount(kept) == amount and canonical_amount(kept) == kept


# --- dnm and the sandbox -------------------------------------------------------------------------


@TRIES
@given(st.sampled_from(["vcore", "memory", "pods"]), amount_texts, st.booleans())
def test_both_read_the_same_amounts(name: str, text: str, of_kubernetes: bool) -> None:
    seen = amount_by_dnm(name, text, of_kubernetes)
    assert seen == amount_by_sandbox(name, text, of_kubernetes)


@TRIES
@given(pods())
def test_both_read_the_same_of_a_pod(pod: dict[str, Any]) -> None:
    assert pod_by_dnm(pod) == pod_by_sandbox(pod)


def test_both_see_the_same_limits_in_what_yunikorn_takes() -> None:
    for text in TAKEN:
        assert document_by_dnm(text) == document_by_sandbox(text), text
    assert len(TAKEN) > 130


# --- planted misreadings -------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], Any]
C1: dict[str, Any] = {"name": "c0", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}


def _each(field: str, change: Change) -> Change:
    def apply(pod: dict[str, Any]) -> None:
        for part in ("spec", "status"):
            for item in pod[part].get(field) or ():
                change(item)

    return apply


def _without(part: str, *fields: str) -> Change:
    return lambda pod: [pod[part].pop(field, None) for field in fields]


def _no_label(key: str) -> Change:
    return lambda pod: pod["metadata"]["labels"].pop(key, None)


def _limits_are_requests(container: dict[str, Any]) -> None:
    container["resources"]["requests"] = container["resources"]["limits"]


def _all_at_once(pod: dict[str, Any]) -> None:
    pod["spec"]["containers"] += pod["spec"].pop("initContainers")


def _annotation_first(pod: dict[str, Any]) -> None:
    meta = pod["metadata"]
    if meta["annotations"].get(f"{DOMAIN}queue"):
        meta["labels"].pop(f"{DOMAIN}queue", None)


MISREAD_PODS = [
    pytest.param(_without("spec", "overhead"), id="no overhead"),
    pytest.param(_without("spec", "resources"), id="no pod-level amounts"),
    pytest.param(_without("spec", "initContainers"), id="no init containers"),
    pytest.param(_all_at_once, id="init containers run beside the others"),
    pytest.param(_each("initContainers", lambda c: c.pop("restartPolicy", None)), id="no sidecars"),
    pytest.param(_each("containers", _limits_are_requests), id="limits for requests"),
    pytest.param(_each("containerStatuses", lambda s: s.pop("allocatedResources", None)),
                 id="what the kubelet set aside"),
    pytest.param(_each("containerStatuses", lambda s: s.pop("resources", None)),
                 id="what the kubelet applied"),
    pytest.param(_without("status", "resize", "conditions"), id="a refused resize"),
    pytest.param(_no_label("spark-app-selector"), id="Spark's label"),
    pytest.param(_no_label("queue"), id="the old label of the queue"),
    pytest.param(_annotation_first, id="the annotation before the label"),
]  # fmt: skip


@pytest.mark.parametrize("whose", ["dnm", "sandbox"])
@pytest.mark.parametrize("change", MISREAD_PODS)
def test_a_misread_pod_is_found(change: Change, whose: str) -> None:
    def misread(pod: Mapping[str, Any]) -> dict[str, Any]:
        own = copy.deepcopy(dict(pod))
        change(own)
        return own

    def differ(pod: dict[str, Any]) -> bool:
        if whose == "dnm":
            return pod_by_dnm(misread(pod)) != pod_by_sandbox(pod)
        return pod_by_dnm(pod) != pod_by_sandbox(misread(pod))

    assert any(map(differ, _pool("pods")))


def test_sidecars_counted_twice_are_found() -> None:
    """As YuniKorn 1.6 to 1.8 counted them."""
    assert any(
        seen[0] != seen[1] for pod in _pool("pods") for seen in [pod_by_dnm(pod)["requests"]]
    )


def _field(name: str, value: Any) -> Callable[[Any], Any]:
    """Every mapping below has another value there, or has it no more (None)."""

    def apply(item: Any) -> Any:
        if isinstance(item, list):
            return [apply(one) for one in item]
        if not isinstance(item, dict):
            return item
        kept = {key: apply(one) for key, one in item.items() if key != name or value is not None}
        return {**kept, name: value} if name in item and value is not None else kept

    return apply


MISREAD_DOCUMENTS = [
    pytest.param(_field("guaranteed", None), id="no guarantees"),
    pytest.param(_field("max", None), id="no limits"),
    pytest.param(_field("parent", None), id="no parent flag"),
    pytest.param(_field("vcore", "1"), id="every vcore is one"),
]


@pytest.mark.parametrize("whose", ["dnm", "sandbox"])
@pytest.mark.parametrize("change", MISREAD_DOCUMENTS)
def test_a_misread_document_is_found(change: Callable[[Any], Any], whose: str) -> None:
    def differ(text: str) -> bool:
        first = next(yaml.load_all(text, Loader=yaml.BaseLoader), None)
        other = json.dumps(change(first))
        if check_text(other):
            return False  # no document any more
        if whose == "dnm":
            return document_by_dnm(other) != document_by_sandbox(text)
        return document_by_dnm(text) != document_by_sandbox(other)

    assert any(map(differ, TAKEN))


MISREAD_AMOUNTS: list[Any] = [
    pytest.param(lambda seen, name, text: None if "." in text else seen, True, id="no decimals"),
    pytest.param(lambda seen, name, text: seen and seen // 10 * 10, True, id="rounded down"),
    pytest.param(lambda seen, name, text: int(text, 8) if text == "0010" else seen and seen // 1000
                 if name == "vcore" else seen, False, id="whole cores"),
    pytest.param(lambda seen, name, text: seen or 0, False, id="nothing for what is no amount"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "of_kubernetes"), MISREAD_AMOUNTS)
def test_a_misread_amount_is_found(
    change: Callable[[int | None, str, str], int | None], of_kubernetes: bool
) -> None:
    def differ(pair: tuple[str, str]) -> bool:
        name, text = pair
        seen = change(amount_by_dnm(name, text, of_kubernetes), name, text)
        return seen != amount_by_sandbox(name, text, of_kubernetes)

    assert any(map(differ, _pool("amounts")))


@functools.cache
def _pool(name: str) -> tuple[Any, ...]:
    """Values by chance, the same ones each time, for all misreadings to be tried on."""
    values, count = {
        "pods": (pods(), 400),
        "amounts": (st.tuples(st.sampled_from(["vcore", "memory"]), amount_texts), 400),
    }[name]
    found = []

    @settings(TRIES, max_examples=count, derandomize=True, database=None, phases=[Phase.generate])
    @given(values)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return tuple(found)
