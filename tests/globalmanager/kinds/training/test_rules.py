"""The rules of the Kubeflow operators that both kinds share or that no other table names, as rows.

Source: kubeflow/training-operator 1.9. The rules of one framework stand in pytorchjob and
tfjob, those of gangs in tests/globalmanager/kinds/training/test_gangs.
"""

import copy
import json
from typing import Any, Final

import pytest

from edgeai.api.resources import PODS, SERVICES
from edgeai.api.schemas import Column
from edgeai.api.specs import InvalidSpec
from edgeai.api.status import Truth
from globalmanager.contract import Event, Kind
from globalmanager.kinds.shared.job_conditions import Conditions, State
from globalmanager.kinds.training import pytorchjob, tfjob
from globalmanager.kinds.training.pytorchjob.autoscaling import bounds
from tests.globalmanager.kinds.training.samples import (
    conditions,
    ended,
    numbers,
    pods,
    pytorch_spec,
    started,
    template,
    tf_spec,
)
from tests.globalmanager.kinds.training.tfjob.test_tf_job import written_as
from tests.support.world import NOW, World, at, job

PYTORCH, TF = pytorchjob.KIND, tfjob.KIND
MASTER, WORKER_0, WORKER_1 = "mnist-master-0", "mnist-worker-0", "mnist-worker-1"
PREFIX: Final = "training.kubeflow.org/"
KINDS: Final = [
    pytest.param(PYTORCH, pytorch_spec(policy="ExitCode"), id="PyTorchJob"),
    pytest.param(TF, tf_spec(policy="ExitCode", Master=1, Worker=2), id="TFJob"),
]


def container_of(kind: Kind) -> str:
    return "pytorch" if kind is PYTORCH else "tensorflow"


def container(spec: dict[str, Any], type_: str = "Worker") -> dict[str, Any]:
    """The container that trains, of the spec's template for this type."""
    (replicas,) = (value for key, value in spec.items() if key.endswith("ReplicaSpecs"))
    found: dict[str, Any] = replicas[type_]["template"]["spec"]["containers"][0]
    return found


# ---- identity ----


@pytest.mark.parametrize(
    ("kind", "versions"), [(TF, ["v1", "v1alpha2"]), (PYTORCH, ["v1"])], ids=["TFJob", "PyTorchJob"]
)
def test_the_resource_and_its_printer_columns(kind: Kind, versions: list[str]) -> None:
    assert [type_.version for type_ in kind.definition.types] == versions
    for type_ in kind.definition.types:
        assert (type_.group, type_.plural) == ("kubeflow.org", f"{type_.kind.lower()}s")
    assert kind.columns == (
        Column("State", "string", ".status.conditions[-1:].type"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    )


# ---- defaults ----


@pytest.mark.parametrize(
    ("version", "left"),
    [("v1", ["mnist-chief-0", "mnist-worker-0"]), ("v1alpha2", ["mnist-chief-0"])],
)
def test_the_default_clean_pod_policy_of_a_version(version: str, left: list[str]) -> None:
    world = World(TF, written_as(version, tf_spec(Chief=1, Worker=1))).settle()
    world.pods_become("Running").settle()
    world.pods_become("Succeeded", "mnist-chief-0").settle()
    assert pods(world) == left


def test_a_type_without_a_number_has_one_replica() -> None:
    spec = {"tfReplicaSpecs": {"Worker": {"template": template("tensorflow")}}}
    assert pods(started(TF, spec)) == [WORKER_0]
    assert pods(started(PYTORCH, pytorch_spec(None))) == [MASTER]


@pytest.mark.parametrize(("kind", "spec"), KINDS)
def test_the_port_is_added_to_the_container_and_the_service(
    kind: Kind, spec: dict[str, Any]
) -> None:
    name, number = ("pytorchjob-port", 23456) if kind is PYTORCH else ("tfjob-port", 2222)
    world = started(kind, spec)
    (built,) = world.child("Pod", WORKER_0)["spec"]["containers"]
    assert built["ports"] == [{"name": name, "containerPort": number}]
    (port,) = world.child("Service", WORKER_0)["spec"]["ports"]
    assert (port["name"], port["port"]) == (name, number)


@pytest.mark.parametrize(("kind", "spec"), KINDS)
def test_defaults_are_never_written_into_the_job(kind: Kind, spec: dict[str, Any]) -> None:
    world = World(kind, job("mnist", spec))
    for phase in ("Pending", "Running"):
        observed = world.observed()  # has a copy of the job, which reading and planning share
        plan = kind.plan(observed, NOW)
        assert observed.object["spec"] == spec
        world.apply(plan).pods_become(phase)


ELASTIC = [
    # minReplicas, maxReplicas, workers, the bounds
    (None, None, 3, (3, 3)),
    (2, None, 3, (2, 2)),
    (None, 4, 3, (4, 4)),
    (1, 4, 3, (1, 4)),
]


@pytest.mark.parametrize(("low", "high", "workers", "expected"), ELASTIC)
def test_the_bounds_of_an_elastic_job_fill_each_other(
    low: int | None, high: int | None, workers: int, expected: tuple[int, int]
) -> None:
    given = {"minReplicas": low, "maxReplicas": high}
    policy = {key: value for key, value in given.items() if value is not None}
    spec = pytorch_spec(workers, master=False, elasticPolicy=policy)
    assert bounds(PYTORCH.read(job("mnist", spec))) == expected


# ---- validation ----


def with_container(kind: Kind, **fields: Any) -> dict[str, Any]:
    spec = copy.deepcopy(pytorch_spec() if kind is PYTORCH else tf_spec(Worker=2))
    found = container(spec)
    found.update(fields)
    return spec


def without_containers(kind: Kind) -> dict[str, Any]:
    field = "pytorchReplicaSpecs" if kind is PYTORCH else "tfReplicaSpecs"
    return {field: {"Worker": {"template": {"spec": {"containers": []}}}}}


@pytest.mark.parametrize("kind", [PYTORCH, TF], ids=["PyTorchJob", "TFJob"])
def test_what_the_webhooks_refuse_of_templates_and_names(kind: Kind) -> None:
    cases = [
        ("mnist", {}, "ReplicaSpecs"),
        ("mnist", without_containers(kind), "containers"),
        ("mnist", with_container(kind, image=""), "image"),
        ("mnist", with_container(kind, name="main"), f"named {container_of(kind)}"),
        ("Mnist", with_container(kind), "metadata.name"),
        ("1st", with_container(kind), "metadata.name"),
    ]
    for name, spec, told in cases:
        with pytest.raises(InvalidSpec) as error:
            kind.read(job(name, spec))
        assert told in str(error.value)


# ---- pods and Services ----


@pytest.mark.parametrize(
    ("kind", "spec", "leader"),
    [
        (TF, tf_spec(Chief=1, Worker=2), "mnist-chief-0"),
        (TF, tf_spec(Master=1, Worker=2), "mnist-master-0"),
        (TF, tf_spec(PS=1, Worker=2), WORKER_0),
        (PYTORCH, pytorch_spec(), MASTER),
        (PYTORCH, pytorch_spec(master=False), WORKER_0),
    ],
)
def test_the_leader_has_the_label_job_role(kind: Kind, spec: dict[str, Any], leader: str) -> None:
    world = started(kind, spec)
    labels = {name: world.child("Pod", name)["metadata"]["labels"] for name in pods(world)}
    leaders = [name for name, own in labels.items() if own.get(f"{PREFIX}job-role") == "master"]
    assert leaders == [leader]


@pytest.mark.parametrize(("kind", "spec"), KINDS)
def test_pods_and_services_have_the_labels_and_the_owner(kind: Kind, spec: dict[str, Any]) -> None:
    world = started(kind, spec)
    marks = {
        f"{PREFIX}operator-name": f"{kind.definition.name.lower()}-controller",
        f"{PREFIX}job-name": "mnist",
        f"{PREFIX}replica-type": "worker",
        f"{PREFIX}replica-index": "1",
    }
    pod, service = (world.child(child, WORKER_1) for child in ("Pod", "Service"))
    assert marks.items() <= pod["metadata"]["labels"].items()
    assert marks.items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"] == marks
    assert service["spec"]["clusterIP"] == "None"
    for child in (pod, service):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == (kind.definition.name, "uid-1")
        assert owner["controller"] is True
        assert owner["blockOwnerDeletion"] is True


@pytest.mark.parametrize(("kind", "spec"), KINDS)
def test_an_index_above_the_number_goes_and_a_missing_one_comes(
    kind: Kind, spec: dict[str, Any]
) -> None:
    world = started(kind, spec)
    everything = world.names()
    (replicas,) = (value for key, value in spec.items() if key.endswith("ReplicaSpecs"))
    fewer = copy.deepcopy(spec)
    next(v for k, v in fewer.items() if k.endswith("ReplicaSpecs"))["Worker"]["replicas"] = 1
    world.change(fewer).settle()
    assert world.names() == [name for name in everything if not name.endswith(WORKER_1)]
    world.change(spec).settle()
    assert world.names() == everything
    assert replicas["Worker"]["replicas"] == 2


def test_the_exit_code_is_that_of_the_container_that_trains() -> None:
    for code, condition in ((137, "Restarting"), (1, "Failed")):
        world = started(TF, tf_spec(policy="ExitCode", Worker=2)).pods_become("Running").settle()
        side = {"name": "side", "state": {"terminated": {"exitCode": 138 - code}}}
        state = ended(code, container="tensorflow")
        state["containerStatuses"].insert(0, side)
        world.pods_become("Failed", WORKER_1, **state).settle(at(60))
        assert conditions(world)[-1] == condition


def test_tf_config_follows_the_variables_of_the_template() -> None:
    spec = tf_spec(Worker=2)
    container(spec)["env"] = [{"name": "A", "value": "1"}]
    (built,) = started(TF, spec).child("Pod", WORKER_0)["spec"]["containers"]
    assert [one["name"] for one in built["env"]] == ["A", "TF_CONFIG"]


@pytest.mark.parametrize("name", ["mnist-chief-0", "mnist-evaluator-0"])
def test_a_chief_and_an_evaluator_of_dynamic_workers_get_an_empty_cluster(name: str) -> None:
    spec = tf_spec(Chief=1, Evaluator=1, Worker=2) | {"enableDynamicWorker": True}
    (built,) = started(TF, spec).child("Pod", name)["spec"]["containers"]
    config = json.loads(built["env"][-1]["value"])
    assert config["cluster"] == {"worker": {}, "ps": []}
    assert "environment" not in config


def test_every_container_of_v1alpha2_has_tf_config_and_the_only_replica_too() -> None:
    spec = tf_spec(Worker=1)
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].append(
        {"name": "side", "image": "i"}
    )
    world = World(TF, written_as("v1alpha2", spec)).settle()
    for built in world.child("Pod", WORKER_0)["spec"]["containers"]:
        assert [one["name"] for one in built["env"]] == ["TF_CONFIG"]


# ---- conditions and events ----


def told(events: tuple[Event, ...]) -> list[tuple[str, str]]:
    return [(event.reason, event.message) for event in events]


@pytest.mark.parametrize(("kind", "spec"), KINDS)
def test_reasons_messages_and_events_of_a_job_that_succeeds(
    kind: Kind, spec: dict[str, Any]
) -> None:
    world = World(kind, job("mnist", spec))
    name = kind.definition.name
    assert told(world.plan().events) == [(f"{name}Created", f"{name} mnist is created.")]
    world.settle().pods_become("Running")
    assert told(world.plan().events) == [(f"{name}Running", f"{name} mnist is running.")]
    world.settle().pods_become("Succeeded", MASTER)
    done = f"{name} mnist is successfully completed."
    assert told(world.plan().events) == [(f"{name}Succeeded", done)]
    world.settle()
    listed = [(one["reason"], one["message"]) for one in world.status["conditions"]]
    assert listed == [
        (f"{name}Created", f"{name} mnist is created."),
        (f"{name}Running", f"{name} mnist is running."),
        (f"{name}Succeeded", done),
    ]


@pytest.mark.parametrize(("kind", "spec"), KINDS)
def test_reasons_of_a_job_that_restarts_is_suspended_and_fails(
    kind: Kind, spec: dict[str, Any]
) -> None:
    name = kind.definition.name
    world = started(kind, spec).pods_become("Running").settle()
    state = ended(137, container=container_of(kind))
    world.pods_become("Failed", WORKER_0, **state)
    assert f"{name}Restarting" in [event.reason for event in world.plan(at(60)).events]
    world.settle(at(60)).change({**spec, "runPolicy": {"suspend": True}})
    assert f"{name}Suspended" in [event.reason for event in world.plan(at(61)).events]
    world.settle(at(61)).change(spec)
    assert f"{name}Resumed" in [event.reason for event in world.plan(at(62)).events]
    world.settle(at(62)).pods_become("Running").settle(at(63))
    world.pods_become("Failed", WORKER_0, **ended(1, container=container_of(kind)))
    assert f"{name}Failed" in [event.reason for event in world.plan(at(64)).events]
    world.settle(at(64))
    assert world.condition("Failed")["reason"] == f"{name}Failed"
    assert world.status["completionTime"]


@pytest.mark.parametrize(("kind", "spec"), KINDS)
def test_pods_that_pend_give_no_condition(kind: Kind, spec: dict[str, Any]) -> None:
    world = started(kind, spec).pods_become("Pending").settle()
    assert conditions(world) == ["Created"]


CONDITIONS = [
    # what was there, what is set, the list afterwards
    ([State.CREATED], State.RUNNING, ["Created", "Running"]),
    ([State.CREATED, State.RUNNING], State.RUNNING, ["Created", "Running"]),
    ([State.CREATED, State.RUNNING], State.RESTARTING, ["Created", "Restarting"]),
    ([State.CREATED, State.RESTARTING], State.RUNNING, ["Created", "Running"]),
    ([State.RUNNING, State.CREATED], State.SUSPENDED, ["Running", "Created", "Suspended"]),
    ([State.CREATED, State.RUNNING], State.FAILED, ["Created", "not Running", "Failed"]),
    ([State.CREATED, State.RUNNING], State.SUCCEEDED, ["Created", "not Running", "Succeeded"]),
    ([State.CREATED, State.FAILED], State.RUNNING, ["Created", "Failed"]),
    ([State.CREATED, State.FAILED], State.SUCCEEDED, ["Created", "Failed"]),
    ([State.CREATED, State.SUCCEEDED], State.FAILED, ["Created", "Succeeded"]),
]


@pytest.mark.parametrize(("before", "state", "after"), CONDITIONS)
def test_setting_a_condition(before: list[State], state: State, after: list[str]) -> None:
    conditions = Conditions(
        World(PYTORCH, job("mnist", pytorch_spec())).observed(), "PyTorchJob", NOW
    )
    for one in before:
        conditions.set(one, "before")
    conditions.set(state, "now")
    listed = conditions.entries
    assert [f"{'' if one['status'] == 'True' else 'not '}{one['type']}" for one in listed] == after


def test_the_same_status_and_reason_change_nothing_and_another_reason_moves_to_the_end() -> None:
    world = World(PYTORCH, job("mnist", pytorch_spec()))
    conditions = Conditions(world.observed(), "PyTorchJob", NOW)
    for state in (State.RUNNING, State.SUSPENDED):
        conditions.set(state, "first")
    conditions.set(State.RUNNING, "second")
    assert [one["message"] for one in conditions.entries] == ["first", "first"]
    conditions.set(State.RUNNING, "third", truth=Truth.FALSE, cause="Suspended")
    assert [one["type"] for one in conditions.entries] == ["Suspended", "Running"]
    assert conditions.entries[-1]["reason"] == "PyTorchJobSuspended"


def test_a_running_pod_that_is_being_deleted_is_neither_active_nor_failed() -> None:
    """The operator counts the pod as failed. edgeai replaces the pod when the pod is gone."""
    world = started(PYTORCH, pytorch_spec()).pods_become("Running").settle()
    world.child("Pod", WORKER_1)["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert numbers(world.settle())["Worker"] == {"active": 1}


# ---- the run policy ----

LIMITS = [
    # backoffLimit, restarts, whether the job has failed
    (0, 0, False),
    (0, 1, True),
    (1, 1, True),
    (2, 1, False),
    (2, 2, True),
]


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
@pytest.mark.parametrize(("limit", "restarts", "has_failed"), LIMITS)
def test_the_backoff_limit(policy: str, limit: int, restarts: int, has_failed: bool) -> None:
    world = started(PYTORCH, pytorch_spec(policy=policy, run={"backoffLimit": limit}))
    state = {"containerStatuses": [{"name": "pytorch", "restartCount": restarts}]}
    world.pods_become("Running").pods_become("Running", WORKER_0, **state).settle()
    assert (conditions(world)[-1] == "Failed") is has_failed


@pytest.mark.parametrize("run", [{"backoffLimit": 0}, {"activeDeadlineSeconds": 30}])
def test_a_job_that_fails_by_a_limit_is_cleaned_up(run: dict[str, Any]) -> None:
    """The training operator did so only since 1.9.4."""
    world = started(PYTORCH, pytorch_spec(run={**run, "cleanPodPolicy": "All"}))
    state = {"containerStatuses": [{"name": "pytorch", "restartCount": 1}]}
    world.pods_become("Running", **(state if "backoffLimit" in run else {})).settle(at(40))
    assert conditions(world)[-1] == "Failed"
    assert world.names() == []


@pytest.mark.parametrize(("policy", "left"), [("None", [WORKER_1]), ("Running", []), ("All", [])])
def test_no_policy_keeps_a_pod_that_has_not_started(policy: str, left: list[str]) -> None:
    world = started(PYTORCH, pytorch_spec(run={"cleanPodPolicy": policy}))
    world.pods_become("Succeeded", MASTER).pods_become("Pending", WORKER_0)
    world.pods_become("Running", WORKER_1).settle()
    assert [name for name in pods(world) if name != MASTER] == left


def test_a_clean_pod_policy_and_a_time_to_live_wait_for_the_end() -> None:
    run = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0}
    world = started(PYTORCH, pytorch_spec(run=run)).pods_become("Running").settle()
    world.pods_become("Succeeded", WORKER_0).settle(at(10**6))
    assert pods(world) == [MASTER, WORKER_0, WORKER_1]
    world.change(pytorch_spec(run={**run, "suspend": True})).settle(at(10**6))
    plan = world.plan(at(10**7))
    assert not plan.actions
    assert plan.status is None


@pytest.mark.parametrize(("kind", "spec"), KINDS)
def test_a_finished_job_makes_no_pod(kind: Kind, spec: dict[str, Any]) -> None:
    world = started(kind, spec).pods_become("Running").settle()
    world.pods_become("Succeeded", MASTER).settle()
    world.children.clear()
    plan = world.plan(at(60))
    assert not plan.actions
    assert plan.status is None


# ---- events beside those of conditions ----


@pytest.mark.parametrize(("kind", "spec"), KINDS)
@pytest.mark.parametrize(("code", "has_ended"), [(137, False), (1, True)])
def test_an_exit_with_an_error_is_told_once(
    kind: Kind, spec: dict[str, Any], code: int, has_ended: bool
) -> None:
    world = started(kind, spec).pods_become("Running").settle()
    world.pods_become("Failed", WORKER_0, **ended(code, container=container_of(kind)))
    found = []
    for _ in range(5):
        plan = world.plan(at(60))
        found += told(plan.events)
        world.apply(plan)
    message = f"Pod: default.{WORKER_0} exited with code {code}"
    assert found.count(("ExitedWithCode", message)) == 1
    assert (conditions(world)[-1] == "Failed") is has_ended


def test_an_exit_of_a_dynamic_worker_that_ends_nothing_is_not_told_again_and_again() -> None:
    spec = tf_spec(PS=1, Worker=2) | {"enableDynamicWorker": True}
    world = started(TF, spec).pods_become("Running").settle()
    world.pods_become("Failed", WORKER_1, **ended(1, container="tensorflow")).settle(at(1))
    assert not world.plan(at(2)).events


def test_a_restart_policy_of_the_template_that_has_no_effect_is_told_once() -> None:
    spec = pytorch_spec(policy="Never")
    spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["restartPolicy"] = "Always"
    world = World(PYTORCH, job("mnist", spec))
    reasons = [event.reason for event in world.plan().events]
    assert reasons.count("SetPodTemplateRestartPolicy") == 1
    world.settle()
    assert not world.plan().events


@pytest.mark.parametrize("kind", [PYTORCH, TF], ids=["PyTorchJob", "TFJob"])
def test_the_reasons_of_the_events_about_children(kind: Kind) -> None:
    reason = kind.event_reason
    assert reason("Created", PODS) == "SuccessfulCreatePod"
    assert reason("Created", SERVICES) == "SuccessfulCreateService"
    assert reason("Deleted", PODS) == "SuccessfulDeletePod"
    assert reason("Deleted", SERVICES) == "SuccessfulDeleteService"
    assert reason("Deleted", kind.definition.resources[0]) == "SuccessfulDeleteJob"
    assert reason("Replaced", SERVICES) == "Replaced"
