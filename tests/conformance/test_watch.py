"""Watches: order, versions, bookmarks, selectors, ends."""

import pytest

from tests.conformance.clusters import AnyCluster
from tests.conformance.objects import UNSERVED_NODE, bound_pod, pod, widget
from tests.conformance.space import Space
from tests.support.waiting import eventually

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
SENDS_NO_INITIAL_EVENTS = (30, 31, 33)
"""Minor versions of Kubernetes that refuse sendInitialEvents by default."""
TOO_OLD = "1"


def test_a_watch_tells_changes_in_order(space: Space) -> None:
    version = space.version("widgets")
    with space.watch("widgets", resourceVersion=version) as watch:
        space.create("widgets", widget("a"))
        space.create("widgets", widget("b"))
        space.patch("widgets", "a", {"spec": {"size": 4}}).ok()
        space.delete("widgets", "a").ok()
        assert watch.take(4) == [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("MODIFIED", "a"),
            ("DELETED", "a"),
        ]


def test_a_watch_without_version_begins_with_what_exists(space: Space) -> None:
    for name in "ab":
        space.create("widgets", widget(name))
    with space.watch("widgets") as watch:
        assert sorted(watch.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        space.create("widgets", widget("c"))
        assert watch.take(1) == [("ADDED", "c")]


def test_a_watch_from_version_0_begins_with_what_exists(space: Space) -> None:
    created = space.create("widgets", widget())
    eventually("the watch cache", lambda: space.list("widgets", resourceVersion="0"))
    with space.watch("widgets", resourceVersion="0") as watch:
        event = watch.read()
    assert (event["type"], event["object"]) == ("ADDED", created)


@pytest.mark.parametrize("seen", range(4))
def test_a_watch_resumes_after_any_version(space: Space, seen: int) -> None:
    versions = [space.version("widgets")]
    versions.append(space.create("widgets", widget("a"))["metadata"]["resourceVersion"])
    patched = space.patch("widgets", "a", {"spec": {"size": 4}}).ok()
    versions.append(patched["metadata"]["resourceVersion"])
    with space.watch("widgets", resourceVersion=versions[-1]) as watch:
        space.delete("widgets", "a").ok()
        versions.append(watch.read()["object"]["metadata"]["resourceVersion"])
    space.create("widgets", widget("end"))
    everything = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "end")]
    with space.watch("widgets", resourceVersion=versions[seen]) as watch:
        assert watch.take(4 - seen) == everything[seen:]


def test_a_deletion_shows_the_last_state_under_a_version_of_its_own(space: Space) -> None:
    created = space.create("widgets", widget())
    version = created["metadata"]["resourceVersion"]
    with space.watch("widgets", resourceVersion=version) as watch:
        space.delete("widgets", "one").ok()
        event = watch.read()
    assert (event["type"], event["object"]["spec"]) == ("DELETED", created["spec"])
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(version)


def test_a_write_that_changes_nothing_is_no_event(space: Space) -> None:
    created = space.create("widgets", widget())
    version = created["metadata"]["resourceVersion"]
    with space.watch("widgets", resourceVersion=version) as watch:
        space.put("widgets", created).ok()
        space.create("widgets", widget("two"))
        assert watch.take(1) == [("ADDED", "two")]


def test_objects_enter_and_leave_what_a_selector_matches(space: Space) -> None:
    version = space.version("widgets")
    query = {"labelSelector": "color=red", "resourceVersion": version}
    with space.watch("widgets", **query) as watch:
        space.create("widgets", widget())
        for size, color in enumerate(("red", "red", "green", "green"), start=4):
            change = {"metadata": {"labels": {"color": color}}, "spec": {"size": size}}
            space.patch("widgets", "one", change).ok()
        red = widget("other")
        red["metadata"]["labels"] = {"color": "red"}
        space.create("widgets", red)
        assert watch.take(4) == [
            ("ADDED", "one"),
            ("MODIFIED", "one"),
            ("DELETED", "one"),
            ("ADDED", "other"),
        ]


def test_the_pods_of_one_node_can_be_watched(space: Space) -> None:
    query = {"fieldSelector": f"spec.nodeName={UNSERVED_NODE}"}
    with space.watch("pods", resourceVersion=space.version("pods"), **query) as watch:
        space.create("pods", pod("a"))
        space.create("pods", bound_pod("b"))
        assert watch.take(1) == [("ADDED", "b")]


def test_one_object_can_be_watched_by_its_name(space: Space) -> None:
    for name in "ab":
        space.create("widgets", widget(name))
    with space.watch("widgets", fieldSelector="metadata.name=b") as watch:
        assert watch.take(1) == [("ADDED", "b")]
        space.patch("widgets", "a", {"spec": {"size": 4}}).ok()
        space.patch("widgets", "b", {"spec": {"size": 4}}).ok()
        assert watch.take(1) == [("MODIFIED", "b")]


def test_a_watch_of_a_namespace_sees_no_other(space: Space) -> None:
    version = space.version("widgets")
    elsewhere = Space(space.client, "default")
    elsewhere.create("widgets", widget(space.name))
    elsewhere.delete("widgets", space.name).ok()
    with space.watch("widgets", resourceVersion=version) as watch:
        space.create("widgets", widget())
        assert watch.take(1) == [("ADDED", "one")]


def test_a_watch_of_all_namespaces_sees_each(space: Space) -> None:
    version = space.version("widgets")
    path = "/apis/conformance.test/v1alpha1/widgets"
    with space.client.watch(path, resourceVersion=version) as watch:
        space.create("widgets", widget())
        # The namespaces of earlier tests end meanwhile, with their widgets.
        while (event := watch.read())["object"]["metadata"]["namespace"] != space.name:
            assert event["type"] == "DELETED"
    assert event["type"] == "ADDED"


def test_a_bookmark_says_where_to_resume(cluster: AnyCluster, space: Space) -> None:
    """Kubernetes promises no number of bookmarks."""
    version = space.version("widgets")
    created = space.create("widgets", widget())["metadata"]["resourceVersion"]
    # Kubernetes sends one two seconds before the end, so none if the watch starts later than that.
    for timeout_s in ("3", "10", "30"):
        query = {"allowWatchBookmarks": "true", "timeoutSeconds": timeout_s}
        with space.watch("widgets", resourceVersion=version, **query) as watch:
            assert watch.take(1) == [("ADDED", "one")]
            if bookmarks := list(watch.rest()):
                break
    if not bookmarks and cluster.minor_version in SENDS_NO_INITIAL_EVENTS:
        pytest.skip(f"Kubernetes 1.{cluster.minor_version} sent no bookmark")
    shapes = {(bookmark["type"], bookmark["object"]["kind"]) for bookmark in bookmarks}
    assert shapes == {("BOOKMARK", "Widget")}
    bookmark = bookmarks[-1]
    resumed = bookmark["object"]["metadata"]["resourceVersion"]
    assert int(resumed) >= int(created)
    space.create("widgets", widget("two"))
    with space.watch("widgets", resourceVersion=resumed) as watch:
        assert watch.take(1) == [("ADDED", "two")]


def test_a_watch_ends_at_its_timeout_without_bookmarks_for_who_does_not_ask(space: Space) -> None:
    query = {"resourceVersion": space.version("widgets"), "timeoutSeconds": "3"}
    space.create("widgets", widget())
    with space.watch("widgets", **query) as watch:
        assert watch.read()["type"] == "ADDED"
        with pytest.raises(AssertionError, match="has ended"):
            watch.read()


def test_a_version_that_is_too_old_is_told_to_list_again(space: Space) -> None:
    """The error is an event of the stream, since clients expect it there."""
    with space.watch("widgets", resourceVersion=TOO_OLD) as watch:
        assert watch.status == 200
        event = watch.read()
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


def test_a_version_that_is_no_number_is_refused(space: Space) -> None:
    with space.watch("widgets", resourceVersion="latest") as watch:
        assert watch.status >= 400


def test_a_watched_table_names_its_columns_once(space: Space) -> None:
    with space.watch("widgets", accept=TABLE) as watch:
        space.create("widgets", widget("a"))
        first = watch.read()
        space.create("widgets", widget("b"))
        second = watch.read()
    counts = [len(event["object"].get("columnDefinitions") or []) for event in (first, second)]
    assert counts == [3, 0]
    assert second["object"]["rows"][0]["cells"][:2] == ["b", 3]


def test_initial_events_end_with_a_marked_bookmark(cluster: AnyCluster, space: Space) -> None:
    if cluster.minor_version in SENDS_NO_INITIAL_EVENTS:
        pytest.skip(f"Kubernetes 1.{cluster.minor_version} has no sendInitialEvents")
    space.create("widgets", widget("a"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with space.watch("widgets", **query) as watch:
        added, mark = watch.read(), watch.read()
    assert added["type"] == "ADDED"
    # Kubernetes 1.32 adds an annotation for its own clients.
    annotation = mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"]
    assert (mark["type"], annotation) == ("BOOKMARK", "true")
