"""Workers at the edge have no volume of a ServiceAccount's token: a node that boots without the
cloud cannot fill it, so a pod with it does not start.
"""

from typing import Any

import pytest

from edgeai.api.objects import SPEC_HASH
from edgeai.api.resources import DEPLOYMENTS, PODS, Object
from globalmanager.kinds.training import pytorchjob, tfjob
from tests.globalmanager.kinds.edge.federatedlearningjob.test_upgrade import earlier_release
from tests.globalmanager.kinds.edge.samples import (
    federated_job,
    joint_inference_spec,
    small_service,
    worker_spec,
)
from tests.globalmanager.kinds.training.samples import pytorch_spec, started, template, tf_spec
from tests.support.world import World, copied

FIELD = "automountServiceAccountToken"
EDGE_LABEL = "node-role.kubernetes.io/edge"
EDGE_DEPLOYMENT, CLOUD_DEPLOYMENT = "digits-deployment-edge", "digits-deployment-cloud"


def of_deployment(world: World, name: str) -> Object:
    spec: Object = world.child("Deployment", name)["spec"]["template"]["spec"]
    return spec


def of_pod(world: World, name: str) -> Object:
    spec: Object = world.child("Pod", name)["spec"]
    return spec


def service_with(**spec: Any) -> World:
    """A service whose edge worker's template has these fields."""
    form = worker_spec("small", nodeName="edge0")
    form["template"]["spec"] |= spec
    return small_service(joint_inference_spec(edge=form))


def test_an_edge_worker_has_no_token_and_a_cloud_worker_keeps_its_own() -> None:
    world = small_service().settle()
    assert of_deployment(world, EDGE_DEPLOYMENT)[FIELD] is False
    assert FIELD not in of_deployment(world, CLOUD_DEPLOYMENT)


def test_an_edge_worker_on_a_node_of_kubernetes_choice_has_no_token_either() -> None:
    world = small_service(joint_inference_spec(edge={"nodeName": ""})).settle()
    assert of_deployment(world, EDGE_DEPLOYMENT)[FIELD] is False


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({FIELD: True}, True),
        ({FIELD: False}, False),
        ({FIELD: None}, False),
        ({"serviceAccountName": "reader"}, None),
        ({"serviceAccount": "reader"}, None),
        ({"serviceAccountName": ""}, False),
        ({"serviceAccountName": "reader", FIELD: False}, False),
    ],
)
def test_what_the_template_says_of_its_account_counts(
    given: dict[str, Any], expected: bool | None
) -> None:
    world = service_with(**given).settle()
    assert of_deployment(world, EDGE_DEPLOYMENT).get(FIELD) is expected


def test_trainers_of_a_federation_have_no_token_and_its_aggregator_keeps_its_own() -> None:
    world = federated_job().settle()
    assert of_pod(world, "digits-train-0")[FIELD] is False
    assert of_pod(world, "digits-train-1")[FIELD] is False
    assert FIELD not in of_pod(world, "digits-aggregation")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ({"nodeName": "edge0"}, False),
        ({"nodeSelector": {EDGE_LABEL: ""}}, False),
        ({"tolerations": [{"key": EDGE_LABEL, "operator": "Exists"}]}, False),
        ({}, None),
        ({"nodeSelector": {"gpu": "yes"}}, None),
        ({"nodeName": "edge0", "serviceAccountName": "reader"}, None),
        ({"nodeName": "edge0", FIELD: True}, True),
    ],
)
def test_a_training_replica_on_an_edge_node_has_no_token(
    place: dict[str, Any], expected: bool | None
) -> None:
    spec = pytorch_spec(1)
    spec["pytorchReplicaSpecs"]["Worker"]["template"] = template(**place)
    world = started(pytorchjob.KIND, spec)
    assert of_pod(world, "mnist-worker-0").get(FIELD) is expected
    assert FIELD not in of_pod(world, "mnist-master-0")


def test_a_tfjobs_replica_on_an_edge_node_has_no_token() -> None:
    spec = tf_spec(Worker=1)
    spec["tfReplicaSpecs"]["Worker"]["template"] = template("tensorflow", nodeName="edge0")
    assert of_pod(started(tfjob.KIND, spec), "mnist-worker-0")[FIELD] is False


# ---- workers of an earlier release --------------------------------------------------------------


HASHES = {
    "digits-deployment-edge": "2f1e2114fe99caef",
    "digits-deployment-cloud": "cd219d9e41400bae",
    "digits-aggregation": "46ff4d369900b6f0",
    "digits-train-0": "7d2e8679535cc12e",
    "digits-train-1": "6bf01559adfb1fa6",
}
"""Of the workers, as the last release wrote them that left the token to Kubernetes."""


def as_of_the_release_before(world: World) -> World:
    """The children as a GlobalManager made them that left the token to Kubernetes."""
    for ref, child in world.children.items():
        older = copied(child)
        if ref.type in (DEPLOYMENTS, PODS):
            older["metadata"]["annotations"][SPEC_HASH] = HASHES[ref.name]
        spec = older["spec"]["template"]["spec"] if ref.type == DEPLOYMENTS else older.get("spec")
        (spec or {}).pop(FIELD, None)
        world.children[ref] = older
    return world


@pytest.mark.parametrize("make", [small_service, earlier_release])
def test_an_upgrade_restarts_no_worker_for_its_token(make: Any) -> None:
    world = as_of_the_release_before(make().settle())
    assert world.plan().actions == ()


def test_a_worker_of_an_earlier_release_loses_its_token_with_the_next_change() -> None:
    world = as_of_the_release_before(small_service().settle())
    changed = joint_inference_spec(edge={**worker_spec("large", nodeName="edge0")})
    world.model("large").change(changed).settle()
    assert of_deployment(world, EDGE_DEPLOYMENT)[FIELD] is False


def test_a_token_that_somebody_else_adds_is_taken_away() -> None:
    world = small_service().settle()
    for ref, child in world.children.items():
        if ref.name == EDGE_DEPLOYMENT:
            child["spec"]["template"]["spec"][FIELD] = True
    assert of_deployment(world.settle(), EDGE_DEPLOYMENT)[FIELD] is False
