"""A diff is the least merge patch that makes a status as desired."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeai.kube.patches import diff, merged

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]] = {
    "same": ({"a": 1}, {"a": 1}, None),
    "not named is left alone": ({"a": 1, "workers": {"w": 1}}, {"a": 1}, None),
    "changed": ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 3}),
    "added": ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    "removed": ({"a": 1}, {"a": None}, {"a": None}),
    "removed already": ({}, {"a": None}, None),
    "nested": ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
    "nested removal": ({"a": {"b": 1}}, {"a": {"b": None}}, {"a": {"b": None}}),
    "removal where nothing is": ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    "list as a whole": ({"l": [1, 2]}, {"l": [1, 3]}, {"l": [1, 3]}),
    "same list": ({"l": [{"x": 1}]}, {"l": [{"x": 1}]}, None),
    "map over number": ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
    "number over map": ({"a": {"b": 2}}, {"a": 1}, {"a": 1}),
    "empty map": ({}, {"a": {}}, {"a": {}}),
}


@pytest.mark.parametrize(("observed", "desired", "expected"), CASES.values(), ids=CASES)
def test_diff(
    observed: dict[str, Any], desired: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    assert diff(observed, desired) == expected


def oracle(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        else:
            result[field] = oracle(result.get(field), value)
    return result


leaves = st.integers(0, 3) | st.sampled_from(["", "x"]) | st.lists(st.integers(0, 3), max_size=2)
names = st.sampled_from("abc")
statuses = st.dictionaries(
    names, st.recursive(leaves, lambda inner: st.dictionaries(names, inner), max_leaves=6)
)
desires = st.dictionaries(
    names,
    st.recursive(st.none() | leaves, lambda inner: st.dictionaries(names, inner), max_leaves=6),
)


@given(statuses, desires)
def test_the_patch_does_what_the_desire_itself_would(
    observed: dict[str, Any], desired: dict[str, Any]
) -> None:
    assert oracle(observed, diff(observed, desired) or {}) == oracle(observed, desired)


@given(statuses, desires)
def test_nothing_is_left_to_do_afterwards(
    observed: dict[str, Any], desired: dict[str, Any]
) -> None:
    assert diff(oracle(observed, diff(observed, desired) or {}), desired) is None


# ---- the object after a patch ----


@given(statuses, desires)
def test_a_patch_is_applied_as_the_api_applies_it(
    observed: dict[str, Any], desired: dict[str, Any]
) -> None:
    assert merged(observed, desired) == oracle(observed, desired)


def test_what_a_patch_leaves_is_shared() -> None:
    status = {"workers": {"w": {"n": 1}, "v": {"n": 2}}}
    assert merged(status, {"workers": {"w": {"n": 3}}})["workers"]["v"] is status["workers"]["v"]
