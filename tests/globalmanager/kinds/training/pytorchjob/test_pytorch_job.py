"""PyTorchJob: each rule of the Kubeflow operator as a row, and what is better."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeai.api.specs import InvalidSpec
from globalmanager.contract import Severity
from globalmanager.kinds.training.pytorchjob import KIND
from tests.globalmanager.kinds.training.samples import (
    conditions,
    ended,
    numbers,
    pods,
    pytorch_spec,
    started,
    template,
)
from tests.support.world import World, at, job

MASTER, WORKER_0, WORKER_1 = "mnist-master-0", "mnist-worker-0", "mnist-worker-1"


def env(world: World, name: str) -> dict[str, str]:
    (container,) = world.child("Pod", name)["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"]}


# ---- what a job consists of ----


PORTS = [
    # the container's ports, the ports of the Service
    (None, {"pytorchjob-port": 23456}),
    ([{"containerPort": 23456}], {"pytorchjob-port": 23456}),
    ([{"name": "own", "containerPort": 23456}], {"pytorchjob-port": 23456}),
    ([{"name": "pytorchjob-port", "containerPort": 80}], {"pytorchjob-port": 80}),
    (
        [{"containerPort": 80, "protocol": "UDP"}, {"name": "web", "containerPort": 80}],
        {"port-80": 80, "pytorchjob-port": 23456},
    ),
]


@pytest.mark.parametrize(("ports", "expected"), PORTS)
def test_a_port_number_stands_once_in_a_service(ports: Any, expected: dict[str, int]) -> None:
    spec = pytorch_spec(None)
    (container,) = spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    container["ports"] = ports
    world = started(KIND, spec)
    listed = world.child("Service", MASTER)["spec"]["ports"]
    assert {port["name"]: port["port"] for port in listed} == expected
    (built,) = world.child("Pod", MASTER)["spec"]["containers"]
    numbers = [(port["containerPort"], port.get("protocol")) for port in built["ports"]]
    assert len(numbers) == len(set(numbers))
    assert env(world, MASTER)["MASTER_PORT"] == str(expected["pytorchjob-port"])


def test_each_replica_has_a_pod_and_a_headless_service_of_one_name() -> None:
    world = started(KIND, pytorch_spec())
    replicas = [MASTER, WORKER_0, WORKER_1]
    assert world.names() == [
        *(f"Pod/{name}" for name in replicas),
        *(f"Service/{name}" for name in replicas),
    ]
    service = world.child("Service", WORKER_1)["spec"]
    assert service["clusterIP"] == "None"
    labels = world.child("Pod", WORKER_1)["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert service["ports"] == [
        {"name": "pytorchjob-port", "port": 23456, "targetPort": 23456, "protocol": "TCP"}
    ]


def test_pods_have_the_labels_by_which_clients_select_them() -> None:
    world = started(KIND, pytorch_spec())
    prefix = "training.kubeflow.org/"
    common = {f"{prefix}job-name": "mnist", f"{prefix}operator-name": "pytorchjob-controller"}
    for name, role, index in ((MASTER, "master", "0"), (WORKER_1, "worker", "1")):
        own = {f"{prefix}replica-type": role, f"{prefix}replica-index": index}
        labels = world.child("Pod", name)["metadata"]["labels"]
        assert (common | own).items() <= labels.items()
        assert (labels.get(f"{prefix}job-role") == "master") is (name == MASTER)


def test_the_policy_of_the_job_replaces_the_policy_of_the_template() -> None:
    for policy, given in (("", "OnFailure"), ("Never", "Never"), ("ExitCode", "Never")):
        world = started(KIND, pytorch_spec(policy=policy))
        assert world.child("Pod", MASTER)["spec"]["restartPolicy"] == given


@pytest.mark.parametrize(
    ("spec", "name", "expected"),
    [
        pytest.param(
            pytorch_spec(),
            MASTER,
            {"RANK": "0", "PET_NODE_RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": MASTER},
            id="master",
        ),
        pytest.param(
            pytorch_spec(),
            WORKER_1,
            {
                "PYTHONUNBUFFERED": "1",
                "MASTER_PORT": "23456",
                "PET_MASTER_PORT": "23456",
                "MASTER_ADDR": MASTER,
                "PET_MASTER_ADDR": MASTER,
                "WORLD_SIZE": "3",
                "RANK": "2",
                "PET_NODE_RANK": "2",
                "PET_NPROC_PER_NODE": "auto",
                "PET_NNODES": "3",
            },
            id="worker",
        ),
        pytest.param(
            pytorch_spec(nprocPerNode="4"),
            WORKER_0,
            {"WORLD_SIZE": "12", "PET_NPROC_PER_NODE": "4"},
            id="processes",
        ),
        pytest.param(
            pytorch_spec(nprocPerNode="gpu"),
            WORKER_0,
            {"WORLD_SIZE": "3", "PET_NPROC_PER_NODE": "gpu"},
            id="processes by a word",
        ),
        pytest.param(
            pytorch_spec(3, master=False, elasticPolicy={"minReplicas": 1, "maxReplicas": 4}),
            WORKER_1,
            {
                "PYTHONUNBUFFERED": "1",
                "PET_RDZV_ENDPOINT": f"{WORKER_0}:23456",
                "PET_RDZV_BACKEND": "c10d",
                "PET_NNODES": "1:4",
                "PET_NPROC_PER_NODE": "auto",
            },
            id="elastic",
        ),
        pytest.param(
            pytorch_spec(
                master=False,
                elasticPolicy={
                    "minReplicas": 1,
                    "rdzvBackend": "etcd",
                    "rdzvHost": "etcd.test",
                    "rdzvPort": 2379,
                    "rdzvId": "run-1",
                    "rdzvConf": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}],
                    "standalone": True,
                    "nProcPerNode": 2,
                    "maxRestarts": 7,
                },
            ),
            WORKER_0,
            {
                "PET_RDZV_ENDPOINT": "etcd.test:2379",
                "PET_RDZV_BACKEND": "etcd",
                "PET_RDZV_ID": "run-1",
                "PET_RDZV_CONF": "a=1,b=2",
                "PET_STANDALONE": "",
                "PET_NPROC_PER_NODE": "2",
                "PET_MAX_RESTARTS": "7",
                "PET_NNODES": "1:1",
            },
            id="elastic with everything",
        ),
    ],
)
def test_the_environment(spec: dict[str, Any], name: str, expected: dict[str, str]) -> None:
    found = env(started(KIND, spec), name)
    assert expected.items() <= found.items()
    if "PYTHONUNBUFFERED" in expected:
        assert found == expected


def test_every_container_has_the_environment_after_its_own() -> None:
    spec = pytorch_spec(None)
    own = [{"name": "A", "value": "1"}, {"name": "RANK", "value": "7"}]
    containers = [{"name": "pytorch", "image": "i", "env": own}, {"name": "side", "image": "i"}]
    spec["pytorchReplicaSpecs"]["Master"]["template"] = {"spec": {"containers": containers}}
    built = started(KIND, spec).child("Pod", MASTER)["spec"]["containers"]
    assert [one["name"] for one in built[0]["env"]][:2] == ["A", "PYTHONUNBUFFERED"]
    assert {"name": "RANK", "value": "0"} in built[0]["env"]
    assert {"name": "RANK", "value": "0"} in built[1]["env"]
    assert "ports" in built[0]
    assert "ports" not in built[1]


# ---- how a job goes ----


def test_a_job_that_succeeds() -> None:
    world = started(KIND, pytorch_spec())
    assert conditions(world) == ["Created"]
    world.pods_become("Running", MASTER).settle()
    assert conditions(world) == ["Created", "Running"]
    assert numbers(world) == {"Master": {"active": 1}, "Worker": {}}
    world.pods_become("Running").settle()
    assert numbers(world) == {"Master": {"active": 1}, "Worker": {"active": 2}}
    world.pods_become("Succeeded", MASTER).settle(at(60))
    assert conditions(world) == ["Created", "Running=False:PyTorchJobRunning", "Succeeded"]
    assert numbers(world) == {"Master": {"succeeded": 1}, "Worker": {"succeeded": 2}}
    assert world.status["startTime"] == "2026-01-02T03:04:05Z"
    assert world.status["completionTime"] == "2026-01-02T03:05:05Z"
    assert world.condition("Succeeded")["reason"] == "PyTorchJobSucceeded"
    assert pods(world) == [MASTER, WORKER_0, WORKER_1]  # cleanPodPolicy None


def test_the_selector_of_a_type_stands_in_its_status() -> None:
    world = started(KIND, pytorch_spec())
    assert world.status["replicaStatuses"]["Worker"]["selector"] == (
        "training.kubeflow.org/job-name=mnist,"
        "training.kubeflow.org/operator-name=pytorchjob-controller,"
        "training.kubeflow.org/replica-type=worker"
    )


SUCCESS = [
    pytest.param(pytorch_spec(), [MASTER], True, id="the master is done"),
    pytest.param(pytorch_spec(), [WORKER_0, WORKER_1], False, id="only the workers are done"),
    pytest.param(pytorch_spec(master=False), [WORKER_0], False, id="one of two workers is done"),
    pytest.param(pytorch_spec(master=False), [WORKER_0, WORKER_1], True, id="all workers are done"),
    pytest.param(
        pytorch_spec(master=False, elasticPolicy={}), [WORKER_1], True, id="elastic: one is done"
    ),
]


@pytest.mark.parametrize(("spec", "done", "is_success"), SUCCESS)
def test_success(spec: dict[str, Any], done: list[str], is_success: bool) -> None:
    world = started(KIND, spec).pods_become("Running").settle()
    world.pods_become("Succeeded", *done).settle()
    assert (conditions(world)[-1] == "Succeeded") is is_success


FAILURES = [
    # policy, exit code (None: evicted), the last condition, whether the pod is made anew
    ("OnFailure", None, "Restarting", True),
    ("Always", None, "Restarting", True),
    ("Never", 1, "Failed", False),
    ("Never", 137, "Failed", False),
    ("ExitCode", 1, "Failed", False),
    ("ExitCode", 127, "Failed", False),
    ("ExitCode", 128, "Restarting", True),
    ("ExitCode", 137, "Restarting", True),
    ("ExitCode", 255, "Restarting", True),
    ("ExitCode", None, "Restarting", True),
]


@pytest.mark.parametrize(("policy", "code", "condition", "is_anew"), FAILURES)
def test_a_failed_replica(policy: str, code: int | None, condition: str, is_anew: bool) -> None:
    world = started(KIND, pytorch_spec(policy=policy)).pods_become("Running").settle()
    before = world.child("Pod", WORKER_1)["metadata"]["uid"]
    state = {"reason": "Evicted"} if code is None else ended(code)
    world.pods_become("Failed", WORKER_1, **state).settle(at(60))
    assert conditions(world)[-1] == condition
    assert (world.child("Pod", WORKER_1)["metadata"]["uid"] != before) is is_anew
    if is_anew:
        assert world.status["restarts"] == {WORKER_1: 1}
    else:
        assert world.status["completionTime"]


def test_running_and_restarting_exclude_each_other() -> None:
    world = started(KIND, pytorch_spec(policy="ExitCode")).pods_become("Running").settle()
    world.pods_become("Failed", WORKER_0, **ended(137)).settle(at(60))
    assert conditions(world) == ["Created", "Restarting"]
    assert "1 Worker replica(s) failed" in world.condition("Restarting")["message"]
    world.pods_become("Running").settle(at(61))
    assert conditions(world) == ["Created", "Running"]


def test_a_crash_between_count_and_deletion_counts_a_failure_once() -> None:
    world = started(KIND, pytorch_spec(policy="ExitCode")).pods_become("Running").settle()
    world.pods_become("Failed", WORKER_0, **ended(137))
    counting = world.plan(at(60))
    assert not counting.actions
    world.apply(counting)
    world.apply(world.plan(at(60)), actions=1)  # killed after the deletion
    world.settle(at(60))
    assert world.status["restarts"] == {WORKER_0: 1}


def test_each_restart_of_a_replica_waits_longer() -> None:
    world = started(KIND, pytorch_spec(policy="ExitCode"))
    world.object["status"]["restarts"] = {WORKER_0: 3}
    world.children.clear()
    world.settle()
    world.pods_become("Failed", WORKER_0, **ended(137)).settle(at(1))
    plan = world.plan(at(1))
    assert not plan.actions
    assert plan.requeue_after_s == 7.0
    assert world.plan(at(8)).actions


def test_a_pod_that_is_gone_is_made_anew_unless_its_replica_is_done() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running").settle()
    world.pods_become("Succeeded", WORKER_0).settle()
    assert world.status["finished"] == [WORKER_0]
    world.gone("Pod", WORKER_0).gone("Pod", WORKER_1).settle()
    assert pods(world) == [MASTER, WORKER_1]
    assert numbers(world)["Worker"]["succeeded"] == 1


@pytest.mark.parametrize(("limit", "restarts"), [(0, 1), (1, 1), (3, 3)])
def test_the_backoff_limit_counts_pods_that_were_made_anew(limit: int, restarts: int) -> None:
    spec = pytorch_spec(policy="ExitCode", run={"backoffLimit": limit})
    world = started(KIND, spec).pods_become("Running").settle()
    for number in range(restarts):
        assert conditions(world)[-1] != "Failed"
        world.pods_become("Failed", WORKER_0, **ended(137)).settle(at(100 * (number + 1)))
    assert conditions(world)[-1] == "Failed"
    assert "backoff limit" in world.condition("Failed")["message"]


def test_the_backoff_limit_counts_containers_that_nodes_have_restarted() -> None:
    world = started(KIND, pytorch_spec(run={"backoffLimit": 2}))
    restarted = {"containerStatuses": [{"name": "pytorch", "restartCount": 1}]}
    world.pods_become("Running", MASTER, **restarted).settle()
    assert conditions(world)[-1] == "Running"
    world.pods_become("Running", **restarted).settle()
    assert conditions(world)[-1] == "Failed"


def test_a_whole_job_restarts_together_and_once() -> None:
    spec = pytorch_spec(policy="ExitCode", run={"restartScope": "Job"})
    world = started(KIND, spec).pods_become("Running").settle()
    before = {name: world.child("Pod", name)["metadata"]["uid"] for name in pods(world)}
    world.pods_become("Succeeded", WORKER_1).pods_become("Failed", WORKER_0, **ended(137))
    world.settle(at(60))
    after = {name: world.child("Pod", name)["metadata"]["uid"] for name in pods(world)}
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert world.status["jobRestarts"] == 1
    assert "finished" not in world.status


@pytest.mark.parametrize(
    ("policy", "scope", "of_pods"),
    [
        ("OnFailure", "Replica", "OnFailure"),
        ("OnFailure", "Job", "Never"),
        ("ExitCode", "Job", "Never"),
        ("Always", "Job", "Always"),
    ],
)
def test_a_node_starts_no_container_again_where_the_whole_job_restarts(
    policy: str, scope: str, of_pods: str
) -> None:
    world = started(KIND, pytorch_spec(policy=policy, run={"restartScope": scope}))
    assert world.child("Pod", WORKER_0)["spec"]["restartPolicy"] == of_pods


def test_of_a_job_that_restarts_no_pod_is_made_while_one_from_before_is_there() -> None:
    """A new worker would join the old master, and end with it."""
    world = started(KIND, pytorch_spec(run={"restartScope": "Job"})).pods_become("Running").settle()
    world.pods_become("Failed", WORKER_0, **ended(137)).settle()
    assert pods(world) == [WORKER_0], "it waits for its back-off"
    world.settle(at(60))
    assert pods(world) == [MASTER, WORKER_0, WORKER_1]
    attempts = {
        world.child("Pod", name)["metadata"]["annotations"]["edgeai.io/attempt"]
        for name in pods(world)
    }
    assert attempts == {"1"}


def test_processes_that_end_because_another_one_did_cause_no_restart_of_their_own() -> None:
    world = started(KIND, pytorch_spec(run={"restartScope": "Job"})).pods_become("Running").settle()
    world.pods_become("Failed", MASTER, **ended(1))  # lost its connection to the worker
    world.pods_become("Failed", WORKER_0, **ended(137)).settle(at(60))
    assert world.status["jobRestarts"] == 1
    assert "Failed" not in conditions(world)


@pytest.mark.parametrize(("phase", "code"), [("Failed", 143), ("Succeeded", 0)])
def test_a_pod_that_is_being_deleted_tells_nothing(phase: str, code: int) -> None:
    world = started(KIND, pytorch_spec(policy="Never")).pods_become("Running").settle()
    world.child("Pod", MASTER)["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    world.pods_become(phase, MASTER, **ended(code)).settle(at(20))
    assert conditions(world) == ["Created", "Running"]
    assert "finished" not in world.status
    world.gone("Pod", MASTER).settle(at(61))
    assert pods(world) == [MASTER, WORKER_0, WORKER_1]


@pytest.mark.parametrize("scope", ["Replica", "Job"])
def test_a_failure_counts_once_when_the_status_was_reset(scope: str) -> None:
    world = started(KIND, pytorch_spec(policy="ExitCode", run={"restartScope": scope}))
    world.child("Pod", WORKER_0)["metadata"]["annotations"]["edgeai.io/attempt"] = "40"
    world.pods_become("Failed", WORKER_0, **ended(137)).settle(at(100))
    assert world.child("Pod", WORKER_0)["metadata"]["annotations"]["edgeai.io/attempt"] == "41"


@pytest.mark.parametrize(
    "conditions_",
    ["x", [3], [{"type": []}], [{"type": "Created", "status": "True", "reason": "Other"}]],
)
def test_a_status_that_somebody_wrote_is_repaired(conditions_: Any) -> None:
    world = World(KIND, job("mnist", pytorch_spec(), status={"conditions": conditions_})).settle()
    assert conditions(world) == ["Created"]
    assert world.condition("Created")["lastTransitionTime"]


# ---- run policy ----


def test_suspend_and_resume() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running").settle()
    world.change(pytorch_spec(run={"suspend": True})).settle(at(10))
    assert world.names() == []
    assert conditions(world) == ["Created", "Running=False:PyTorchJobSuspended", "Suspended"]
    world.change(pytorch_spec(run={"suspend": False})).settle(at(20))
    world.pods_become("Running").settle(at(21))
    assert conditions(world) == ["Created", "Suspended=False:PyTorchJobResumed", "Running"]
    assert world.status["startTime"] == "2026-01-02T03:04:25Z"


def test_a_job_that_is_created_suspended_has_neither_pods_nor_a_start_time() -> None:
    world = started(KIND, pytorch_spec(run={"suspend": True}))
    assert world.names() == []
    assert conditions(world) == ["Created", "Suspended"]
    assert "startTime" not in world.status


def test_a_deadline_ends_a_quiet_job() -> None:
    world = started(KIND, pytorch_spec(run={"activeDeadlineSeconds": 30}))
    world.pods_become("Running").settle()
    assert world.plan(at(10)).requeue_after_s == 20.0
    world.settle(at(30))
    assert conditions(world)[-1] == "Failed"
    assert "longer than specified deadline" in world.condition("Failed")["message"]
    assert world.status["completionTime"] == "2026-01-02T03:04:35Z"


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (None, [MASTER, WORKER_0, WORKER_1]),
        ("None", [MASTER, WORKER_0, WORKER_1]),
        ("Running", [MASTER]),
        ("All", []),
    ],
)
def test_clean_up(policy: str | None, left: list[str]) -> None:
    run = {} if policy is None else {"cleanPodPolicy": policy}
    world = started(KIND, pytorch_spec(run=run)).pods_become("Running").settle()
    world.pods_become("Succeeded", MASTER).settle()
    assert pods(world) == left
    assert world.names() == [*(f"Pod/{p}" for p in left), *(f"Service/{p}" for p in left)]


@pytest.mark.parametrize("policy", [None, "None"])
def test_no_worker_waits_for_the_master_of_a_job_that_has_ended(policy: str | None) -> None:
    """A worker on an edge node that cannot reach the master stays in its init container."""
    run = {} if policy is None else {"cleanPodPolicy": policy}
    world = started(KIND, pytorch_spec(run=run)).pods_become("Running", MASTER, WORKER_0)
    world.pods_become("Pending", WORKER_1).settle()
    world.pods_become("Succeeded", MASTER).settle()
    assert pods(world) == [MASTER, WORKER_0]


def test_the_time_to_live_begins_at_the_end() -> None:
    world = started(KIND, pytorch_spec(run={"ttlSecondsAfterFinished": 60}))
    world.pods_become("Succeeded", MASTER).settle(at(100))
    assert world.plan(at(130)).requeue_after_s == 30.0
    (deletion,) = world.plan(at(160)).actions
    assert str(deletion.ref) == "pytorchjobs.kubeflow.org default/mnist"  # type: ignore[union-attr]


def test_the_time_to_live_of_a_job_without_completion_time_begins_with_its_last_condition() -> None:
    end = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    spec = pytorch_spec(run={"ttlSecondsAfterFinished": 60})
    world = World(KIND, job("mnist", spec, status={"conditions": [end]}))
    assert world.plan(at(40)).requeue_after_s == 20.0
    assert world.plan(at(60)).actions


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "somebody.test/else"])
def test_a_job_of_another_manager_is_not_touched(manager: str) -> None:
    world = World(KIND, job("mnist", pytorch_spec(run={"managedBy": manager})))
    plan = world.plan()
    assert (plan.actions, plan.status) == ((), None)


def test_a_job_that_has_pods_keeps_its_manager_and_an_event_tells_the_edit() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running").settle()
    plan = world.change(pytorch_spec(run={"managedBy": "kueue.x-k8s.io/multikueue"})).plan()
    (event,) = plan.events
    assert (event.severity, event.reason) == (Severity.WARNING, "PyTorchJobManagedByChanged")
    assert "spec.runPolicy.managedBy" in event.message
    assert world.apply(plan).plan().events == ()
    world.pods_become("Succeeded", MASTER).settle()
    assert conditions(world)[-1] == "Succeeded"


def test_an_edit_of_the_worker_count_makes_and_removes_pods() -> None:
    world = started(KIND, pytorch_spec(1))
    world.change(pytorch_spec(3)).settle()
    assert pods(world) == [MASTER, WORKER_0, WORKER_1, "mnist-worker-2"]
    world.change(pytorch_spec(1)).settle()
    assert world.names() == [f"{k}/{n}" for k in ("Pod", "Service") for n in (MASTER, WORKER_0)]


def test_an_ended_job_stays_ended() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Succeeded", MASTER).settle()
    before = world.status
    world.pods_become("Failed", WORKER_0, **ended(1)).settle(at(5))
    world.change(pytorch_spec(5)).settle(at(6))
    world.children.clear()
    assert (world.settle(at(7)).status, world.names()) == (before, [])


# ---- what is not accepted ----


def with_ports(ports: Any) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "train:1", "ports": ports}
    return {"spec": {"containers": [container]}}


def test_an_edit_to_a_wrong_spec_leaves_a_started_job_as_it_is() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running").settle()
    plan = world.change(pytorch_spec(nprocPerNode="many")).plan()
    (event,) = plan.events
    assert (event.reason, "nprocPerNode" in event.message) == ("PyTorchJobFailedValidation", True)
    again = world.apply(plan).plan()
    assert (again.actions, again.status, again.events) == ((), None, ())
    assert conditions(world) == ["Created", "Running"]
    world.change(pytorch_spec(3)).settle()
    assert pods(world)[-1] == "mnist-worker-2"


INVALID = [
    ({"pytorchReplicaSpecs": {}}, "spec.pytorchReplicaSpecs: is a map of 0 entries"),
    ({"pytorchReplicaSpecs": {"PS": {"template": template()}}}, "'PS'"),
    ({"pytorchReplicaSpecs": {"Master": {"template": template("tf")}}}, "named pytorch"),
    ({"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": []}}}}}, "containers"),
    ({"pytorchReplicaSpecs": {"Master": {"replicas": 2, "template": template()}}}, "one master"),
    (pytorch_spec(0), "Worker.replicas: is 0"),
    ({"pytorchReplicaSpecs": {"Master": {"template": with_ports("x")}}}, "containers[0].ports"),
    ({"pytorchReplicaSpecs": {"Master": {"template": with_ports([{}])}}}, "containerPort"),
    (pytorch_spec(nprocPerNode="many"), "spec.nprocPerNode"),
    (pytorch_spec(nprocPerNode="9" * 5000), "spec.nprocPerNode"),
    (pytorch_spec(run={"activeDeadlineSeconds": 10**400}), "activeDeadlineSeconds"),
    (pytorch_spec(None, elasticPolicy={}), "needs Worker replicas"),
    (pytorch_spec(nprocPerNode="1", elasticPolicy={"nProcPerNode": 1}), "nProcPerNode"),
    (pytorch_spec(policy="Sometimes"), "restartPolicy"),
    (pytorch_spec(run={"cleanPodPolicy": "Some"}), "cleanPodPolicy"),
    (pytorch_spec(run={"activeDeadlineSeconds": 0}), "activeDeadlineSeconds"),
]


@pytest.mark.parametrize(("spec", "told"), INVALID)
def test_a_wrong_spec_fails_the_job_and_names_the_field(spec: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSpec, match="spec") as error:
        KIND.read(job("mnist", spec))
    assert told in str(error.value)
    world = World(KIND, job("mnist", spec)).settle()
    assert conditions(world) == ["Created", "Failed"]
    message = world.condition("Failed")["message"]
    assert "the spec is invalid" in message
    assert told in message


@pytest.mark.parametrize("name", ["m.nist", "1st", "m" * 60])
def test_a_name_that_no_service_can_have_fails_the_job(name: str) -> None:
    world = World(KIND, job(name, pytorch_spec())).settle()
    assert "metadata.name" in world.condition("Failed")["message"]


# ---- the wait for the master ----


def init_names(world: World, name: str) -> list[str]:
    return [one["name"] for one in world.child("Pod", name)["spec"].get("initContainers", [])]


def test_a_worker_waits_for_the_master_with_its_own_image() -> None:
    spec = pytorch_spec()
    own = {"name": "own", "image": "i"}
    spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["initContainers"] = [own]
    world = started(KIND, spec)
    assert init_names(world, WORKER_0) == ["init-pytorch", "own"]
    assert init_names(world, MASTER) == []
    wait, _ = world.child("Pod", WORKER_0)["spec"]["initContainers"]
    assert wait["image"] == "train:1"
    assert {"name": "MASTER_ADDR", "value": MASTER} in wait["env"]


def test_the_wait_can_be_turned_off_and_needs_a_master() -> None:
    object_ = job("mnist", pytorch_spec())
    object_["metadata"]["annotations"] = {"edgeai.io/wait-for-master": "false"}
    assert init_names(World(KIND, object_).settle(), WORKER_0) == []
    assert init_names(started(KIND, pytorch_spec(master=False)), WORKER_0) == []


@pytest.mark.parametrize("shell", ["python3", "bash"])
def test_the_wait_ends_when_the_port_answers(tmp_path: Path, shell: str) -> None:
    (wait,) = started(KIND, pytorch_spec()).child("Pod", WORKER_0)["spec"]["initContainers"]
    for program in ("sh", "sleep", shell):
        is_python = program == "python3"
        found = str(Path(sys.executable).resolve()) if is_python else shutil.which(program)
        assert found is not None
        (tmp_path / program).symlink_to(found)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        env = {one["name"]: one["value"] for one in wait["env"]}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PATH": str(tmp_path)}
        with subprocess.Popen(wait["command"], env=env, stdout=subprocess.PIPE) as waiting:
            try:
                assert waiting.stdout is not None
                assert b"waiting for the master" in waiting.stdout.readline()
                with pytest.raises(subprocess.TimeoutExpired):  # bound, but nobody listens
                    waiting.wait(0.5)
                listener.listen()
                assert waiting.wait(60) == 0
            finally:
                waiting.kill()


def test_an_image_without_python_and_bash_does_not_wait(tmp_path: Path) -> None:
    (wait,) = started(KIND, pytorch_spec()).child("Pod", WORKER_0)["spec"]["initContainers"]
    (tmp_path / "sh").symlink_to("/bin/sh")
    env = {one["name"]: one["value"] for one in wait["env"]} | {"PATH": str(tmp_path)}
    done = subprocess.run(wait["command"], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "not waiting" in done.stdout) == (0, True)
