"""Deployments and the pods that they keep; none of these runs, so all stay pending."""

import pytest

from edgeai.cli.api import Object
from tests.conformance.objects import deployment
from tests.conformance.space import Space
from tests.support.waiting import eventually

HASH = "pod-template-hash"


def live_pods(space: Space) -> list[Object]:
    """Those that are not being deleted."""
    return [pod for pod in space.list("pods") if "deletionTimestamp" not in pod["metadata"]]


def until_count(space: Space, count: int) -> list[Object]:
    def found() -> list[Object] | None:
        pods = live_pods(space)
        return pods if len(pods) == count else None

    if count == 0:
        eventually("no pod", lambda: not live_pods(space))
        return []
    return eventually(f"{count} pods", found)


def uids(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def owner_uids(object_: Object) -> list[str]:
    return [owner["uid"] for owner in object_["metadata"].get("ownerReferences") or []]


def test_a_deployment_makes_the_pods_that_it_wants(space: Space) -> None:
    space.create("deployments", deployment(2))
    for pod in until_count(space, 2):
        metadata = pod["metadata"]
        assert metadata["name"].startswith("web-")
        assert metadata["labels"]["app"] == "web"
        assert metadata["labels"][HASH]
        assert pod["spec"]["containers"][0]["image"] == "registry.test/main:1"


def test_what_the_template_says_of_metadata_is_in_the_pods(space: Space) -> None:
    made = deployment(1)
    made["spec"]["template"]["metadata"]["annotations"] = {"note": "x"}
    space.create("deployments", made)
    (pod,) = until_count(space, 1)
    assert pod["metadata"]["annotations"]["note"] == "x"


def test_the_owners_of_a_pod_lead_to_its_deployment_by_uid(space: Space) -> None:
    """By way of a ReplicaSet in Kubernetes, and directly on the local cluster."""
    uid = space.create("deployments", deployment(1))["metadata"]["uid"]
    (pod,) = until_count(space, 1)
    (reference,) = pod["metadata"]["ownerReferences"]
    assert (reference["controller"], reference["blockOwnerDeletion"]) == (True, True)
    if reference["kind"] == "ReplicaSet":
        path = f"/apis/apps/v1/namespaces/{space.name}/replicasets/{reference['name']}"
        (reference,) = space.client("GET", path).ok()["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"], reference["uid"]) == ("Deployment", "web", uid)


def test_a_deleted_pod_is_replaced(space: Space) -> None:
    space.create("deployments", deployment(2))
    gone, kept = until_count(space, 2)
    space.delete("pods", gone["metadata"]["name"]).ok()
    eventually("its end", lambda: gone["metadata"]["uid"] not in uids(live_pods(space)))
    pods = until_count(space, 2)
    assert kept["metadata"]["uid"] in uids(pods)


@pytest.mark.parametrize("replicas", [0, 1, 4])
def test_a_deployment_is_scaled(space: Space, replicas: int) -> None:
    space.create("deployments", deployment(2))
    before = uids(until_count(space, 2))
    space.patch("deployments", "web", {"spec": {"replicas": replicas}}, subresource="scale").ok()
    after = uids(until_count(space, replicas))
    assert len(before & after) == min(2, replicas)


def test_another_template_makes_other_pods(space: Space) -> None:
    space.create("deployments", deployment(2, strategy={"type": "Recreate"}))
    before = until_count(space, 2)
    patch = {"spec": {"template": {"metadata": {"annotations": {"changed": "yes"}}}}}
    space.patch("deployments", "web", patch).ok()

    def is_rolled() -> bool:
        pods = live_pods(space)
        return len(pods) == 2 and not uids(pods) & uids(before)

    eventually("the new pods", is_rolled)
    hashes = {pod["metadata"]["labels"][HASH] for pod in live_pods(space)}
    assert len(hashes) == 1
    assert hashes != {before[0]["metadata"]["labels"][HASH]}


def test_a_roll_keeps_what_is_old_until_the_new_serves(space: Space) -> None:
    """Also when the old did not serve either."""
    space.create("deployments", deployment(2))
    before = uids(until_count(space, 2))
    patch = {"spec": {"template": {"metadata": {"annotations": {"changed": "yes"}}}}}
    space.patch("deployments", "web", patch).ok()

    def is_counted() -> bool:
        status = space.get("deployments", "web")["status"]
        counted = (status.get("replicas"), status.get("updatedReplicas"))
        return bool(counted == (3, 1) and status["observedGeneration"] == 2)

    eventually("one of the new", is_counted)
    assert before < uids(live_pods(space))


def test_a_change_beside_the_template_keeps_the_pods(space: Space) -> None:
    space.create("deployments", deployment(1))
    before = until_count(space, 1)
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"minReadySeconds": 1}}
    space.patch("deployments", "web", patch).ok()
    eventually("that it was seen", lambda: observed(space) == 2)
    assert uids(live_pods(space)) == uids(before)


def test_a_paused_deployment_rolls_nothing_out(space: Space) -> None:
    space.create("deployments", deployment(1))
    before = until_count(space, 1)
    template = {"metadata": {"annotations": {"changed": "yes"}}}
    space.patch("deployments", "web", {"spec": {"paused": True, "template": template}}).ok()
    eventually("that it was seen", lambda: observed(space) == 2)
    assert uids(live_pods(space)) == uids(before)


def observed(space: Space) -> int:
    status = space.get("deployments", "web").get("status") or {}
    return int(status.get("observedGeneration", 0))


def test_a_deployment_tells_what_it_has(space: Space) -> None:
    space.create("deployments", deployment(2))

    def counted() -> Object | None:
        status: Object = space.get("deployments", "web").get("status") or {}
        return status if status.get("replicas") == 2 else None

    status = eventually("two replicas", counted)
    # Newer versions write some zeros, too.
    counts = {n: count for n, count in status.items() if n.endswith("Replicas") and count}
    assert counts == {"updatedReplicas": 2, "unavailableReplicas": 2}
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions["Available"] == "False"


def test_pods_go_with_their_deployment(space: Space) -> None:
    space.create("deployments", deployment(2))
    until_count(space, 2)
    space.delete("deployments", "web").ok()
    until_count(space, 0)


def test_an_orphaned_deployment_leaves_its_pods_to_the_next_of_that_name(space: Space) -> None:
    space.create("deployments", deployment(2))
    before = uids(until_count(space, 2))
    space.delete("deployments", "web", propagationPolicy="Orphan").ok()
    space.until_gone("deployments", "web")
    assert uids(live_pods(space)) == before
    space.create("deployments", deployment(2))
    eventually("that it was seen", lambda: observed(space) == 1)
    assert uids(until_count(space, 2)) == before


# Whose a pod is


@pytest.mark.parametrize("label", ["app", HASH])
def test_a_pod_that_is_labelled_otherwise_is_released_and_replaced(
    space: Space, label: str
) -> None:
    space.create("deployments", deployment(1))
    (pod,) = until_count(space, 1)
    name = pod["metadata"]["name"]
    space.patch("pods", name, {"metadata": {"labels": {label: None}}}).ok()
    released, replacement = sorted(
        until_count(space, 2), key=lambda each: bool(each["metadata"]["name"] != name)
    )
    eventually("its release", lambda: not owner_uids(space.get("pods", name)))
    assert released["metadata"]["uid"] == pod["metadata"]["uid"]
    assert owner_uids(replacement) == owner_uids(pod)


def test_a_released_pod_outlives_the_deployment(space: Space) -> None:
    space.create("deployments", deployment(1))
    (pod,) = until_count(space, 1)
    name = pod["metadata"]["name"]
    space.patch("pods", name, {"metadata": {"labels": {"app": "aside"}}}).ok()
    eventually("its release", lambda: not owner_uids(space.get("pods", name)))
    until_count(space, 2)
    space.delete("deployments", "web").ok()
    (left,) = until_count(space, 1)
    assert left["metadata"]["uid"] == pod["metadata"]["uid"]


def test_a_pod_that_fits_again_is_adopted_and_one_too_many(space: Space) -> None:
    space.create("deployments", deployment(1))
    (pod,) = until_count(space, 1)
    name = pod["metadata"]["name"]
    space.patch("pods", name, {"metadata": {"labels": {"app": "aside"}}}).ok()
    until_count(space, 2)
    space.patch("pods", name, {"metadata": {"labels": {"app": "web"}}}).ok()
    (left,) = until_count(space, 1)
    assert owner_uids(left) == owner_uids(pod)


# The scale


def test_scale_shows_and_sets_replicas(space: Space) -> None:
    space.create("deployments", deployment(0))
    path = space.path("deployments", "web", "scale")
    scale = space.client("GET", path).ok()
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"].get("replicas", 0), scale["status"]["selector"]) == (0, "app=web")
    changed = space.client("PUT", path, wanted(scale, replicas=1)).ok()
    assert changed["spec"] == {"replicas": 1}
    assert space.get("deployments", "web")["spec"]["replicas"] == 1


def wanted(scale: Object, *, replicas: int) -> Object:
    """Whatever the version: the controller writes the status meanwhile."""
    place = {name: scale["metadata"][name] for name in ("name", "namespace")}
    return {**scale, "metadata": place, "spec": {"replicas": replicas}}


def test_scale_refuses_less_than_nothing(space: Space) -> None:
    space.create("deployments", deployment(0))
    path = space.path("deployments", "web", "scale")
    scale = space.client("GET", path).ok()
    answer = space.client("PUT", path, wanted(scale, replicas=-1))
    assert answer.refusal == (422, "Invalid")
    assert answer.causes == {("spec.replicas", "FieldValueInvalid")}
