"""FederatedLearningJob: which objects are created, and when."""

import json
from datetime import datetime
from typing import Any

import pytest

from edgeai.api.resources import Object
from edgeai.participants import participant_secret
from globalmanager.contract import Action, Adopt, Delete, Patch, PatchStatus
from globalmanager.kinds.edge.federatedlearningjob import KIND
from globalmanager.kinds.edge.federatedlearningjob.plan import REPLACED_AFTER_S
from tests.globalmanager.kinds.edge.samples import (
    counted,
    federated_job,
    federated_learning_spec,
    secrets_of,
    sedna_federated_job,
    value_of,
)
from tests.support.world import NOW, World, at, job

POD_NAMES = ["digits-aggregation", "digits-train-0", "digits-train-1"]


def pod_names(world: World) -> list[str]:
    return [name.removeprefix("Pod/") for name in world.names() if name.startswith("Pod/")]


def pod_spec(world: World, name: str) -> Object:
    spec: Object = world.child("Pod", name)["spec"]
    return spec


def env(world: World, name: str) -> dict[str, str]:
    (container,) = pod_spec(world, name)["containers"]
    return {item["name"]: value_of(item) for item in container["env"]}


def planned_actions(world: World, now: datetime = NOW) -> list[str]:
    """The actions of the next plan, for example "Create digits-train-0"."""
    return [f"{type(action).__name__} {object_name(action)}" for action in world.plan(now).actions]


def object_name(action: Action) -> str:
    if isinstance(action, Delete | PatchStatus | Adopt | Patch):
        return action.ref.name
    name: str = action.object["metadata"]["name"]
    return name


# ---- created objects ----------------------------------------------------------------------------


def test_sednas_sample_becomes_a_service_and_three_pods() -> None:
    world = sedna_federated_job().settle()
    assert world.names() == [
        "Pod/surface-defect-detection-aggregation",
        "Pod/surface-defect-detection-train-0",
        "Pod/surface-defect-detection-train-1",
        "Secret/surface-defect-detection-aggregation",
        "Secret/surface-defect-detection-train-0",
        "Secret/surface-defect-detection-train-1",
        "Service/surface-defect-detection-aggregation",
    ]
    assert pod_spec(world, "surface-defect-detection-train-1")["nodeName"] == "edge2"
    restarts = {pod_spec(world, name)["restartPolicy"] for name in pod_names(world)}
    assert restarts == {"OnFailure"}
    service = world.child("Service", "surface-defect-detection-aggregation")
    assert [port["port"] for port in service["spec"]["ports"]] == [7363]


def test_the_environment_of_sednas_aggregator() -> None:
    given = env(sedna_federated_job().settle(), "surface-defect-detection-aggregation")
    assert given.pop("JOB_SECRET") == "JOB_SECRET of Secret surface-defect-detection-aggregation"
    assert given == {
        "NAMESPACE": "default",
        "JOB_NAME": "surface-defect-detection",
        "WORKER_NAME": "surface-defect-detection-aggregation",
        "PARTICIPANTS_COUNT": "2",
        "TRANSMITTER": "ws",
        "AGG_BIND_IP": "status.podIP",
        "AGG_BIND_PORT": "7363",
        "MODEL_URL": "/home/data/model/latest.h5",
        "DATA_PATH_PREFIX": "/home/data",
        "FEDERATION_STATE_DIR": "/home/data/model/.edgeai-uid-1",
        "FEDERATION_PARTICIPANTS": "/etc/edgeai-federation/participants.json",
        "exit_round": "3",
    }


def test_a_model_may_be_a_directory_of_the_root() -> None:
    """Sedna's examples name a directory; the aggregator keeps the rounds in it."""
    world = federated_job().model("small", "/model").settle()
    given = env(world, "digits-aggregation")
    assert given["MODEL_URL"] == "/home/data/model"
    assert given["FEDERATION_STATE_DIR"] == "/home/data/model/.edgeai-uid-1"
    volume, _ = pod_spec(world, "digits-aggregation")["volumes"]
    assert volume["hostPath"] == {"path": "/model", "type": "DirectoryOrCreate"}


def test_the_environment_of_sednas_trainer() -> None:
    world = sedna_federated_job().settle()
    given = env(world, "surface-defect-detection-train-0")
    assert given.pop("LC_SERVER") == "http://$(HOST_IP):9100/w/$(WORKER_SECRET)"
    own = "of Secret surface-defect-detection-train-0"
    assert given.pop("WORKER_SECRET") == f"WORKER_SECRET {own}"
    assert given.pop("PARTICIPANT_SECRET") == f"PARTICIPANT_SECRET {own}"
    assert given == {
        "NAMESPACE": "default",
        "JOB_NAME": "surface-defect-detection",
        "WORKER_NAME": "surface-defect-detection-train-0",
        "PARTICIPANTS_COUNT": "2",
        "TRANSMITTER": "ws",
        "AGG_IP": "surface-defect-detection-aggregation.default",
        "AGG_PORT": "7363",
        "DATASET_NAME": "edge1-surface-defect-detection-dataset",
        "MODEL_NAME": "surface-defect-detection-model",
        "HOST_IP": "status.hostIP",
        "TRAIN_DATASET_URL": "/home/data/data/1.txt",
        "MODEL_URL": "/home/data/model/latest.h5",
        "DATA_PATH_PREFIX": "/home/data",
        "batch_size": "32",
    }


def test_each_trainer_has_a_secret_of_its_own() -> None:
    world = federated_job().settle()
    named = [env(world, name)["WORKER_SECRET"] for name in POD_NAMES[1:]]
    stored = secrets_of(world)
    assert len({stored[name] for name in named}) == 2


@pytest.mark.parametrize("others", [{}, {"ws": {}}], ids=["s3", "both, as in Sedna's sample"])
def test_workers_that_exchange_weights_through_a_bucket_get_its_keys(others: Any) -> None:
    s3 = {"aggDataPath": "s3://bucket/weights", "credentialName": "keys"}
    world = federated_job(transmitter={"s3": s3, **others}).secret("keys").settle()
    (container,) = pod_spec(world, "digits-train-0")["containers"]
    given = {item["name"]: item for item in container["env"]}
    assert given["TRANSMITTER"]["value"] == "s3"
    assert given["AGG_DATA_PATH"]["value"] == "s3://bucket/weights"
    assert given["ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"]["name"] == "keys"


def test_a_trainer_runs_on_the_node_of_its_dataset() -> None:
    world = federated_job().settle()
    assert [pod_spec(world, name).get("nodeName") for name in POD_NAMES] == [None, "edge0", "edge1"]


def test_the_worker_itself_writes_a_result_into_a_bucket() -> None:
    world = federated_job().model("small", "s3://bucket/model").settle()
    assert env(world, "digits-aggregation")["MODEL_URL"] == "s3://bucket/model"
    assert env(world, "digits-aggregation")["FEDERATION_STATE_DIR"].startswith("/var/lib/")
    assert "initContainers" not in pod_spec(world, "digits-aggregation")


def test_a_settled_job_plans_nothing() -> None:
    world = federated_job().settle()
    world.pods_become("Running")
    world.settle()
    plan = world.plan()
    assert (plan.actions, plan.status, plan.events) == ((), None, ())


# ---- waiting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("Model", "small", "ModelNotFound"),
        ("Dataset", "data1", "DatasetNotFound"),
    ],
)
def test_a_job_waits_for_missing_objects_by_name(kind: str, name: str, reason: str) -> None:
    world = federated_job().without(kind, name)
    world.settle()
    assert world.names() == []
    resolved = world.condition("ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", reason)
    assert f"{kind} default/{name}" in resolved["message"]
    world.model("small").dataset("data1", "edge1").settle()
    assert pod_names(world) == POD_NAMES


def test_a_dataset_on_another_node_than_its_trainer_is_reported() -> None:
    spec = federated_learning_spec()
    spec["trainingWorkers"][1]["nodeName"] = "edge7"
    world = federated_job(trainingWorkers=spec["trainingWorkers"]).nodes("edge7")
    world.settle()
    resolved = world.condition("ResolvedRefs")
    assert resolved["reason"] == "DatasetElsewhere"
    assert "data1" in resolved["message"]
    assert "edge7" in resolved["message"]
    assert pod_names(world) == []


@pytest.mark.parametrize("named", [(), (0,), (0, 1)], ids=["by none", "by one", "by both"])
def test_two_trainers_with_datasets_of_their_own_share_a_node(named: tuple[int, ...]) -> None:
    """Sedna's users do so. Either worker may name its node itself."""
    workers = federated_learning_spec()["trainingWorkers"]
    for index in named:
        workers[index]["nodeName"] = "edge0"
    world = federated_job(trainingWorkers=workers).dataset("data1", "edge0")
    counted(world, data0=100, data1=300).settle()
    assert world.condition("ResolvedRefs")["status"] == "True"
    assert world.condition("Accepted")["message"] == "the spec can be carried out"
    assert pod_names(world) == POD_NAMES
    trainers = [pod_spec(world, name) for name in POD_NAMES if "-train-" in name]
    assert [pod["nodeName"] for pod in trainers] == ["edge0", "edge0"]


def test_one_dataset_for_two_trainers_is_a_hint() -> None:
    workers = federated_learning_spec()["trainingWorkers"]
    world = federated_job(trainingWorkers=[workers[0], workers[1], workers[0]])
    counted(world, data0=100, data1=300).settle()
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("True", "Valid")
    assert accepted["message"] == (
        "the spec can be carried out; but spec.trainingWorkers[0] and spec.trainingWorkers[2] both "
        "train on Dataset data0, so its samples count more than once: give each a Dataset of its "
        "own, or leave one out"
    )
    assert world.condition("ResolvedRefs")["status"] == "True"
    assert len(pod_names(world)) == 4


def test_a_trainer_follows_its_dataset_to_the_node_of_another() -> None:
    world = federated_job().settle()
    world.pods_become("Running").settle()
    world.dataset("data1", "edge0").settle()
    assert world.condition("ResolvedRefs")["status"] == "True"
    assert pod_names(world) == POD_NAMES
    assert pod_spec(world, "digits-train-1")["nodeName"] == "edge0"


# ---- healing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POD_NAMES)
def test_a_deleted_pod_is_created_again(name: str) -> None:
    """The pod is created again each time; the other pods stay unchanged."""
    world = federated_job().settle()
    world.pods_become("Running").settle()
    for _ in range(3):
        world.gone("Pod", name)
        assert planned_actions(world) == [f"Create {name}"]
        world.settle()
        world.pods_become("Running").settle()


def test_no_pod_is_created_while_its_predecessor_is_being_deleted() -> None:
    world = federated_job().settle()
    world.pods_become("Running")
    pod = world.child("Pod", "digits-train-0")
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert planned_actions(world) == []


def test_a_finished_trainer_does_not_run_again_when_its_pod_is_deleted() -> None:
    world = federated_job().settle()
    world.pods_become("Running").pods_become("Succeeded", "digits-train-0").settle()
    world.gone("Pod", "digits-train-0")
    assert planned_actions(world) == []
    assert world.status["finished"] == ["digits-train-0"]


def test_an_evicted_pod_is_replaced_after_a_pause() -> None:
    world = federated_job().settle()
    world.pods_become("Running").pods_become("Failed", "digits-train-1", reason="Evicted")
    plan = world.plan(at(1))
    assert plan.actions == ()
    assert plan.requeue_after_s == REPLACED_AFTER_S - 1
    assert planned_actions(world, at(REPLACED_AFTER_S)) == ["Delete digits-train-1"]
    world.apply(world.plan(at(REPLACED_AFTER_S)))
    assert planned_actions(world) == ["Create digits-train-1"]


def test_a_failed_pod_that_is_being_deleted_is_not_deleted_again() -> None:
    world = federated_job().settle()
    world.pods_become("Running").pods_become("Failed", "digits-train-1", reason="Evicted")
    pod = world.child("Pod", "digits-train-1")
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert planned_actions(world, at(REPLACED_AFTER_S)) == []


def test_a_pod_whose_node_is_gone_is_not_created_on_another_node() -> None:
    spec = federated_learning_spec()
    spec["trainingWorkers"][0]["nodeName"] = "edge0"
    world = federated_job(trainingWorkers=spec["trainingWorkers"]).settle()
    world.gone("Pod", "digits-train-0").without("Node", "edge0")
    assert planned_actions(world) == []
    world.settle()
    assert world.condition("ResolvedRefs")["reason"] == "NodeNotFound"


# ---- following the spec -------------------------------------------------------------------------


def test_a_changed_template_replaces_only_its_trainer() -> None:
    """The new pod is created once the old pod is gone."""
    world = federated_job().settle()
    world.pods_become("Running").settle()
    changed = federated_learning_spec()
    changed["trainingWorkers"][1]["template"] = {
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.test/worker:1",
                    "env": [{"name": "batch_size", "value": "16"}],
                }
            ]
        }
    }
    world.change(changed)
    assert planned_actions(world) == ["Delete digits-train-1"]
    world.apply(world.plan())
    assert planned_actions(world) == ["Create digits-train-1"]
    world.settle()
    assert env(world, "digits-train-1")["batch_size"] == "16"
    assert world.status["observedGeneration"] == 2


def test_a_trainer_that_the_spec_no_longer_has_is_deleted() -> None:
    world = federated_job().settle()
    world.change(federated_learning_spec(1))
    assert "Delete digits-train-1" in planned_actions(world)


def test_a_changed_dataset_replaces_only_its_trainer() -> None:
    world = federated_job().settle()
    world.dataset("data0", "edge0", "/data/other.csv")
    assert planned_actions(world) == ["Delete digits-train-0"]


def test_running_workers_stay_when_an_edit_makes_the_spec_invalid() -> None:
    world = federated_job().settle()
    world.pods_become("Running").settle()
    world.change({"trainingWorkers": []})
    plan = world.plan()
    assert plan.actions == ()
    world.apply(plan)
    assert world.status["phase"] == "Invalid"
    assert pod_names(world) == POD_NAMES


def test_a_job_that_is_being_deleted_plans_nothing() -> None:
    world = federated_job().settle().delete()
    assert world.plan().actions == ()


# ---- two jobs ------------------------------------------------------------------------------------


def test_the_children_of_two_jobs_have_different_names() -> None:
    one = federated_job().settle()
    other = World(KIND, job("other", federated_learning_spec(), uid="uid-2")).model("small")
    other.dataset("data0", "edge0").dataset("data1", "edge1").settle()
    assert not set(one.names()) & set(other.names())


def test_two_jobs_have_different_secrets() -> None:
    """The job's secret proves that a trainer belongs to the job."""
    one = federated_job().settle()
    other = World(KIND, job("other", federated_learning_spec(), uid="uid-2")).model("small")
    other.dataset("data0", "edge0").dataset("data1", "edge1").settle()
    secret = secrets_of(one)["JOB_SECRET of Secret digits-aggregation"]
    assert secret != secrets_of(other)["JOB_SECRET of Secret other-aggregation"]


# ---- who takes part ------------------------------------------------------------------------------


def test_a_trainer_has_a_secret_for_its_name_and_not_the_jobs() -> None:
    world = federated_job(2).settle()
    given = secrets_of(world)
    job_secret = "JOB_SECRET of Secret digits-aggregation"
    for trainer in POD_NAMES[1:]:
        expected = participant_secret(given[job_secret], trainer)
        assert given[f"PARTICIPANT_SECRET of Secret {trainer}"] == expected
        assert job_secret not in env(world, trainer).values()


def _participants(world: World) -> Any:
    return json.loads(secrets_of(world)["participants.json of Secret digits-aggregation"])


def test_the_aggregator_reads_who_takes_part_and_with_how_many_samples() -> None:
    world = federated_job(2).settle()
    (source,) = [
        volume["secret"]
        for volume in pod_spec(world, "digits-aggregation")["volumes"]
        if "secret" in volume
    ]
    assert source["secretName"] == "digits-aggregation"
    assert [item["key"] for item in source["items"]] == ["participants.json"]
    assert _participants(world) == {
        "digits-train-0": None,
        "digits-train-1": None,
    }
    pods = {name: world.child("Pod", name) for name in pod_names(world)}
    world.other("Dataset", "data0")["status"] = {"numberOfSamples": 1200}
    world.settle()
    assert _participants(world)["digits-train-0"] == 1200
    assert {name: world.child("Pod", name) for name in pod_names(world)} == pods
