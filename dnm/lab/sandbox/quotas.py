"""ResourceQuotas: their use, and the refusal of pods beyond them.

Source: kubernetes v1.34, plugin/pkg/admission/resourcequota and pkg/quota/v1/evaluator/core. Only
limits on the number of pods and on their requests are implemented, without scopes."""

from __future__ import annotations

from dnm.lab.sandbox.deletion import FINISHED
from dnm.lab.sandbox.pod_reading import canonical_amount, request_of, yunikorn_units
from dnm.lab.sandbox.store import ApiError, Object, Objects

_NAMES = {"cpu": "vcore", "count/pods": "pods"}  # in YuniKorn
_OF_PODS = ("vcore", "memory", "pods")


class Quotas:
    """The quota admission of the API server, and the controller that reports the use."""

    def __init__(self, store: Objects) -> None:
        self.store = store

    def admit(self, pod: Object) -> None:
        """Raises 403 if the pod exceeds a quota of its namespace."""
        meta, request = pod["metadata"], request_of(pod)
        for quota in self.store.objects("resourcequotas", meta["namespace"]):
            hard, used = _limits(quota), self._used(quota)
            more = {key: request.get(_name(key), 0) for key in hard}
            over = [key for key in sorted(hard) if more[key] and used[key] + more[key] > hard[key]]
            if over:
                requested, before, limited = (
                    ",".join(f"{key}={_text(quota, key, amounts[key])}" for key in over)
                    for amounts in (more, used, hard)
                )
                name = meta.get("name") or meta["generateName"]
                raise ApiError(
                    403,
                    f'pods "{name}" is forbidden: exceeded quota: {quota["metadata"]["name"]}, '
                    f"requested: {requested}, used: {before}, limited: {limited}",
                )

    def step(self) -> None:
        """Reports limits and use in the status of each quota."""
        for quota in list(self.store.objects("resourcequotas")):
            used = {key: _text(quota, key, amount) for key, amount in self._used(quota).items()}
            status = {"hard": quota["spec"].get("hard") or {}, "used": used}
            meta = dict(quota["metadata"])
            self.store.update("resourcequotas", {**quota, "metadata": meta, "status": status})

    def _used(self, quota: Object) -> dict[str, int]:
        hard = _limits(quota)
        pods = self.store.objects("pods", quota["metadata"]["namespace"]) if hard else ()
        requests = [request_of(pod) for pod in pods if pod["status"].get("phase") not in FINISHED]
        return {key: sum(request.get(_name(key), 0) for request in requests) for key in hard}


def _limits(quota: Object) -> dict[str, int]:
    """Returns a quota's limits on what pods request, in YuniKorn's units: cpu in thousandths."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    keys = [key for key in hard if key.startswith("requests.") or _name(key) in _OF_PODS]
    units = {key: yunikorn_units({key.removeprefix("requests."): hard[key]}) for key in keys}
    return {key: sum(amounts.values()) for key, amounts in units.items()}


def _name(key: str) -> str:
    """Returns YuniKorn's name of the resource that this key of a quota limits."""
    name = key.removeprefix("requests.")
    return _NAMES.get(name, name)


def _text(quota: Object, key: str, amount: int) -> str:
    """Returns an amount as text in binary or decimal units, like the limit of the quota."""
    if _name(key) == "vcore":
        return canonical_amount(f"{amount}m")
    is_binary = quota["spec"]["hard"][key].endswith("i") and amount % 1024 == 0
    return canonical_amount(f"{amount // 1024}Ki" if is_binary else str(amount))
