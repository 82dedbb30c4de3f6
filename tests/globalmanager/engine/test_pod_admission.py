"""Pods that the Pod Security Standard of the namespace forbids are refused, by field."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from edgeai.api.resources import DEPLOYMENTS, NAMESPACES, PODS, Object, ObjectRef, ResourceType
from globalmanager.contract import Create, Replace
from globalmanager.engine.events import EVENTS
from globalmanager.engine.pod_admission import NamespaceUnknown, PodAdmission, PodForbidden
from globalmanager.engine.pod_security import ENFORCE, Level
from globalmanager.engine.settings import EngineSettings
from globalmanager.kinds import KINDS
from globalmanager.kinds.edge import jointinferenceservice, model
from globalmanager.kinds.training import pytorchjob, tfjob
from tests.globalmanager.cluster import CRDS, FAST, LocalApi, User, run_manager
from tests.globalmanager.engine.stores import Stores
from tests.globalmanager.gadgets import crd_of
from tests.globalmanager.kinds.edge.samples import (
    counted,
    federated_job,
    incremental_job,
    incremental_learning_spec,
    joint_inference_spec,
    proposal_service,
    small_service,
    worker_spec,
)
from tests.globalmanager.kinds.elastic.world import EXAMPLE, ElasticWorld
from tests.globalmanager.kinds.training.samples import pytorch_spec, template, tf_spec
from tests.support.waiting import async_eventually
from tests.support.world import World, from_yaml, job

PRIVILEGED: Final = {"securityContext": {"privileged": True}}
FIELD: Final = "spec.containers[0].securityContext.privileged must not be true"


def admission(level: str | None, default: Level = Level.PRIVILEGED) -> PodAdmission:
    stores = Stores()
    labels = {} if level is None else {ENFORCE: level}
    stores.put(NAMESPACES, {"metadata": {"name": "default", "labels": labels}})
    return PodAdmission(stores, default)


def refusals(world: World, by: PodAdmission) -> list[str]:
    """The messages about the children that the first plans write."""
    for _ in range(5):
        found = []
        observed = world.observed()
        plan = world.plan()
        for action in plan.actions:
            if isinstance(action, Create | Replace):
                try:
                    by.check(observed, action)
                except PodForbidden as error:
                    found.append(str(error))
        if found:
            return found
        world.apply(plan)
        if isinstance(world, ElasticWorld):
            ready = {"type": "Ready", "status": "True"}  # the launcher comes after its workers
            world.pods_become("Running", conditions=[ready])
    return []


def privileged(container: str = "main") -> Object:
    one = {"name": container, "image": "registry.test/x:1", **PRIVILEGED}
    return {"spec": {"containers": [one]}}


def edge_service() -> World:
    edge = {**worker_spec("small", nodeName="edge0"), "template": privileged()}
    world = small_service(joint_inference_spec(edge=edge))
    return world.model("small", "s3://a/m.onnx").model("big", "s3://a/m.onnx")


def cloud_service() -> World:
    world = small_service(joint_inference_spec(cloud={"template": privileged()}))
    return world.model("small", "s3://a/m.onnx").model("big", "s3://a/m.onnx")


def federated() -> World:
    world = federated_job(
        trainingWorkers=[
            {"dataset": {"name": "data0"}, "template": template("main")},
            {"dataset": {"name": "data1"}, "template": privileged()},
        ]
    )
    return world.model("small", "s3://a/model.npz")


def incremental(part: str) -> World:
    form = {**incremental_learning_spec()[part], "template": privileged()}
    form["template"]["spec"]["nodeName"] = "edge0"
    # Directories of the node are forbidden, too.
    fields: dict[str, Any] = {"outputDir": "s3://a/out", part: form}
    world = incremental_job(**fields)
    world.model("initial", "s3://a/base").model("deployed", "s3://a/m.pb", format="pb")
    return counted(world.dataset("data", "edge0", "s3://a/train.txt"), data=10)


def tf_job() -> World:
    spec = tf_spec(Worker=1, PS=1)
    spec["tfReplicaSpecs"]["PS"]["template"] = privileged("tensorflow")
    return World(tfjob.KIND, job("mnist", spec))


def pytorch_job() -> World:
    spec = pytorch_spec(1)
    spec["pytorchReplicaSpecs"]["Worker"]["template"] = privileged("pytorch")
    return World(pytorchjob.KIND, job("mnist", spec))


def elastic(role: str) -> World:
    made = from_yaml(EXAMPLE)
    made["spec"]["etReplicaSpecs"][role]["template"] = privileged()
    return ElasticWorld(made)


WORLDS: list[tuple[str, Callable[[], World], str]] = [
    ("JointInferenceService edge", edge_service, "spec.edgeWorker.template"),
    ("JointInferenceService cloud", cloud_service, "spec.cloudWorker.template"),
    ("FederatedLearningJob", federated, "spec.trainingWorkers[1].template"),
    ("IncrementalLearningJob train", lambda: incremental("trainSpec"), "spec.trainSpec.template"),
    ("IncrementalLearningJob", lambda: incremental("deploySpec"), "spec.deploySpec.template"),
    ("TFJob", tf_job, "spec.tfReplicaSpecs.PS.template"),
    ("PyTorchJob", pytorch_job, "spec.pytorchReplicaSpecs.Worker.template"),
    ("TrainingJob launcher", lambda: elastic("launcher"), "spec.etReplicaSpecs.launcher.template"),
    ("TrainingJob worker", lambda: elastic("worker"), "spec.etReplicaSpecs.worker.template"),
]


def test_every_kind_with_pods_is_in_the_table() -> None:
    with_pods = {kind.definition.name for kind in KINDS if {PODS, DEPLOYMENTS} & kind.owns.keys()}
    assert with_pods == {name.partition(" ")[0] for name, _, _ in WORLDS}


@pytest.mark.parametrize(
    ("world", "path"), [row[1:] for row in WORLDS], ids=[row[0] for row in WORLDS]
)
def test_a_privileged_container_is_refused_by_the_field_of_the_job(
    world: Callable[[], World], path: str
) -> None:
    told = refusals(world(), admission("baseline"))
    assert told, "not refused"
    start = "the Pod Security Standard baseline of namespace default forbids: "
    assert all(text.startswith(start) and f"{path}.{FIELD}" in text for text in told), told
    assert refusals(world(), admission("privileged")) == []


@pytest.mark.parametrize("world", [row[1] for row in WORLDS], ids=[row[0] for row in WORLDS])
def test_nothing_is_made_for_a_job_with_a_forbidden_template(world: Callable[[], World]) -> None:
    made, by = world(), admission("baseline")
    for _ in range(3):
        observed, plan = made.observed(), made.plan()
        creates = [action for action in plan.actions if isinstance(action, Create)]
        for action in creates:
            with pytest.raises(PodForbidden):
                by.check(observed, action)
        if creates:
            return
        made.apply(plan)
    raise AssertionError("the plans make nothing")


def test_a_template_that_an_edit_makes_forbidden_holds_up_no_other_child() -> None:
    world = elastic("worker").settle()
    plan = world.gone("Service", "elastic-training-worker-0").plan()
    for action in plan.actions:
        assert isinstance(action, Create)
        admission("baseline").check(world.observed(), action)


def test_a_model_on_the_node_is_refused_and_the_message_says_where_the_field_comes_from() -> None:
    (told, *_) = refusals(small_service(), admission("baseline"))
    assert "Deployment digits-deployment-cloud: spec.volumes[0].hostPath must not mount" in told
    assert "use an s3 or http URL" in told


def test_the_strictest_level_allows_models_from_a_bucket() -> None:
    """The template says all that it must say; edgeai's init container says the rest itself."""
    container = {
        "name": "main",
        "image": "registry.test/x:1",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    given = {"template": {"spec": {"containers": [container], "securityContext": pod}}}
    world = small_service(joint_inference_spec(edge=given, cloud=given))
    world.model("small", "s3://a/m.onnx").model("big", "https://a.test/m.onnx")
    assert refusals(world, admission("restricted")) == []


def test_a_worker_spec_is_judged_as_the_pod_that_it_becomes() -> None:
    told = refusals(proposal_service(), admission("restricted"))
    assert any("allowPrivilegeEscalation must be false" in text for text in told)


@pytest.mark.parametrize("default", list(Level))
def test_a_namespace_without_label_has_the_configured_default(default: Level) -> None:
    told = refusals(edge_service(), admission(None, default))
    assert bool(told) == (default is not Level.PRIVILEGED)


def test_a_namespace_that_is_not_known_yet_gets_no_pods() -> None:
    unknown = PodAdmission(Stores(), Level.PRIVILEGED)
    with pytest.raises(NamespaceUnknown):
        refusals(edge_service(), unknown)


def test_a_message_names_a_few_fields_and_how_many_more_there_are() -> None:
    (told, *_) = refusals(tf_job(), admission("restricted"))
    assert "; and 5 more; correct the template" in told
    assert told.count("must be") + told.count("must have") + told.count("must not") == 4


# ---- in the engine ------------------------------------------------------------------------------

JOBS: Final = jointinferenceservice.KIND.definition.resources[0]
MODELS: Final = model.KIND.definition.resources[0]
DEFAULT: Final = ObjectRef(NAMESPACES, "", "default")


async def label(user: User, level: str | None) -> None:
    await user.client.merge_patch(DEFAULT, {"metadata": {"labels": {ENFORCE: level}}})


async def condition(user: User) -> Object:
    found = await user.get(JOBS, "digits") or {}
    listed = (found.get("status") or {}).get("conditions") or []
    return next((one for one in listed if one["type"] == "Running"), {})


async def names(user: User, type_: ResourceType) -> list[str]:
    return [each["metadata"]["name"] for each in (await user.client.list(type_)).items]


async def create_service(user: User) -> None:
    for type_ in (JOBS, MODELS):
        await user.create(CRDS, crd_of(type_))
    for name in ("small", "big"):
        url = {"url": "s3://a/m.onnx"}
        await user.create(MODELS, {"metadata": {"name": name, "namespace": "default"}, "spec": url})
    edge = {**worker_spec("small"), "template": privileged()}
    spec = {**joint_inference_spec(), "edgeWorker": edge}
    await user.create(JOBS, {"metadata": {"name": "digits", "namespace": "default"}, "spec": spec})


ENGINE: Final[dict[str, Any]] = {
    "kinds": [jointinferenceservice.KIND, model.KIND],
    "settings": EngineSettings(informer=FAST, reconcilers=4),
}


async def test_the_condition_names_the_field_and_another_label_lets_the_pod_through(
    cluster: LocalApi, user: User
) -> None:
    await label(user, "baseline")
    await create_service(user)
    async with run_manager(cluster.kubeconfig, **ENGINE):

        async def is_told() -> bool:
            told = await condition(user)
            assert told.get("reason") == "ViolatesBaseline", told
            assert f"spec.edgeWorker.template.{FIELD}" in told["message"]
            return True

        await async_eventually("the condition", is_told)
        assert await names(user, DEPLOYMENTS) == []
        await label(user, "privileged")

        async def is_made() -> bool:
            return "digits-deployment-edge" in await names(user, DEPLOYMENTS)

        await async_eventually("the Deployment of the edge worker", is_made)


async def test_pods_that_run_stay_and_the_job_is_told_of_a_stricter_label(
    cluster: LocalApi, user: User
) -> None:
    await create_service(user)
    async with run_manager(cluster.kubeconfig, **ENGINE):

        async def are_made() -> bool:
            return len(await names(user, DEPLOYMENTS)) == 2

        await async_eventually("both Deployments", are_made)
        await label(user, "baseline")

        async def is_told() -> bool:
            events = (await user.client.list(EVENTS)).items
            told = [one["message"] for one in events if one["reason"] == "ViolatesBaseline"]
            assert told, [one["reason"] for one in events]
            assert f"spec.edgeWorker.template.{FIELD}" in told[0]
            assert "The pods that run are left as they are" in told[0]
            return True

        await async_eventually("an Event about the job", is_told)
        assert len(await names(user, DEPLOYMENTS)) == 2


async def test_the_setting_is_the_level_of_namespaces_without_label(
    cluster: LocalApi, user: User
) -> None:
    await create_service(user)
    settings = msgspec.structs.replace(ENGINE["settings"], pod_security_default=Level.RESTRICTED)
    async with run_manager(cluster.kubeconfig, kinds=ENGINE["kinds"], settings=settings):

        async def is_told() -> bool:
            return (await condition(user)).get("reason") == "ViolatesRestricted"

        await async_eventually("the condition", is_told)
        assert await names(user, DEPLOYMENTS) == []
