"""The weights of the trainers of a federation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeai.participants import weights

ANY = 2**53
NUMBERS = st.integers(min_value=0, max_value=ANY)
NAMES = st.sampled_from("abcdefgh")


@pytest.mark.parametrize(
    ("told", "counted", "expected"),
    [
        ({}, {}, {}),
        ({"a": 5, "b": 7}, {"a": 5, "b": 7}, {"a": 5, "b": 7}),
        ({"a": 5, "b": ANY}, {"a": 5, "b": 7}, {"a": 5, "b": 7}),
        ({"a": 5, "b": ANY}, {"a": 5}, {"a": 5, "b": 5}),
        ({"a": 5, "b": 3}, {"a": 5}, {"a": 5, "b": 3}),
        ({"b": ANY}, {"a": 5}, {"b": 5}),
        ({"a": 5, "b": ANY}, {}, {"a": 5, "b": 5}),
        ({"a": 5, "b": 9, "c": ANY}, {}, {"a": 5, "b": 9, "c": 9}),
        ({"a": 0, "b": 9, "c": ANY}, {}, {"a": 0, "b": 9, "c": 9}),
        ({"a": 5, "b": ANY}, {"a": 0}, {"a": 0, "b": 5}),
    ],
)
def test_a_weight_is_told_and_bounded(
    told: dict[str, int], counted: dict[str, int], expected: dict[str, int]
) -> None:
    assert weights(told, counted) == expected


@given(
    told=st.dictionaries(NAMES, NUMBERS, min_size=2),
    counted=st.dictionaries(NAMES, st.integers(0, 10_000)),
    liar=NAMES,
)
def test_without_a_count_no_number_outweighs_all_others(
    told: dict[str, int], counted: dict[str, int], liar: str
) -> None:
    """What a trainer tells beyond the largest count, or beyond all others, gives it nothing."""
    counted.pop(liar, None)
    honest = {name: number for name, number in told.items() if name != liar}
    most = max(*counted.values(), *honest.values(), 0, 0)
    weight = weights({**honest, liar: ANY}, counted)[liar]
    assert weight <= most or not any(honest.values())
