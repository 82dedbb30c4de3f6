"""Deletion: grace, finalizers, preconditions, dependents, namespaces."""

import time
from typing import Any

import pytest

from edgeai.cli.api import Object
from tests.conformance.objects import bound_pod, configmap, pod, widget
from tests.conformance.space import Space
from tests.support.manifests import owned_by
from tests.support.waiting import eventually

# At once


@pytest.mark.parametrize(
    ("plural", "object_"), [("configmaps", configmap()), ("widgets", widget()), ("pods", pod())]
)
def test_what_nothing_holds_goes_at_once(space: Space, plural: str, object_: Object) -> None:
    space.create(plural, object_)
    assert space.delete(plural, "one").status == 200
    assert space.find(plural, "one") is None


@pytest.mark.parametrize(
    ("plural", "object_", "details"),
    [
        ("configmaps", configmap(), {"name": "one", "kind": "configmaps"}),
        (
            "widgets",
            widget(),
            {"name": "one", "group": "conformance.test", "kind": "widgets"},
        ),
    ],
)
def test_the_answer_names_what_is_gone(
    space: Space, plural: str, object_: Object, details: Object
) -> None:
    uid = space.create(plural, object_)["metadata"]["uid"]
    body = space.delete(plural, "one").ok()
    assert (body["kind"], body["status"]) == ("Status", "Success")
    assert body["details"] == {**details, "uid": uid}


def test_a_deleted_pod_is_shown_as_it_was(space: Space) -> None:
    uid = space.create("pods", pod())["metadata"]["uid"]
    body = space.delete("pods", "one").ok()
    assert (body["kind"], body["metadata"]["uid"]) == ("Pod", uid)


def test_what_is_not_there_is_not_found(space: Space) -> None:
    assert space.delete("configmaps", "one").refusal == (404, "NotFound")


def test_a_dry_run_of_a_deletion_keeps_all(space: Space) -> None:
    created = space.create("configmaps", configmap())
    space.delete("configmaps", "one", dryRun="All").ok()
    assert space.get("configmaps", "one") == created


def test_a_name_can_be_used_again_and_means_another_object(space: Space) -> None:
    first = space.create("configmaps", configmap())["metadata"]["uid"]
    space.delete("configmaps", "one").ok()
    assert space.create("configmaps", configmap())["metadata"]["uid"] != first


# Preconditions


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
def test_a_deletion_of_another_object_is_a_conflict(space: Space, precondition: str) -> None:
    created = space.create("configmaps", configmap())["metadata"]
    wrong = {"preconditions": {precondition: "1"}}
    assert space.delete("configmaps", "one", wrong).refusal == (409, "Conflict")
    assert space.find("configmaps", "one") is not None
    space.delete("configmaps", "one", {"preconditions": {precondition: created[precondition]}}).ok()
    assert space.find("configmaps", "one") is None


@pytest.mark.parametrize(
    "query", [{"propagationPolicy": "Sideways"}, {"dryRun": "Some"}], ids=["policy", "dry run"]
)
def test_wrong_options_are_refused(space: Space, query: dict[str, Any]) -> None:
    space.create("configmaps", configmap())
    assert space.delete("configmaps", "one", **query).refusal == (422, "Invalid")
    assert space.find("configmaps", "one") is not None


# Finalizers


def test_an_object_with_finalizers_waits_for_the_last_one(space: Space) -> None:
    space.create("configmaps", configmap(finalizers=["test/a", "test/b"]))
    marked = space.delete("configmaps", "one").ok()
    assert (marked["kind"], "deletionTimestamp" in marked["metadata"]) == ("ConfigMap", True)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    space.patch("configmaps", "one", {"metadata": {"finalizers": ["test/b"]}}).ok()
    assert space.find("configmaps", "one") is not None
    space.patch("configmaps", "one", {"metadata": {"finalizers": None}}).ok()
    assert space.find("configmaps", "one") is None


def test_no_finalizer_is_added_to_what_is_being_deleted(space: Space) -> None:
    space.create("configmaps", configmap(finalizers=["test/a"]))
    space.delete("configmaps", "one").ok()
    more = {"metadata": {"finalizers": ["test/a", "test/b"]}}
    answer = space.patch("configmaps", "one", more)
    assert answer.refusal == (422, "Invalid")
    assert answer.causes == {("metadata.finalizers", "FieldValueForbidden")}
    space.patch("configmaps", "one", {"metadata": {"finalizers": None}}).ok()


def test_what_is_being_deleted_stays_so(space: Space) -> None:
    space.create("configmaps", configmap(finalizers=["test/a"]))
    marked = space.delete("configmaps", "one").ok()["metadata"]
    space.patch("configmaps", "one", {"metadata": {"deletionTimestamp": None}})
    space.delete("configmaps", "one").ok()
    assert (
        space.get("configmaps", "one")["metadata"]["deletionTimestamp"]
        == (marked["deletionTimestamp"])
    )
    space.patch("configmaps", "one", {"metadata": {"finalizers": None}}).ok()


# The grace of pods


def test_a_pod_of_a_node_goes_when_its_kubelet_says_so(space: Space) -> None:
    space.create("pods", bound_pod(terminationGracePeriodSeconds=70))
    marked = space.delete("pods", "one").ok()["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 70
    assert marked["deletionTimestamp"] > time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    space.delete("pods", "one", {"gracePeriodSeconds": 600}).ok()  # longer: nothing changes
    assert space.get("pods", "one")["metadata"]["deletionGracePeriodSeconds"] == 70
    space.delete("pods", "one", gracePeriodSeconds=0).ok()
    assert space.find("pods", "one") is None


def test_a_shorter_grace_replaces_a_longer_one(space: Space) -> None:
    space.create("pods", bound_pod())
    assert space.delete("pods", "one").ok()["metadata"]["deletionGracePeriodSeconds"] == 30
    space.delete("pods", "one", gracePeriodSeconds=9).ok()
    assert space.get("pods", "one")["metadata"]["deletionGracePeriodSeconds"] == 9
    space.delete("pods", "one", gracePeriodSeconds=0).ok()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_goes_at_once(space: Space, phase: str) -> None:
    space.create("pods", bound_pod())
    space.patch("pods", "one", {"status": {"phase": phase}}, subresource="status").ok()
    space.delete("pods", "one").ok()
    assert space.find("pods", "one") is None


def test_a_negative_grace_is_accepted_and_holds_no_pod(space: Space) -> None:
    space.create("pods", bound_pod(terminationGracePeriodSeconds=-5))
    marked = space.delete("pods", "one").ok()["metadata"]
    assert marked["deletionGracePeriodSeconds"] <= 1
    if space.find("pods", "one"):  # Kubernetes before 1.22 does not even wait
        space.delete("pods", "one", gracePeriodSeconds=0).ok()
    assert space.find("pods", "one") is None


def test_a_grace_that_is_no_number_is_refused_by_its_name(space: Space) -> None:
    answer = space.post("pods", pod(terminationGracePeriodSeconds="soon"))
    assert answer.refusal == (400, "BadRequest")
    assert "terminationGracePeriodSeconds" in answer.body["message"].replace("T", "t")


def test_a_pod_can_have_finalizers_as_well(space: Space) -> None:
    made = bound_pod()
    made["metadata"]["finalizers"] = ["test/hold"]
    space.create("pods", made)
    space.delete("pods", "one", gracePeriodSeconds=0).ok()
    assert space.get("pods", "one")["metadata"]["deletionGracePeriodSeconds"] == 0
    space.patch("pods", "one", {"metadata": {"finalizers": None}}).ok()
    assert space.find("pods", "one") is None


# Owners


def child(name: str, *owners: Object, **metadata: Any) -> Object:
    block = metadata.pop("block", None)
    reference = {} if block is None else {"blockOwnerDeletion": block}
    return configmap(name, ownerReferences=owned_by(*owners, **reference), **metadata)


def test_dependents_go_after_their_owner(space: Space) -> None:
    owner = space.create("configmaps", configmap("owner"))
    dependent = space.create("configmaps", child("child", owner))
    space.create("configmaps", child("grandchild", dependent))
    space.delete("configmaps", "owner", propagationPolicy="Background").ok()
    assert space.find("configmaps", "owner") is None
    space.until_gone("configmaps", "child")
    space.until_gone("configmaps", "grandchild")


def test_background_is_what_happens_unasked(space: Space) -> None:
    owner = space.create("pods", pod("owner"))
    space.create("configmaps", child("child", owner))
    space.delete("pods", "owner").ok()
    space.until_gone("configmaps", "child")


def test_an_owner_deleted_in_the_foreground_waits_for_those_that_block_it(space: Space) -> None:
    owner = space.create("configmaps", configmap("owner"))
    space.create("configmaps", child("held", owner, block=True, finalizers=["test/hold"]))
    space.create("configmaps", child("free", owner, block=True))
    space.delete("configmaps", "owner", propagationPolicy="Foreground").ok()
    marked = space.get("configmaps", "owner")["metadata"]
    assert (marked["finalizers"], "deletionTimestamp" in marked) == (["foregroundDeletion"], True)
    space.until_gone("configmaps", "free")
    eventually(
        "the deletion of what is held",
        lambda: "deletionTimestamp" in space.get("configmaps", "held")["metadata"],
    )
    assert space.find("configmaps", "owner") is not None
    space.patch("configmaps", "held", {"metadata": {"finalizers": None}}).ok()
    space.until_gone("configmaps", "owner")


def test_an_owner_deleted_in_the_foreground_waits_for_no_other(space: Space) -> None:
    owner = space.create("configmaps", configmap("owner"))
    space.create("configmaps", child("held", owner, finalizers=["test/hold"]))
    space.delete("configmaps", "owner", {"propagationPolicy": "Foreground"}).ok()
    space.until_gone("configmaps", "owner")
    space.patch("configmaps", "held", {"metadata": {"finalizers": None}}).ok()
    space.until_gone("configmaps", "held")


def test_orphans_stay_without_a_reference(space: Space) -> None:
    owner = space.create("configmaps", configmap("owner"))
    space.create("configmaps", child("child", owner))
    space.delete("configmaps", "owner", propagationPolicy="Orphan").ok()
    space.until_gone("configmaps", "owner")
    assert not space.get("configmaps", "child")["metadata"].get("ownerReferences")


def test_an_object_stays_while_one_owner_is_left(space: Space) -> None:
    first, second = (space.create("configmaps", configmap(name)) for name in ("first", "second"))
    space.create("configmaps", child("child", first, second))
    space.delete("configmaps", "first").ok()

    def owners() -> list[str]:
        metadata = space.get("configmaps", "child")["metadata"]
        return [owner["name"] for owner in metadata["ownerReferences"]]

    eventually("one owner less", lambda: owners() == ["second"])


def test_an_object_whose_owner_was_gone_before_it_came_is_collected(space: Space) -> None:
    owner = space.create("configmaps", configmap("owner"))
    space.delete("configmaps", "owner").ok()
    again = space.create("configmaps", configmap("owner"))  # another uid
    space.create("configmaps", child("late", owner))
    space.until_gone("configmaps", "late")
    assert space.get("configmaps", "owner") == again


def test_a_dependent_that_comes_while_its_owner_waits_goes_with_the_rest(space: Space) -> None:
    owner = space.create("configmaps", configmap("owner"))
    space.create("configmaps", child("held", owner, block=True, finalizers=["test/hold"]))
    space.delete("configmaps", "owner", propagationPolicy="Foreground").ok()
    space.create("configmaps", child("late", owner, block=True))
    space.patch("configmaps", "held", {"metadata": {"finalizers": None}}).ok()
    space.until_gone("configmaps", "owner")
    space.until_gone("configmaps", "late")


def test_an_owner_in_another_namespace_counts_as_absent(space: Space) -> None:
    elsewhere = Space(space.client, "default")
    owner = elsewhere.create("configmaps", configmap(space.name))
    space.create("configmaps", child("child", owner))
    space.until_gone("configmaps", "child")
    elsewhere.delete("configmaps", space.name).ok()


OWNED: dict[str, Object] = {
    "pods": pod("child"),
    "services": {"metadata": {"name": "child"}, "spec": {"clusterIP": "None", "selector": {}}},
    "secrets": {"metadata": {"name": "child"}, "stringData": {"a": "b"}},
    "serviceaccounts": {"metadata": {"name": "child"}},
    "roles": {"metadata": {"name": "child"}, "rules": []},
    "rolebindings": {
        "metadata": {"name": "child"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "child"},
        "subjects": [{"kind": "ServiceAccount", "name": "child"}],
    },
}


@pytest.mark.parametrize("plural", OWNED)
def test_whatever_a_custom_resource_owns_goes_with_it(space: Space, plural: str) -> None:
    owner = space.create("widgets", widget())
    made = OWNED[plural]
    space.create(
        plural, {**made, "metadata": {**made["metadata"], "ownerReferences": owned_by(owner)}}
    )
    space.delete("widgets", "one").ok()
    space.until_gone(plural, "child")


def test_a_pod_of_a_node_gets_its_grace_when_its_owner_goes(space: Space) -> None:
    owner = space.create("configmaps", configmap("owner"))
    made = bound_pod("worker")
    made["metadata"]["ownerReferences"] = owned_by(owner)
    space.create("pods", made)
    space.delete("configmaps", "owner").ok()
    eventually(
        "its deletion", lambda: "deletionTimestamp" in space.get("pods", "worker")["metadata"]
    )
    assert space.get("pods", "worker")["metadata"]["deletionGracePeriodSeconds"] == 30
    space.delete("pods", "worker", gracePeriodSeconds=0).ok()


# Namespaces


def test_a_namespace_keeps_its_finalizer_when_it_is_updated(space: Space) -> None:
    path = f"/api/v1/namespaces/{space.name}"
    update = {"metadata": {"name": space.name, "labels": {"a": "b"}}}
    updated = space.client("PUT", path, update).ok()
    assert updated["metadata"]["labels"]["a"] == "b"
    assert updated["spec"] == {"finalizers": ["kubernetes"]}


def test_a_namespace_goes_with_all_that_it_holds(space: Space) -> None:
    space.create("widgets", widget())
    space.create("pods", pod())
    space.create("configmaps", configmap("held", finalizers=["test/hold"]))
    path = f"/api/v1/namespaces/{space.name}"
    assert space.client("GET", path).ok()["spec"] == {"finalizers": ["kubernetes"]}
    space.client("DELETE", path).ok()
    assert space.client("GET", path).ok()["status"]["phase"] == "Terminating"
    refused = space.post("configmaps", configmap("late"))
    assert refused.refusal == (403, "Forbidden")
    assert "because it is being terminated" in refused.body["message"]
    space.until_gone("widgets", "one")
    space.until_gone("pods", "one")
    assert space.client("GET", path).status == 200
    space.patch("configmaps", "held", {"metadata": {"finalizers": None}}).ok()
    eventually("the end of the namespace", lambda: space.client("GET", path).status == 404)
