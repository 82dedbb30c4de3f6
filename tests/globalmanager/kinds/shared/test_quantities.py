"""Quantities, as the Kubernetes API writes them."""

from fractions import Fraction
from typing import Any

import pytest

from globalmanager.kinds.shared.objects import differences
from globalmanager.kinds.shared.quantities import amount_of

AMOUNTS = [
    ("2", 2),
    (2, 2),
    (0.5, Fraction(1, 2)),
    ("500m", Fraction(1, 2)),
    ("1.5", Fraction(3, 2)),
    ("1k", 1000),
    ("1Ki", 1024),
    ("2Gi", 2 * 1024**3),
    ("1e3", 1000),
    ("1E3", 1000),
    ("1E", 10**18),
    (".5", Fraction(1, 2)),
    (".", None),
    ("1e-3", Fraction(1, 1000)),
    ("", None),
    ("many", None),
    ("-1", None),
    (None, None),
    ([], None),
    ("9" * 5000, None),
]


@pytest.mark.parametrize(("quantity", "amount"), AMOUNTS)
def test_a_quantity_is_read_as_kubernetes_reads_it(quantity: Any, amount: Any) -> None:
    assert amount_of(quantity) == amount


def limits(**resources: Any) -> Any:
    container = {"name": "main", "image": "a", "resources": {"limits": resources}}
    return {"metadata": {}, "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("ours", "theirs", "is_same"),
    [
        ("1024Mi", "1Gi", True),
        ("1000m", "1", True),
        (0.5, "500m", True),
        ("1024Mi", "2Gi", False),
        ("many", "plenty", False),
        ("1Gi", None, False),
    ],
)
def test_a_quantity_in_another_notation_is_no_difference(
    ours: Any, theirs: Any, is_same: bool
) -> None:
    found = differences(limits(memory=ours), limits(memory=theirs))
    assert (not found) == is_same


def test_other_text_that_reads_like_a_quantity_is_compared_as_text() -> None:
    wanted = {"metadata": {}, "data": {"size": "1024Mi"}}
    assert differences(wanted, {"metadata": {}, "data": {"size": "1Gi"}}) == {"data.size": "1Gi"}
