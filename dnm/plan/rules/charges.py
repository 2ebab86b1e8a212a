"""`charge_account`: whom what is lent is charged to. Pure.

The rule: a request names the account of the order that it is for, else of the event that its
namespace has nodes for now, else of the namespace, else of all; what comes of it is charged to that
account until it goes back, whatever it serves by then. What the pods on a charged node ask for is
added up, and of that what each user's ask for, whom `charge_user_label` names; it changes when they
do, so that a quiet run writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from dnm.model.lent import ConversionRequest, LentNode, Use
from dnm.model.pod import PodList
from dnm.model.registry import Registry
from dnm.plan.hooks import Additions, Rule, in_a_run
from dnm.plan.inputs import Inputs
from dnm.plan.rule import has_events
from dnm.plan.rules.foreseen import foreseen_at

_COUNTED_ELSEWHERE = "pods"  # how many there are, which nobody pays for
_MOST_USERS = 20  # of a lend: each is kept in the record until the node is back
_OTHERS = "(others)"  # which is no value of a label
_Kept = TypeVar("_Kept", bound=Use)
Rates = Mapping[str, Counter[str]]  # user -> resource -> amount; "": of nobody that is known


def account_for(inputs: Inputs, request: ConversionRequest) -> str:
    """Returns whom a request is charged to; empty: nobody."""
    config, registry = inputs.config, inputs.registry
    order = next((one for one in registry.orders if one.id == request.order), None)
    if order is not None and order.account:
        return order.account
    policy = config.namespaces.get(request.namespace)
    of_event = "" if order else _account_of_event(inputs, request.namespace)
    return of_event or (policy.charge_account if policy else "") or config.charge_account


def _account_of_event(inputs: Inputs, namespace: str) -> str:
    """That of the first to begin."""
    config, registry = inputs.config, inputs.registry
    if not has_events(config, registry):
        return ""
    windows = foreseen_at(config, registry, inputs.snapshot.foreseen_at or inputs.now).keep
    named = (one.event for one in windows if one.event.namespace == namespace)
    return next((event.charge_account for event in named if event.charge_account), "")


def _asked(inputs: Inputs, request: ConversionRequest) -> ConversionRequest:
    account = account_for(inputs, request) if inputs.snapshot.charges else ""
    return msgspec.structs.replace(request, account=account)


def _used(inputs: Inputs, registry: Registry) -> Registry:
    """With what the pods on each charged node ask for from now on."""
    pods = inputs.snapshot.pods
    charged = {name: one for name, one in registry.nodes.items() if one.charge is not None}
    if not charged or not isinstance(pods, PodList):
        return registry
    rates: dict[str, dict[str, Counter[str]]] = {name: {} for name in charged}
    for pod in pods.pods:
        if pod.node in rates and pod.counts_as_work:
            rates[pod.node].setdefault(pod.user, Counter()).update(pod.shape.request)
    nodes = {name: _with_rates(one, rates[name], inputs) for name, one in charged.items()}
    return msgspec.structs.replace(registry, nodes={**registry.nodes, **nodes})


def _with_rates(entry: LentNode, rates: Rates, inputs: Inputs) -> LentNode:
    charge = entry.charge
    if charge is None:
        return entry
    now = _at_rate(charge, sum(rates.values(), Counter()), inputs)
    known = _within_bounds(rates, charge.users)
    users = {
        user: _at_rate(charge.users.get(user) or Use(since=inputs.now), rate, inputs)
        for user, rate in known.items()
    }
    if now is charge and users == charge.users:
        return entry
    return msgspec.structs.replace(entry, charge=msgspec.structs.replace(now, users=users))


def _within_bounds(rates: Rates, known: Mapping[str, Use]) -> Rates:
    """Those of the users that are known, and of so many new ones as there is room for, who ask for
    most; the rest together."""
    room = _MOST_USERS - len(known.keys() - {_OTHERS})
    new = sorted((user for user in rates if user and user not in known),
                 key=lambda user: (-rates[user]["vcore"], user))  # fmt: skip
    kept = {user: rates.get(user, Counter()) for user in (*known, *new[:room])}
    if others := new[room:]:
        kept[_OTHERS] = sum((rates[user] for user in others), Counter())
    return kept


def _at_rate(use: _Kept, rate: Counter[str], inputs: Inputs) -> _Kept:
    """What it is from now on; itself where that has not changed."""
    now = {name: count for name, count in sorted(rate.items()) if name != _COUNTED_ELSEWHERE}
    if use.rate == now:
        return use
    used = use.used_until(inputs.now)
    return msgspec.structs.replace(use, since=inputs.now, rate=now, used=used)


def _add(inputs: Inputs, registry: Registry, noted: Registry) -> Additions:
    """Says once what is lent uncharged, since the converter takes no such word."""
    notes = tuple(
        f"request={one.id} is not charged to {account}: the converter does not say --account in "
        "its list; `dnm check` says why"
        for one in registry.requests
        if one not in inputs.registry.requests and not one.account
        if one.asked_at == inputs.now and (account := account_for(inputs, one))
    )
    return Additions(registry=noted, notes=notes)


RULE = Rule(asks=_asked, records=in_a_run(_used), adds=_add)
