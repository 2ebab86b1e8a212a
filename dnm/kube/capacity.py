"""The reading of Kueue's CapacityProviders (v1alpha1, in Kueue 0.20 and later)."""

from __future__ import annotations

import msgspec

from dnm.model.capacity import CONTROLLER, LEDGER_CONDITION, SYNCHRONIZED
from dnm.model.kueue import FLAVOR, Cohort, FlavorQuota, ResourceGroup
from dnm.model.printable import printable
from dnm.model.quantity import kube_resources


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resource_version: str = ""


class _Flavor(msgspec.Struct, frozen=True):
    name: str
    resources: dict[str, str | int] = {}


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    controller_name: str = ""
    orchestrated_flavors: list[_Flavor] = []  # without resources


class _Capacity(msgspec.Struct, frozen=True):
    flavors: list[_Flavor] = []


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    status: str = ""
    message: str = ""
    last_transition_time: str = ""


class _Status(msgspec.Struct, frozen=True):
    capacity: _Capacity = _Capacity()
    conditions: list[_Condition] = []


class Provider(msgspec.Struct, frozen=True):
    """The JSON of a CapacityProvider."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def as_value(self) -> Cohort:
        """Returns its quota of lent nodes as that of a Cohort."""
        state = {item.type: item for item in self.status.conditions if item.status == "True"}
        synchronized = state.get(SYNCHRONIZED)
        texts = {
            name: str(text)
            for flavor in self.status.capacity.flavors
            for name, text in flavor.resources.items()
            if synchronized and flavor.name == FLAVOR
        }
        amounts = kube_resources(texts)
        quota = FlavorQuota(name=FLAVOR, nominal=amounts, lending=dict.fromkeys(amounts, 0))
        return Cohort(
            name=f"CapacityProvider {self.metadata.name}",
            version=self.metadata.resource_version,
            groups=(ResourceGroup(resources=tuple(amounts), flavors=(quota,)),),
            ledger=state[LEDGER_CONDITION].message if LEDGER_CONDITION in state else "",
            writer=self._find_fault(),
            since=synchronized.last_transition_time if synchronized else "",
        )

    def _find_fault(self) -> str:
        if self.spec.controller_name != CONTROLLER:
            name = printable(self.spec.controller_name, 80)
            return f"its controllerName is {name}, not {CONTROLLER}"
        is_listed = any(flavor.name == FLAVOR for flavor in self.spec.orchestrated_flavors)
        return "" if is_listed else f"its orchestratedFlavors do not list {FLAVOR}"
