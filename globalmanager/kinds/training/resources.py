"""The resources that the pods of a training job request, summed up for a PodGroup.

Pure and total: a quantity that nobody can read counts as nothing, because the API server refuses a
pod with such a quantity anyway. Source of the sum: kubeflow/training-operator 1.9,
pkg/controller.v1/common/util.go.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from edgeai.api.status import mapping
from globalmanager.kinds.shared.quantities import amount_of
from globalmanager.kinds.training.framework import Replicas


def least(replicas: Iterable[Replicas], count: int) -> dict[str, str]:
    """The requests of the first `count` pods: resource -> quantity.

    The pods count in the order of the replica types, so the leading types come first. A container
    without a request for a resource requests its limit.
    """
    total: dict[str, Fraction] = {}
    left = count
    for each in replicas:
        number = min(left, each.count)
        left -= number
        for name, amount in _of_pod(each.template).items():
            total[name] = total.get(name, Fraction(0)) + number * amount
    return {name: _text(amount) for name, amount in sorted(total.items()) if amount}


def _of_pod(template: Mapping[str, Any]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for container in template["spec"]["containers"]:
        resources = mapping(container.get("resources"))
        requests = {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}
        for name, quantity in requests.items():
            found[str(name)] = found.get(str(name), Fraction(0)) + (amount_of(quantity) or 0)
    return found


def _text(amount: Fraction) -> str:
    """The quantity as a whole number, or in thousandths, rounded up."""
    if amount.denominator == 1:
        return str(amount.numerator)
    return f"{-(-amount * 1000 // 1)}m"
