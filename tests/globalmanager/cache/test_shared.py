"""Equal values of cached objects are in memory once, and the objects stay equal."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from globalmanager.cache.shared import SharedValues
from globalmanager.cache.store import Store
from tests.globalmanager.objects import GADGETS, make

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def decoded(**fields: Any) -> dict[str, Any]:
    """An object with strings of its own, as each answer has."""
    return json.loads(json.dumps(fields))  # type: ignore[no-any-return]


@given(st.dictionaries(st.text(), VALUES))
def test_an_object_stays_equal(object_: dict[str, Any]) -> None:
    before = decoded(**object_)
    SharedValues().share(object_)
    assert object_ == before


def test_equal_texts_are_one_wherever_they_stand() -> None:
    shared = SharedValues()
    first = decoded(spec={"nodes": ["node-1", {"name": "node-1"}]})
    second = decoded(status="node-1")
    shared.share(first)
    shared.share(second)
    assert first["spec"]["nodes"][0] is second["status"]
    assert first["spec"]["nodes"][1]["name"] is second["status"]


def test_equal_lists_are_one_and_values_of_other_types_are_not() -> None:
    shared = SharedValues()
    owners = [{"kind": "TFJob", "controller": True}]
    one, other, different = (
        decoded(owners=owners),
        decoded(owners=owners),
        decoded(owners=[{"kind": "TFJob", "controller": 1}]),
    )
    for object_ in (one, other, different):
        shared.share(object_)
    assert one["owners"] is other["owners"]
    assert different["owners"][0]["controller"] is not True


def test_objects_of_one_store_share_texts() -> None:
    store = Store(GADGETS)
    for name in ("a", "b"):
        store.upsert(make(name, status=decoded(image="registry.test/train:1")))
    one, other = store.list()
    assert one["status"]["image"] is other["status"]["image"]


def test_a_spec_that_stays_is_not_walked_again() -> None:
    store = Store(GADGETS)
    store.upsert(make("a", version=1, spec={"image": "registry.test/train:1"}))
    store._shared = SharedValues()
    store.upsert(make("a", version=2, spec={"image": "registry.test/train:1"}))
    assert len(store._shared) > 0
    assert "registry.test/train:1" not in store._shared._texts


def test_what_is_remembered_is_bounded() -> None:
    """Else one tenant's values would fill the memory of all."""
    shared = SharedValues()
    shared.share(decoded(spec=["x" * 2000]))
    assert len(shared) == 0
    for number in range(20_000):
        shared.share(decoded(spec=[str(number)]))
        assert len(shared) <= 8192 + 2048
