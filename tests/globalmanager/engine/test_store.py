"""The cache: newest state wins, indices follow, deletions and rewrites do not come back."""

from hypothesis import given
from hypothesis import strategies as st

from globalmanager.engine.store import Store, controller_key
from globalmanager.model import Object, ObjectRef
from tests.globalmanager.engine.objects import GADGETS, make

Change = tuple[str | None, str | None]
A = ObjectRef(GADGETS, "ns", "a")


def version_of(object_: Object | None) -> str | None:
    return None if object_ is None else object_["metadata"]["resourceVersion"]


class Watched:
    """A store and the changes that it told."""

    def __init__(self) -> None:
        self.store = Store(GADGETS)
        self.changes: list[Change] = []
        self.store.subscribe(
            lambda old, new: self.changes.append((version_of(old), version_of(new)))
        )

    @property
    def version(self) -> str | None:
        return version_of(self.store.get(A))


def test_a_newer_state_replaces_an_older_one() -> None:
    watched = Watched()
    watched.store.upsert(make("a", version=9))
    watched.store.upsert(make("a", version=10))
    assert watched.changes == [(None, "9"), ("9", "10")]


def test_an_older_or_equal_state_changes_nothing() -> None:
    watched = Watched()
    for version in (10, 9, 10):
        watched.store.upsert(make("a", version=version))
    assert watched.changes == [(None, "10")]


def test_versions_that_are_no_numbers_are_newer_when_they_differ() -> None:
    watched = Watched()
    for version in ("x", "x", "y"):
        watched.store.upsert(make("a", version=version))
    assert watched.changes == [(None, "x"), ("x", "y")]


def test_the_answer_to_a_write_is_seen_at_once() -> None:
    watched = Watched()
    watched.store.observe_write(make("a", version=3))
    watched.store.upsert(make("a", version=3))  # the watch tells it too
    assert watched.changes == [(None, "3")]


def test_the_answer_to_a_write_after_the_deletion_does_not_bring_the_object_back() -> None:
    watched = Watched()
    watched.store.upsert(make("a", version=3))
    watched.store.remove(make("a", version=5))
    watched.store.observe_write(make("a", version=4))
    assert watched.version is None


def test_the_deletion_of_a_predecessor_spares_the_successor() -> None:
    watched = Watched()
    watched.store.observe_write(make("a", version=7, uid="new"))
    watched.store.remove(make("a", version=5, uid="old"))
    assert watched.version == "7"


def test_a_list_deletes_what_it_no_longer_has() -> None:
    watched = Watched()
    for name in "ab":
        watched.store.upsert(make(name, version=1))
    watched.store.replace([make("b", version=2)], "5", rewound=False)
    assert [object_["metadata"]["name"] for object_ in watched.store.list()] == ["b"]
    assert ("1", None) in watched.changes


def test_a_list_spares_what_was_written_after_it_was_made() -> None:
    watched = Watched()
    watched.store.observe_write(make("a", version=8))
    watched.store.replace([], "5", rewound=False)
    assert watched.version == "8"


def test_a_list_tells_only_what_changed() -> None:
    watched = Watched()
    watched.store.upsert(make("a", version=1))
    watched.changes.clear()
    watched.store.replace([make("a", version=1)], "5", rewound=False)
    assert watched.changes == []


def test_a_server_that_went_back_in_time_is_believed() -> None:
    watched = Watched()
    watched.store.upsert(make("a", version=90))
    watched.store.upsert(make("b", version=91))
    watched.store.replace([make("a", version=3, spec="restored")], "5", rewound=True)
    assert watched.version == "3"
    assert len(watched.store) == 1


def test_managed_fields_are_not_kept() -> None:
    store = Store(GADGETS)
    store.upsert(make("a", metadata={"managedFields": [{"manager": "kubectl"}]}))
    [kept] = store.list()
    assert "managedFields" not in kept["metadata"]


def test_a_failing_listener_does_not_stop_the_others() -> None:
    store, told = Store(GADGETS), []

    def fail(_old: Object | None, _new: Object | None) -> None:
        raise RuntimeError("bug")

    store.subscribe(fail)
    store.subscribe(lambda _old, new: told.append(new))
    store.upsert(make("a"))
    assert len(told) == 1
    assert len(store) == 1


def test_metadata_alone_is_kept_where_nothing_else_is_read() -> None:
    store = Store(GADGETS, metadata_only=True)
    store.upsert(make("a", spec={"template": {}}, status={"replicas": 1}))
    [kept] = store.list()
    assert kept.keys() == {"metadata"}


def names(found: tuple[Object, ...]) -> list[str]:
    return [object_["metadata"]["name"] for object_ in found]


def test_objects_are_found_by_uid() -> None:
    store = Store(GADGETS)
    store.upsert(make("a"))
    assert names(store.find("uid", "uid-a")) == ["a"]
    assert names(store.find("uid", "a")) == []


def test_objects_are_found_by_their_controller_within_one_namespace() -> None:
    store = Store(GADGETS)
    owner = {"uid": "boss", "controller": True}
    store.upsert(make("b", metadata={"ownerReferences": [{"uid": "other"}, owner]}))
    store.upsert(make("c", namespace="mallory", metadata={"ownerReferences": [owner]}))
    store.upsert(make("a", metadata={"labels": {"edgeai.io/uid": "boss"}}))
    assert names(store.find("controller", controller_key("ns", "boss"))) == ["b"]
    assert names(store.find("controller", controller_key("mallory", "boss"))) == ["c"]
    assert names(store.find("controller", controller_key("ns", "other"))) == []


def test_a_namespace_is_listed_by_name() -> None:
    store = Store(GADGETS)
    for name, namespace in (("b", "x"), ("a", "x"), ("a", "y")):
        store.upsert(make(name, namespace=namespace))
    assert [o["metadata"]["name"] for o in store.list("x")] == ["a", "b"]
    assert len(store.list()) == 3


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "drop", "list"]),
        st.sampled_from("ab"),
        st.sampled_from(["u", "v", None]),
    ),
    max_size=30,
)


@given(STEPS)
def test_an_index_always_equals_a_search(steps: list[tuple[str, str, str | None]]) -> None:
    store = Store(GADGETS)
    for number, (step, name, uid) in enumerate(steps, start=1):
        owners = [] if uid is None else [{"uid": uid, "controller": True}]
        object_ = make(name, version=number, metadata={"ownerReferences": owners})
        if step == "put":
            store.upsert(object_)
        elif step == "drop":
            store.remove(object_)
        else:
            store.replace([object_], str(number), rewound=False)
        for key in "uv":
            owner = [{"uid": key, "controller": True}]
            expected = [o for o in store.list() if o["metadata"]["ownerReferences"] == owner]
            assert list(store.find("controller", controller_key("ns", key))) == expected
