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
    # The sum of 0.1 and 0.2 as a float would be 0.30000000000000004 in the PodGroup.
    total: dict[str, Fraction] = {}
    remaining = count
    for replica in replicas:
        number = min(remaining, replica.count)
        remaining -= number
        for name, amount in _of_pod(replica.template).items():
            total[name] = total.get(name, Fraction(0)) + number * amount
    return {name: _text(amount) for name, amount in sorted(total.items()) if amount}


def _of_pod(template: Mapping[str, Any]) -> dict[str, Fraction]:
    requested: dict[str, Fraction] = {}
    for container in template["spec"]["containers"]:
        resources = mapping(container.get("resources"))
        # As the API server fills in the requests of a pod.
        requests = {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}
        for name, quantity in requests.items():
            requested[str(name)] = requested.get(str(name), Fraction(0)) + (
                amount_of(quantity) or 0
            )
    return requested


def _text(amount: Fraction) -> str:
    """The quantity as a whole number, or in thousandths, rounded up."""
    if amount.denominator == 1:
        return str(amount.numerator)
    # A group that asks for less than its pods would be admitted and then not fit.
    return f"{-(-amount * 1000 // 1)}m"
