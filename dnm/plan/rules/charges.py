"""`charge_account`: whom what is lent is charged to. Pure.

The rule: a request names the account of the order that it is for, else of its namespace. Its nodes
are charged to that account until they are returned, whatever they serve. The requests of the pods
on a charged node are added up. The registry changes only if they change.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from dnm.model.lent import ConversionRequest, LentNode
from dnm.model.pod import PodList
from dnm.model.registry import Registry
from dnm.plan.hooks import Additions, Rule, in_a_run
from dnm.plan.inputs import Inputs

_COUNTED_ELSEWHERE = "pods"  # how many there are, which nobody pays for


def account_for(inputs: Inputs, request: ConversionRequest) -> str:
    """Returns whom a request is charged to; empty: nobody."""
    config, registry = inputs.config, inputs.registry
    order = next((order for order in registry.orders if order.id == request.order), None)
    if order is not None and order.account:
        return order.account
    policy = config.namespaces.get(request.namespace)
    return policy.charge_account if policy else ""


def _asked(inputs: Inputs, request: ConversionRequest) -> ConversionRequest:
    account = account_for(inputs, request) if inputs.snapshot.charges else ""
    return msgspec.structs.replace(request, account=account)


def _used(inputs: Inputs, registry: Registry) -> Registry:
    """With what the pods on each charged node ask for from now on."""
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
    """Returns the node charged for these requests from now on; itself if they have not changed."""
    charge = entry.charge
    now = {name: count for name, count in sorted(rate.items()) if name != _COUNTED_ELSEWHERE}
    if charge is None or charge.rate == now:
        return entry
    used = charge.used_until(inputs.now)
    charge = msgspec.structs.replace(charge, since=inputs.now, rate=now, used=used)
    return msgspec.structs.replace(entry, charge=charge)


def _add(inputs: Inputs, registry: Registry, noted: Registry) -> Additions:
    """Says once what is lent uncharged, since the converter takes no such word."""
    notes = tuple(
        f"request={request.id} is not charged to {account}: the converter does not say --account "
        "in its list; `dnm check` says why"
        for request in registry.requests
        if request not in inputs.registry.requests and not request.account
        if request.asked_at == inputs.now and (account := account_for(inputs, request))
    )
    return Additions(registry=noted, notes=notes)


RULE = Rule(asks=_asked, records=in_a_run(_used), adds=_add)
