"""TFJob: each rule of the Kubeflow operator as a row, in both versions, and what is better."""

import json
from typing import Any

import msgspec
import pytest

from edgeai.api.resources import PODS
from edgeai.api.specs import InvalidSpec
from globalmanager.contract import Create
from globalmanager.kinds.training.tfjob import KIND
from tests.globalmanager.kinds.training.samples import (
    conditions,
    ended,
    numbers,
    pods,
    started,
    template,
    tf_spec,
)
from tests.support.world import NOW, World, at, job


def config(world: World, name: str) -> str | None:
    (container,) = world.child("Pod", name)["spec"]["containers"]
    env = {one["name"]: one["value"] for one in container.get("env", [])}
    return env.get("TF_CONFIG")


def written_as(version: str, spec: dict[str, Any]) -> Any:
    """A job that kubectl applied in this version."""
    object_ = job("mnist", spec)
    applied = json.dumps({"apiVersion": f"kubeflow.org/{version}"})
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    object_["metadata"]["annotations"] = annotations
    return object_


# ---- TF_CONFIG ----


@pytest.mark.parametrize(
    ("spec", "name", "expected"),
    [
        pytest.param(
            tf_spec(Worker=2, PS=1, Evaluator=1),
            "mnist-worker-1",
            '{"cluster":{"evaluator":["mnist-evaluator-0.default.svc:2222"],'
            '"ps":["mnist-ps-0.default.svc:2222"],'
            '"worker":["mnist-worker-0.default.svc:2222","mnist-worker-1.default.svc:2222"]},'
            '"task":{"type":"worker","index":1},"environment":"cloud"}',
            id="all types",
        ),
        pytest.param(
            tf_spec(Chief=1, Worker=1),
            "mnist-chief-0",
            '{"cluster":{"chief":["mnist-chief-0.default.svc:2222"],'
            '"worker":["mnist-worker-0.default.svc:2222"]},'
            '"task":{"type":"chief","index":0},"environment":"cloud"}',
            id="chief",
        ),
        pytest.param(tf_spec(Worker=1), "mnist-worker-0", None, id="one replica has none"),
        pytest.param(
            tf_spec(Worker=2, PS=2) | {"enableDynamicWorker": True},
            "mnist-worker-1",
            '{"cluster":{"worker":{"1":"mnist-worker-1.default.svc:2222"},'
            '"ps":["mnist-ps-0.default.svc:2222","mnist-ps-1.default.svc:2222"]},'
            '"task":{"type":"worker","index":1}}',
            id="dynamic worker",
        ),
        pytest.param(
            tf_spec(Worker=2, PS=2) | {"enableDynamicWorker": True},
            "mnist-ps-1",
            '{"cluster":{"worker":{},"ps":["mnist-ps-1.default.svc:2222"]},'
            '"task":{"type":"ps","index":1}}',
            id="dynamic ps",
        ),
    ],
)
def test_tf_config_is_the_same_byte_for_byte(
    spec: dict[str, Any], name: str, expected: str | None
) -> None:
    assert config(started(KIND, spec), name) == expected


def test_tf_config_has_the_domain_of_the_cluster_and_the_port_of_the_template() -> None:
    spec = tf_spec(Worker=2)
    container = spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"name": "tfjob-port", "containerPort": 5000}]
    world = World(KIND, job("mnist", spec))
    world.settings = msgspec.structs.replace(world.settings, cluster_domain="cluster.test")
    text = config(world.settle(), "mnist-worker-0")
    assert text is not None
    hosts = json.loads(text)["cluster"]["worker"]
    assert hosts[0] == "mnist-worker-0.default.svc.cluster.test:5000"


def test_only_the_container_that_trains_has_tf_config() -> None:
    spec = tf_spec(Worker=2)
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].append(
        {"name": "side", "image": "i"}
    )
    _, side = started(KIND, spec).child("Pod", "mnist-worker-0")["spec"]["containers"]
    assert "env" not in side


# ---- two versions ----

VERSIONS = [
    # version, the default policy, the evaluator in the numbers, whether it is in the cluster
    ("v1", "Never", "replicaStatuses.Evaluator", True),
    ("v1alpha2", "Always", "tfReplicaStatuses.Eval", False),
]


@pytest.mark.parametrize(("version", "policy", "path", "is_member"), VERSIONS)
def test_a_version_has_its_own_conventions(
    version: str, policy: str, path: str, is_member: bool
) -> None:
    world = World(KIND, written_as(version, tf_spec(Worker=1, Eval=1))).settle()
    assert world.status["profile"] == version
    pod = world.child("Pod", "mnist-worker-0")
    assert pod["spec"]["restartPolicy"] == policy
    world.pods_become("Running").settle()
    field, _, key = path.partition(".")
    assert numbers(world, field)[key] == {"active": 1}
    text = config(world, "mnist-worker-0")
    assert text is not None
    assert ("evaluator" in json.loads(text)["cluster"]) is is_member


@pytest.mark.parametrize(
    ("version", "given", "key"),
    [
        ("v1", "Eval", "Evaluator"),
        ("v1", "Evaluator", "Evaluator"),
        ("v1alpha2", "Eval", "Eval"),
        ("v1alpha2", "eval", "Eval"),
        ("v1alpha2", "Evaluator", "Evaluator"),
        ("v1alpha2", "EVALUATOR", "Evaluator"),
    ],
)
def test_v1alpha2_counts_the_evaluator_under_the_word_of_the_spec(
    version: str, given: str, key: str
) -> None:
    """The design says Eval; version 0.3 of the TF operator says Evaluator."""
    spec = tf_spec(Worker=1)
    spec["tfReplicaSpecs"][given] = spec["tfReplicaSpecs"]["Worker"]
    world = World(KIND, written_as(version, spec)).settle()
    field = {"v1": "replicaStatuses", "v1alpha2": "tfReplicaStatuses"}[version]
    assert numbers(world, field).keys() == {"Worker", key}
    world.pods_become("Succeeded", **ended(0, container="tensorflow")).settle()
    assert numbers(world, field)[key] == {"succeeded": 1}


def test_the_version_is_known_from_managed_fields_too() -> None:
    object_ = job("mnist", tf_spec(Worker=1))
    fields: dict[str, Any] = {"f:spec": {"f:tfReplicaSpecs": {}}}
    object_["metadata"]["managedFields"] = [
        {"apiVersion": "v1", "fieldsV1": {"f:metadata": {}}},
        {"apiVersion": "kubeflow.org/v1alpha2", "fieldsV1": fields},
    ]
    assert World(KIND, object_).settle().status["profile"] == "v1alpha2"


def test_an_edit_in_another_version_changes_no_convention() -> None:
    world = World(KIND, written_as("v1alpha2", tf_spec(Worker=1))).settle()
    world.object["metadata"]["annotations"] = written_as("v1", {})["metadata"]["annotations"]
    assert world.settle().status["profile"] == "v1alpha2"


def test_types_are_known_in_any_case() -> None:
    world = started(KIND, tf_spec(worker=1, ps=1, MASTER=1))
    assert pods(world) == ["mnist-master-0", "mnist-ps-0", "mnist-worker-0"]


# ---- how a job goes ----

SUCCESS = [
    pytest.param(tf_spec(Chief=1, Worker=2), ["chief-0"], True, id="chief"),
    pytest.param(tf_spec(Master=1, Worker=2), ["master-0"], True, id="master"),
    pytest.param(tf_spec(Chief=1, Worker=1), ["worker-0"], False, id="not without its chief"),
    pytest.param(tf_spec(Worker=2, PS=1), ["worker-0"], True, id="worker 0"),
    pytest.param(tf_spec(Worker=2, PS=1), ["worker-1"], False, id="not worker 1"),
    pytest.param(tf_spec(Worker=2), ["worker-0", "worker-1"], True, id="all workers"),
    pytest.param(tf_spec(Chief=0, Worker=2), ["worker-1"], False, id="a chief with 0 replicas"),
    pytest.param(tf_spec(Chief=0, Worker=2), ["worker-0"], True, id="worker 0 without a chief"),
    pytest.param(tf_spec(Worker=0, PS=2), ["ps-0"], False, id="0 workers"),
    pytest.param(tf_spec(Worker=0), [], False, id="no replica at all"),
    pytest.param(
        tf_spec(Worker=2) | {"successPolicy": "AllWorkers"},
        ["worker-0"],
        False,
        id="AllWorkers",
    ),
    pytest.param(
        tf_spec(Worker=2) | {"successPolicy": "AllWorkers"},
        ["worker-0", "worker-1"],
        True,
        id="AllWorkers, all",
    ),
]


@pytest.mark.parametrize(("spec", "done", "is_success"), SUCCESS)
def test_success(spec: dict[str, Any], done: list[str], is_success: bool) -> None:
    world = started(KIND, spec).pods_become("Running").settle()
    world.pods_become("Succeeded", *(f"mnist-{name}" for name in done)).settle()
    assert (conditions(world)[-1] == "Succeeded") is is_success


RUNNING = [
    (tf_spec(Chief=1, Worker=1), ["worker-0"], False),
    (tf_spec(Chief=1, Worker=1), ["chief-0"], True),
    (tf_spec(Chief=0, Worker=2), ["worker-0"], True),
    (tf_spec(Worker=2, PS=1), ["ps-0"], False),
    (tf_spec(Worker=2, PS=1), ["worker-1"], True),
]


@pytest.mark.parametrize(("spec", "running", "is_running"), RUNNING)
def test_running(spec: dict[str, Any], running: list[str], is_running: bool) -> None:
    world = started(KIND, spec).pods_become("Running", *(f"mnist-{name}" for name in running))
    assert (conditions(world.settle())[-1] == "Running") is is_running


def test_a_failed_replica_fails_the_job_with_exactly_one_terminal_condition() -> None:
    world = started(KIND, tf_spec(Chief=1, Worker=1)).pods_become("Running").settle()
    world.pods_become("Failed", "mnist-worker-0", **ended(1, container="tensorflow")).settle()
    assert conditions(world)[-1] == "Failed"
    world.pods_become("Succeeded", "mnist-chief-0").settle()
    assert [one for one in conditions(world) if one in ("Failed", "Succeeded")] == ["Failed"]


def test_a_chief_that_succeeds_while_a_worker_fails_leaves_one_terminal_condition() -> None:
    world = started(KIND, tf_spec(Chief=1, Worker=1)).pods_become("Running").settle()
    world.pods_become("Failed", "mnist-worker-0", **ended(1, container="tensorflow"))
    world.pods_become("Succeeded", "mnist-chief-0").settle()
    assert [one for one in conditions(world) if one in ("Failed", "Succeeded")] == ["Succeeded"]


def test_a_failed_dynamic_worker_does_not_end_the_job() -> None:
    spec = tf_spec(PS=1, Worker=2) | {"enableDynamicWorker": True}
    world = started(KIND, spec).pods_become("Running").settle()
    world.pods_become("Failed", "mnist-worker-1", **ended(1, container="tensorflow")).settle(NOW)
    assert conditions(world)[-1] == "Running"


def test_a_dynamic_worker_that_failed_for_good_after_a_restart_is_not_restarting() -> None:
    spec = tf_spec(policy="ExitCode", PS=1, Worker=2) | {"enableDynamicWorker": True}
    world = started(KIND, spec).pods_become("Running").settle()
    for step, code in enumerate((137, 1), start=1):
        state = ended(code, container="tensorflow")
        world.pods_become("Failed", "mnist-worker-1", **state).settle(at(100 * step))
    world.pods_become("Running", "mnist-worker-0", "mnist-ps-0").settle(at(300))
    assert conditions(world)[-1] == "Running"


def test_one_plan_makes_a_bounded_number_of_pods() -> None:
    world = World(KIND, job("mnist", tf_spec(Worker=250)))
    made = [one for one in world.plan().actions if isinstance(one, Create) and one.type == PODS]
    assert len(made) == 100
    assert len(pods(world.settle())) == 250


INVALID = [
    (tf_spec(), "is a map of 0 entries"),
    (tf_spec(Worker=1, Boss=1), "'Boss'"),
    (tf_spec(Chief=1, Master=1), "Chief and Master"),
    (tf_spec(Chief=2), "Chief.replicas: is 2"),
    ({"tfReplicaSpecs": {"Worker": {"template": template("main")}}}, "named tensorflow"),
    (tf_spec(Worker=1, worker=1), "Worker twice"),
    (tf_spec(Worker=1) | {"successPolicy": "Any"}, "successPolicy"),
    (tf_spec({"managedBy": "x"}, Worker=1), "managedBy"),
    (tf_spec(Worker=-1), "replicas"),
]


@pytest.mark.parametrize(("spec", "told"), INVALID)
def test_a_wrong_spec_is_refused_by_field(spec: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        KIND.read(job("mnist", spec))
    assert told in str(error.value)
