"""What the pods of a gang request, as the scheduler of Kubernetes counts a pod.

Sources: KEP-753 for init containers and sidecars, KEP-2837 for `spec.resources` of a pod; the sum
over pods is that of the Kubeflow operator, pkg/controller.v1/common/util.go. A device of
`spec.resourceClaims` has no quantity, so no sum contains it. A device that a container requests by
the name of an extended resource counts as each other resource.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from edgeai.api.status import mapping, mappings
from globalmanager.kinds.shared.quantities import amount_of
from globalmanager.kinds.training.framework import Replicas

_OVERCOMMITTED: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"
# The sum of 0.1 and 0.2 as a float would be 0.30000000000000004 in the PodGroup.
_Amounts = dict[str, Fraction]


def requests_of(replicas: Iterable[Replicas], count: int) -> dict[str, str]:
    """The requests of the first `count` pods: resource -> quantity. A quantity that nobody can read
    counts as nothing, because the API server refuses a pod with such a quantity anyway.

    The pods count in the order of the replica types, so the leading types come first. A container
    without a request for a resource requests its limit.
    """
    total: _Amounts = {}
    remaining = count
    for replica in replicas:
        number = min(remaining, replica.count)
        remaining -= number
        of_pod = _of_pod(replica.template["spec"])
        total = _sum(total, {name: number * amount for name, amount in of_pod.items()})
    return {name: _text(amount) for name, amount in sorted(total.items()) if amount}


def _of_pod(spec: Mapping[str, Any]) -> _Amounts:
    requested = _of_containers(spec)
    resources = mapping(spec.get("resources"))
    # As the API server fills in the requests of the pod: a limit counts for what no container
    # requests, and for huge pages, which a node never gives twice.
    overcommitted = {name: requested[name] for name in _OVERCOMMITTED if name in requested}
    limits, requests = (_amounts(resources.get(field)) for field in ("limits", "requests"))
    of_pod = limits | overcommitted | requests
    requested |= {name: amount for name, amount in of_pod.items() if _is_of_pods(name)}
    return _sum(requested, _amounts(spec.get("overhead")))


def _of_containers(spec: Mapping[str, Any]) -> _Amounts:
    """What the containers need together, or an init container beside the sidecars before it."""
    sidecars: _Amounts = {}
    needs: list[_Amounts] = []
    for container in mappings(spec.get("initContainers")):
        need = _sum(sidecars, _of_container(container))
        needs.append(need)
        if container.get("restartPolicy") == "Always":
            sidecars = need
    needs.append(_sum(sidecars, *map(_of_container, mappings(spec.get("containers")))))
    names = {name for need in needs for name in need}
    return {name: max(need.get(name, Fraction(0)) for need in needs) for name in names}


def _of_container(container: Mapping[str, Any]) -> _Amounts:
    resources = mapping(container.get("resources"))
    # As the API server fills in the requests of a container.
    return {**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))}


def _is_of_pods(name: str) -> bool:
    """Whether `spec.resources` of a pod may name the resource."""
    return name in _OVERCOMMITTED or name.startswith(_HUGE_PAGES)


def _amounts(quantities: Any) -> _Amounts:
    return {
        str(name): amount_of(quantity) or Fraction(0)
        for name, quantity in mapping(quantities).items()
    }


def _sum(*parts: _Amounts) -> _Amounts:
    total: _Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _text(amount: Fraction) -> str:
    """The quantity as a whole number, or in thousandths, rounded up."""
    if amount.denominator == 1:
        return str(amount.numerator)
    # A group that asks for less than its pods would be admitted and then not fit.
    return f"{-(-amount * 1000 // 1)}m"
