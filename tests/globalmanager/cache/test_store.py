"""The store keeps the newest state, its indices agree, and deleted objects do not come back."""

from hypothesis import given
from hypothesis import strategies as st

from edgeai.api.resources import Object, ObjectRef
from globalmanager.cache.store import Store, controller_key
from tests.globalmanager.objects import GADGETS, make
from tests.support.clock import Clock

Change = tuple[str | None, str | None]
A = ObjectRef(GADGETS, "ns", "a")


def version_of(object_: Object | None) -> str | None:
    return None if object_ is None else object_["metadata"]["resourceVersion"]


class Watched:
    """A store and the changes that it reported."""

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


def test_states_with_an_equal_spec_share_it() -> None:
    """What is decoded from a spec refers to its parts, so a second copy would stay in memory."""
    watched = Watched()
    first = make("a", version=1, spec={"replicas": [1]})
    watched.store.upsert(first)
    watched.store.upsert(make("a", version=2, spec={"replicas": [1]}, status={"phase": "Running"}))
    kept = watched.store.get(A)
    assert kept is not None
    assert kept["spec"] is first["spec"]
    assert (version_of(kept), kept["status"]) == ("2", {"phase": "Running"})
    watched.store.upsert(make("a", version=3, spec={"replicas": [2]}))
    kept = watched.store.get(A)
    assert kept is not None
    assert kept["spec"] == {"replicas": [2]}


def test_versions_that_are_no_numbers_are_newer_when_they_differ() -> None:
    watched = Watched()
    for version in ("x", "x", "y"):
        watched.store.upsert(make("a", version=version))
    assert watched.changes == [(None, "x"), ("x", "y")]


def test_the_answer_to_a_write_is_seen_at_once() -> None:
    watched = Watched()
    watched.store.observe(make("a", version=3))
    watched.store.upsert(make("a", version=3))  # the watch delivers the same state
    assert watched.changes == [(None, "3")]


def test_the_answer_to_a_write_after_the_deletion_does_not_bring_the_object_back() -> None:
    watched = Watched()
    watched.store.upsert(make("a", version=3))
    watched.store.remove(make("a", version=5))
    watched.store.observe(make("a", version=4))
    assert watched.version is None


def test_an_object_that_an_answer_says_is_gone_is_gone_at_once() -> None:
    watched = Watched()
    watched.store.upsert(make("a", version=3))
    watched.store.observe_gone(A, "uid-a")
    assert watched.changes == [(None, "3"), ("3", None)]


def test_late_events_do_not_bring_a_gone_object_back() -> None:
    watched = Watched()
    watched.store.observe_gone(A, "uid-a")
    watched.store.upsert(make("a", version=3))
    watched.store.observe(make("a", version=4))
    watched.store.remove(make("a", version=5))
    watched.store.observe(make("a", version=4))
    assert watched.changes == []


def test_the_absence_of_an_older_object_leaves_the_new_object_of_that_name() -> None:
    watched = Watched()
    watched.store.upsert(make("a", version=7, uid="new"))
    watched.store.observe_gone(A, "old")
    assert watched.version == "7"


def test_an_answer_with_another_uid_means_that_the_older_object_is_gone() -> None:
    watched = Watched()
    watched.store.upsert(make("a", version=3, uid="old"))
    watched.store.observe(make("a", version=7, uid="new"))
    watched.store.observe(make("a", version=4, uid="old"))  # a late answer
    watched.store.upsert(make("a", version=5, uid="old"))
    watched.store.remove(make("a", version=6, uid="old"))
    assert watched.changes == [(None, "3"), ("3", None), (None, "7")]


def test_a_list_that_was_requested_before_an_absence_does_not_bring_the_object_back() -> None:
    watched = Watched()
    asked = watched.store.absences
    watched.store.observe_gone(A, "uid-a")
    watched.store.replace([make("a", version=3)], "4", absences=asked, rewound=False)
    assert watched.version is None


def test_a_list_that_was_requested_after_an_absence_brings_the_object_back() -> None:
    """The cluster was restored from a backup, so the object exists again."""
    watched = Watched()
    watched.store.upsert(make("a", version=3))
    watched.store.observe_gone(A, "uid-a")
    asked = watched.store.absences
    watched.store.replace([make("a", version=3)], "9", absences=asked, rewound=False)
    watched.store.upsert(make("a", version=10))
    watched.store.observe(make("a", version=11))
    assert watched.version == "11"


def test_a_list_clears_the_tombstones_of_earlier_absences() -> None:
    store = Store(GADGETS)
    for number in range(100):
        store.observe_gone(A, f"uid-{number}")
    store.replace([], "9", absences=60, rewound=False)
    assert len(store._absence_by_uid) == 40
    store.replace([], "9", absences=100, rewound=False)
    assert len(store._absence_by_uid) == 0


def test_a_watched_deletion_clears_its_tombstone_and_all_tombstones_are_bounded() -> None:
    store = Store(GADGETS)
    for number in range(20_000):
        store.observe_gone(A, f"uid-{number}")
    assert len(store._absence_by_uid) == 16_384
    for number in range(20_000):
        store.remove(make("a", uid=f"uid-{number}"))
    assert len(store._absence_by_uid) == 0
    assert len(store._deleted) == 4096


def test_tombstones_of_deletions_are_kept_for_a_minute() -> None:
    clock = Clock()
    store = Store(GADGETS, clock=clock)
    for number in range(600):  # one in a second
        clock.now_s = float(number)
        store.remove(make("a", version=number, uid=f"uid-{number}"))
    assert 60 <= len(store._deleted) <= 62
    store.observe(make("a", version=1000, uid="uid-590"))
    assert len(store) == 0, "an answer brought a deleted object back"


def test_an_object_that_gets_its_label_back_returns_to_the_store() -> None:
    """A watch with a label selector reports a removed label as a deletion."""
    watched = Watched()
    watched.store.upsert(make("a", version=3))
    watched.store.remove(make("a", version=4))
    watched.store.upsert(make("a", version=5))
    watched.store.observe(make("a", version=6))
    assert watched.version == "6"


def test_an_answer_about_an_object_without_the_label_is_not_kept() -> None:
    store = Store(GADGETS, label="mine=yes")
    store.observe(make("a", version=3))
    store.observe(make("b", version=3, metadata={"labels": {"mine": "yes"}}))
    assert [object_["metadata"]["name"] for object_ in store.list()] == ["b"]


def test_the_deletion_of_an_older_object_leaves_the_new_object_of_that_name() -> None:
    watched = Watched()
    watched.store.observe(make("a", version=7, uid="new"))
    watched.store.remove(make("a", version=5, uid="old"))
    assert watched.version == "7"


def test_a_list_deletes_the_objects_that_it_lacks() -> None:
    watched = Watched()
    for name in "ab":
        watched.store.upsert(make(name, version=1))
    watched.store.replace([make("b", version=2)], "5", absences=0, rewound=False)
    assert [object_["metadata"]["name"] for object_ in watched.store.list()] == ["b"]
    assert ("1", None) in watched.changes


def test_a_list_leaves_objects_that_were_written_later() -> None:
    watched = Watched()
    watched.store.observe(make("a", version=8))
    watched.store.replace([], "5", absences=0, rewound=False)
    assert watched.version == "8"


def test_a_list_reports_only_changes() -> None:
    watched = Watched()
    watched.store.upsert(make("a", version=1))
    watched.changes.clear()
    watched.store.replace([make("a", version=1)], "5", absences=0, rewound=False)
    assert watched.changes == []


def test_a_list_of_a_restored_server_replaces_newer_states() -> None:
    watched = Watched()
    watched.store.upsert(make("a", version=90))
    watched.store.upsert(make("b", version=91))
    watched.store.replace([make("a", version=3, spec="restored")], "5", absences=0, rewound=True)
    assert watched.version == "3"
    assert len(watched.store) == 1


def test_a_failing_listener_does_not_stop_the_others() -> None:
    store, told = Store(GADGETS), []

    def fail(_old: Object | None, _new: Object | None) -> None:
        raise RuntimeError("bug")

    store.subscribe(fail)
    store.subscribe(lambda _old, new: told.append(new))
    store.upsert(make("a"))
    assert len(told) == 1
    assert len(store) == 1


def test_a_metadata_only_store_keeps_only_metadata() -> None:
    store = Store(GADGETS, part_of=lambda object_: {"metadata": object_["metadata"]})
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
            store.replace([object_], str(number), absences=0, rewound=False)
        for key in "uv":
            owner = [{"uid": key, "controller": True}]
            expected = [o for o in store.list() if o["metadata"]["ownerReferences"] == owner]
            assert list(store.find("controller", controller_key("ns", key))) == expected
