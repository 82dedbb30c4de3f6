"""FederatedLearningJob: which objects are created, and when."""

from typing import Any

import pytest

from globalmanager.contract import Action, Adopt, Delete, Object, PatchStatus
from globalmanager.kinds.federatedlearningjob import KIND
from globalmanager.kinds.federatedlearningjob.main import REPLACED_AFTER_S
from tests.globalmanager.builders import World, at, job
from tests.globalmanager.kinds.samples import federated, federation, sedna_federated

ALL = ["digits-aggregation", "digits-train-0", "digits-train-1"]


def pods(world: World) -> list[str]:
    return [name.removeprefix("Pod/") for name in world.names() if name.startswith("Pod/")]


def pod_spec(world: World, name: str) -> Object:
    spec: Object = world.child("Pod", name)["spec"]
    return spec


def env(world: World, name: str) -> dict[str, str]:
    (container,) = pod_spec(world, name)["containers"]
    return {
        item["name"]: item.get("value") or item["valueFrom"]["fieldRef"]["fieldPath"]
        for item in container["env"]
    }


def acts(world: World, now: Any = None) -> list[str]:
    """The next plan's actions, as "Create digits-train-0"."""
    plan = world.plan() if now is None else world.plan(now)
    return [f"{type(action).__name__} {name_of(action)}" for action in plan.actions]


def name_of(action: Action) -> str:
    if isinstance(action, Delete | PatchStatus | Adopt):
        return action.ref.name
    name: str = action.object["metadata"]["name"]
    return name


# ---- what is made -------------------------------------------------------------------------------


def test_sednas_sample_becomes_a_service_and_three_pods() -> None:
    world = sedna_federated().settle()
    assert world.names() == [
        "Pod/surface-defect-detection-aggregation",
        "Pod/surface-defect-detection-train-0",
        "Pod/surface-defect-detection-train-1",
        "Service/surface-defect-detection-aggregation",
    ]
    assert pod_spec(world, "surface-defect-detection-train-1")["nodeName"] == "edge2"
    restarts = {pod_spec(world, name)["restartPolicy"] for name in pods(world)}
    assert restarts == {"OnFailure"}
    service = world.child("Service", "surface-defect-detection-aggregation")
    assert [port["port"] for port in service["spec"]["ports"]] == [7363]


def test_the_environment_of_sednas_aggregator() -> None:
    given = env(sedna_federated().settle(), "surface-defect-detection-aggregation")
    assert len(given.pop("JOB_SECRET")) == 64
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
        "exit_round": "3",
    }


def test_a_model_may_be_a_directory_of_the_root() -> None:
    """Sedna's examples name a directory; the aggregator keeps the rounds in it."""
    world = federation().model("small", "/model").settle()
    given = env(world, "digits-aggregation")
    assert given["MODEL_URL"] == "/home/data/model"
    assert given["FEDERATION_STATE_DIR"] == "/home/data/model/.edgeai-uid-1"
    (volume,) = pod_spec(world, "digits-aggregation")["volumes"]
    assert volume["hostPath"] == {"path": "/model", "type": "DirectoryOrCreate"}


def test_the_environment_of_sednas_trainer() -> None:
    world = sedna_federated().settle()
    given = env(world, "surface-defect-detection-train-0")
    assert given.pop("LC_SERVER").startswith("http://$(HOST_IP):9100/w/")
    assert (
        given.pop("JOB_SECRET") == env(world, "surface-defect-detection-aggregation")["JOB_SECRET"]
    )
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
    world = federation().settle()
    servers = {env(world, name)["LC_SERVER"] for name in ALL[1:]}
    assert len(servers) == 2


def test_weights_through_a_bucket() -> None:
    s3 = {"aggDataPath": "s3://bucket/weights", "credentialName": "keys"}
    world = federation(transmitter={"s3": s3}).settle()
    (container,) = pod_spec(world, "digits-train-0")["containers"]
    given = {item["name"]: item for item in container["env"]}
    assert given["TRANSMITTER"]["value"] == "s3"
    assert given["AGG_DATA_PATH"]["value"] == "s3://bucket/weights"
    assert given["ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"]["name"] == "keys"


def test_a_trainer_follows_its_dataset() -> None:
    world = federation().settle()
    assert [pod_spec(world, name).get("nodeName") for name in ALL] == [None, "edge0", "edge1"]


def test_a_result_for_a_bucket_is_left_to_the_worker() -> None:
    world = federation().model("small", "s3://bucket/model").settle()
    assert env(world, "digits-aggregation")["MODEL_URL"] == "s3://bucket/model"
    assert env(world, "digits-aggregation")["FEDERATION_STATE_DIR"].startswith("/var/lib/")
    assert "initContainers" not in pod_spec(world, "digits-aggregation")


def test_a_settled_job_plans_nothing() -> None:
    world = federation().settle()
    world.pods_become("Running")
    world.settle()
    plan = world.plan()
    assert (plan.actions, plan.status, plan.events) == ((), None, ())


# ---- what is waited for -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("Model", "small", "ModelNotFound"),
        ("Dataset", "data1", "DatasetNotFound"),
    ],
)
def test_a_job_waits_for_missing_objects_by_name(kind: str, name: str, reason: str) -> None:
    world = federation().without(kind, name)
    world.settle()
    assert world.names() == []
    resolved = world.condition("ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", reason)
    assert f"{kind} default/{name}" in resolved["message"]
    world.model("small").dataset("data1", "edge1").settle()
    assert pods(world) == ALL


def test_a_dataset_on_another_node_than_its_worker_is_told() -> None:
    spec = federated()
    spec["trainingWorkers"][1]["nodeName"] = "edge7"
    world = federation(trainingWorkers=spec["trainingWorkers"]).nodes("edge7")
    world.settle()
    resolved = world.condition("ResolvedRefs")
    assert resolved["reason"] == "DatasetElsewhere"
    assert "data1" in resolved["message"]
    assert "edge7" in resolved["message"]
    assert pods(world) == []


SHARED_NODE = (
    "spec.trainingWorkers[0] (Dataset data0) and spec.trainingWorkers[1] (Dataset data1) would "
    "both run on node edge0: a node takes part once; give each a Dataset on a node of its own, "
    "or leave one out"
)


@pytest.mark.parametrize("named", [(), (0,), (1,)], ids=["by none", "by the first", "by the other"])
def test_two_datasets_on_one_node_are_told_until_one_is_corrected(named: tuple[int, ...]) -> None:
    """Either worker may name its node itself; when both do, the spec alone is refused."""
    workers = federated()["trainingWorkers"]
    for index in named:
        workers[index]["nodeName"] = "edge0"
    world = federation(trainingWorkers=workers).dataset("data1", "edge0").settle()
    resolved = world.condition("ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", "NodeUsedTwice")
    assert resolved["message"] == SHARED_NODE
    assert pods(world) == []
    for index in named:
        workers[index]["nodeName"] = f"edge{index}"
    world.change(federated(trainingWorkers=workers))
    world.dataset("data1", "edge1").settle()
    assert world.condition("ResolvedRefs")["status"] == "True"
    assert pods(world) == ALL


def test_one_dataset_for_two_workers_is_told() -> None:
    workers = federated()["trainingWorkers"]
    world = federation(trainingWorkers=[workers[0], workers[0]])
    world.settle()
    assert world.condition("ResolvedRefs")["reason"] == "NodeUsedTwice"


def test_a_dataset_that_moves_to_anothers_node_leaves_the_running_workers_alone() -> None:
    world = federation().settle()
    world.pods_become("Running").settle()
    plan = world.dataset("data1", "edge0").plan()
    assert plan.actions == ()
    assert [event.reason for event in plan.events] == ["NodeUsedTwice"]
    world.apply(plan)
    assert world.condition("ResolvedRefs")["message"] == SHARED_NODE
    assert world.status["phase"] == "Training"
    world.dataset("data1", "edge1").settle()
    assert world.condition("ResolvedRefs")["status"] == "True"
    assert pods(world) == ALL


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"trainingWorkers": []}, "spec.trainingWorkers"),
        ({"transmitter": {}}, "spec.transmitter: has neither ws nor s3"),
        (
            {"transmitter": {"ws": {}, "s3": {"aggDataPath": "s3://b/k"}}},
            "spec.transmitter: has both ws and s3",
        ),
        ({"transmitter": {"s3": {}}}, "spec.transmitter.s3.aggDataPath: is missing"),
        (
            {"transmitter": {"s3": {"aggDataPath": "not a url"}}},
            "spec.transmitter.s3.aggDataPath: 'not a url' is not in a bucket",
        ),
        (
            {"transmitter": {"s3": {"aggDataPath": "/data/weights"}}},
            "spec.transmitter.s3.aggDataPath: '/data/weights' is not in a bucket",
        ),
        (
            {"transmitter": {"s3": {"aggDataPath": "s3://bucket"}}},
            "spec.transmitter.s3.aggDataPath",
        ),
        ({"pretrainedModel": {"name": ""}}, "spec.pretrainedModel.name"),
        (
            {
                "trainingWorkers": [
                    {**worker, "nodeName": "edge0"} for worker in federated()["trainingWorkers"]
                ]
            },
            "spec.trainingWorkers[1].nodeName: 'edge0' is the node of spec.trainingWorkers[0]",
        ),
    ],
)
def test_a_spec_that_cannot_run_is_refused_by_field(fields: Any, says: str) -> None:
    world = federation(**fields)
    world.settle()
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert accepted["message"].startswith(says)
    assert world.status["phase"] == "Invalid"
    assert pods(world) == []


# ---- healing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_delete_pod(name: str) -> None:
    """A deleted pod is created again each time; the other pods are left alone."""
    world = federation().settle()
    world.pods_become("Running").settle()
    for _ in range(3):
        world.gone("Pod", name)
        assert acts(world) == [f"Create {name}"]
        world.settle()
        world.pods_become("Running").settle()


def test_a_pod_that_is_being_deleted_is_waited_for() -> None:
    world = federation().settle()
    world.pods_become("Running")
    pod = world.child("Pod", "digits-train-0")
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert acts(world) == []


def test_a_finished_worker_is_not_run_again_when_its_pod_is_collected() -> None:
    world = federation().settle()
    world.pods_become("Running").pods_become("Succeeded", "digits-train-0").settle()
    world.gone("Pod", "digits-train-0")
    assert acts(world) == []
    assert world.status["finished"] == ["digits-train-0"]


def test_a_pod_that_was_evicted_is_replaced_but_not_in_a_hot_loop() -> None:
    world = federation().settle()
    world.pods_become("Running").pods_become("Failed", "digits-train-1", reason="Evicted")
    young = world.plan(at(1))
    assert young.actions == ()
    assert young.requeue_after_s == REPLACED_AFTER_S - 1
    assert acts(world, at(REPLACED_AFTER_S)) == ["Delete digits-train-1"]
    world.apply(world.plan(at(REPLACED_AFTER_S)))
    assert acts(world) == ["Create digits-train-1"]


def test_a_failed_pod_that_is_on_its_way_out_is_not_deleted_again() -> None:
    world = federation().settle()
    world.pods_become("Running").pods_become("Failed", "digits-train-1", reason="Evicted")
    pod = world.child("Pod", "digits-train-1")
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert acts(world, at(REPLACED_AFTER_S)) == []


def test_a_pod_whose_node_is_gone_is_not_made_elsewhere() -> None:
    spec = federated()
    spec["trainingWorkers"][0]["nodeName"] = "edge0"
    world = federation(trainingWorkers=spec["trainingWorkers"]).settle()
    world.gone("Pod", "digits-train-0").without("Node", "edge0")
    assert acts(world) == []
    world.settle()
    assert world.condition("ResolvedRefs")["reason"] == "NodeNotFound"


# ---- following the spec -------------------------------------------------------------------------


def test_update_job() -> None:
    """Only the worker that the change concerns is replaced, once its old pod is gone."""
    world = federation().settle()
    world.pods_become("Running").settle()
    changed = federated()
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
    assert acts(world) == ["Delete digits-train-1"]
    world.apply(world.plan())
    assert acts(world) == ["Create digits-train-1"]
    world.settle()
    assert env(world, "digits-train-1")["batch_size"] == "16"
    assert world.status["observedGeneration"] == 2


def test_a_trainer_more_and_a_trainer_less() -> None:
    world = federation().settle()
    world.change(federated(1))
    assert "Delete digits-train-1" in acts(world)


def test_a_changed_dataset_concerns_its_trainer_alone() -> None:
    world = federation().settle()
    world.dataset("data0", "edge0", "/data/other.csv")
    assert acts(world) == ["Delete digits-train-0"]


def test_an_invalid_change_leaves_the_running_workers_alone() -> None:
    world = federation().settle()
    world.pods_become("Running").settle()
    world.change({"trainingWorkers": []})
    plan = world.plan()
    assert plan.actions == ()
    world.apply(plan)
    assert world.status["phase"] == "Invalid"
    assert pods(world) == ALL


# ---- assignments --------------------------------------------------------------------------------


def test_each_node_holds_the_trainers_that_may_be_there() -> None:
    world = sedna_federated().settle()
    held = KIND.assignments(world.observed())
    assert {node: list(each.body.workers) for node, each in held.items()} == {
        "edge1": ["surface-defect-detection-train-0"],
        "edge2": ["surface-defect-detection-train-1"],
    }


def test_running_trainers_may_report_while_the_spec_is_not_accepted() -> None:
    world = sedna_federated().settle()
    world.change({})
    world.pod("train", "edge1", name="surface-defect-detection-train-0")
    held = KIND.assignments(world.observed())
    assert {node: list(each.body.workers) for node, each in held.items()} == {
        "edge1": ["surface-defect-detection-train-0"]
    }


def test_a_job_that_is_being_deleted_plans_nothing() -> None:
    world = federation().settle().delete()
    assert world.plan().actions == ()
    assert KIND.assignments(world.observed()) == {}


def test_two_jobs_share_no_name() -> None:
    one = federation().settle()
    other = World(KIND, job("other", federated(), uid="uid-2")).model("small")
    other.dataset("data0", "edge0").dataset("data1", "edge1").settle()
    assert not set(one.names()) & set(other.names())


def test_no_worker_of_another_job_knows_the_secret() -> None:
    """A participant shows with the secret that it belongs to the job."""
    one = federation().settle()
    other = World(KIND, job("other", federated(), uid="uid-2")).model("small")
    other.dataset("data0", "edge0").dataset("data1", "edge1").settle()
    secrets = [{env(world, name)["JOB_SECRET"] for name in pods(world)} for world in (one, other)]
    assert [len(each) for each in secrets] == [1, 1]
    assert secrets[0] != secrets[1]
