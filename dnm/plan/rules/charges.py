"""`charge_account`: the Slurm account that pays for lent nodes. Pure.

The rule: a request names the account of its order, or else of its namespace. Its nodes are charged
to that account until they are returned, whatever they serve. The requests of the pods on a charged
node are summed up over time. The registry changes only if these requests change."""

from __future__ import annotations

from collections import Counter

import msgspec

from dnm.model.lent import ConversionRequest, LentNode
from dnm.model.pod import PodList
from dnm.model.registry import Registry
from dnm.plan.hooks import Additions, Rule, in_a_run
from dnm.plan.inputs import Inputs

_COUNTED_ELSEWHERE = "pods"  # the number of pods, which has no price


def account_for(inputs: Inputs, request: ConversionRequest) -> str:
    """Returns the Slurm account that pays for a request's nodes; empty if none does."""
    config, registry = inputs.config, inputs.registry
    order = next((order for order in registry.orders if order.id == request.order), None)
    if order is not None and order.account:
        return order.account
    policy = config.namespaces.get(request.namespace)
    return policy.charge_account if policy else ""


def _with_account(inputs: Inputs, request: ConversionRequest) -> ConversionRequest:
    account = account_for(inputs, request) if inputs.snapshot.charges else ""
    return msgspec.structs.replace(request, account=account)


def _record_use(inputs: Inputs, registry: Registry) -> Registry:
    """Returns the registry with what pods request now on each node that an account pays for."""
    pods = inputs.snapshot.pods
    charged = {name: node for name, node in registry.nodes.items() if node.charge is not None}
    if not charged or not isinstance(pods, PodList):
        return registry
    rates: dict[str, Counter[str]] = {name: Counter() for name in charged}
    for pod in pods.pods:
        if pod.node in rates and pod.counts_as_work:
            rates[pod.node].update(pod.shape.request)
    nodes = {name: _with_rate(node, rates[name], inputs) for name, node in charged.items()}
    return msgspec.structs.replace(registry, nodes={**registry.nodes, **nodes})


def _with_rate(entry: LentNode, rate: Counter[str], inputs: Inputs) -> LentNode:
    """Returns the entry with these requests charged from now on; unchanged if they are the same."""
    charge = entry.charge
    now = {name: count for name, count in sorted(rate.items()) if name != _COUNTED_ELSEWHERE}
    if charge is None or charge.rate == now:
        return entry
    used = charge.used_until(inputs.now)
    charge = msgspec.structs.replace(charge, since=inputs.now, rate=now, used=used)
    return msgspec.structs.replace(entry, charge=charge)


def _report_uncharged(inputs: Inputs, registry: Registry, registry_now: Registry) -> Additions:
    """Adds a note for each new request with an account that the converter cannot charge to it."""
    notes = tuple(
        f"request={request.id} is not charged to {account}: the converter does not list "
        "--account; `dnm check` shows why"
        for request in registry.requests
        if request not in inputs.registry.requests and not request.account
        if request.asked_at == inputs.now and (account := account_for(inputs, request))
    )
    return Additions(registry=registry_now, notes=notes)


RULE = Rule(asks=_with_account, records=in_a_run(_record_use), adds=_report_uncharged)
