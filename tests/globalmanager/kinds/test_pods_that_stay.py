"""A pod that is deleted and does not go, in every place where a job could wait for its end.

A finalizer keeps the pod, or its node is lost. docs/troubleshooting.md has the same table.
"""

from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from edgeai.api.deletions import OVERDUE_S, TERMINATING
from edgeai.api.resources import PODS, ObjectRef
from edgeai.times import rfc3339
from globalmanager.contract import Delete, Refusal
from globalmanager.kinds.training import pytorchjob, tfjob
from tests.globalmanager.kinds.edge.samples import (
    federated_job,
    federated_learning_spec,
    small_service,
)
from tests.globalmanager.kinds.elastic.world import (
    LAUNCHER,
    ElasticWorld,
    created,
    example,
    training,
    worker,
)
from tests.globalmanager.kinds.training.samples import (
    conditions,
    pods,
    pytorch_spec,
    started,
    tf_spec,
)
from tests.support.world import GRACE_S, World, at, merged, terminating

PAGE: Final = Path(__file__).parents[3] / "docs" / "troubleshooting.md"
LATE: Final = GRACE_S + OVERDUE_S
FOR_EVER: Final = 7 * 86400.0
READ: Final = 20.0  # seconds after which the launcher has surely read a list of hosts
MASTER, WORKER_0, WORKER_1 = "mnist-master-0", "mnist-worker-0", "mnist-worker-1"
TRAINER: Final = "digits-train-0"
SUSPENDED: Final = "job-supervisor.kube-ai.io/job-suspended"


class Place(NamedTuple):
    """One row of the page."""

    place: str
    wait: str
    """For what the job waits, and how long at most."""
    told: str
    reserved: str
    others: str
    """What goes on meanwhile."""
    tests: tuple[str, ...]
    """In this file."""


NOTHING: Final = "nothing"
NO: Final = "does not wait"
STALLED: Final = "condition `Stalled`, reason `Terminating`"
PLACES: Final = (
    Place(
        "ScaleIn of a TrainingJob",
        "for the end of the workers' pods: `timeout` after their deletion",
        "message of the ScaleIn, which succeeds",
        "the index of the worker, for ever",
        "the job, and after the `timeout` the next scalers",
        (
            "test_a_scale_in_waits_no_longer_than_its_timeout",
            "test_a_scale_in_waits_no_longer_for_a_long_grace_period",
            "test_a_scale_in_ends_also_where_the_api_accepts_no_deletion",
        ),
    ),
    Place(
        "ScaleOut of a TrainingJob, after such a ScaleIn",
        NO,
        NOTHING,
        "the index of a pod that is still there",
        "the ScaleOut: its workers have new indices",
        (
            "test_a_scale_out_after_a_scale_in_that_left_a_pod_goes_on",
            "test_no_worker_gets_the_index_of_a_pod_that_is_still_there",
        ),
    ),
    Place(
        "ScaleOut whose new worker failed and is made again",
        "for the name: `timeout`",
        "message of the ScaleOut, which fails",
        "the index of the worker, for ever",
        "the job, and after the `timeout` the next scalers",
        ("test_a_scale_out_says_which_pod_kept_the_name",),
    ),
    Place(
        "ScaleOut that takes its workers back",
        NO,
        "message of the ScaleOut, where the API server accepts no deletion",
        "the indices of the workers, for ever",
        "the next scalers",
        (
            "test_a_scale_out_that_gives_up_waits_for_no_end",
            "test_a_scale_out_that_gives_up_ends_also_where_the_api_accepts_no_deletion",
        ),
    ),
    Place(
        "a worker of a TrainingJob that is lost",
        "a worker in the list of hosts: does not wait; another one: 30 s after its grace period",
        "event `WorkerReplaced`, or `WorkerLost` where the policy replaces none",
        "the index of the worker, for ever",
        "the job, with a worker of a new index",
        ("test_a_lost_worker_is_replaced",),
    ),
    Place(
        "restart of the launcher of a TrainingJob",
        "for the name, without a limit: two launchers would write one checkpoint",
        STALLED,
        "the name of the launcher",
        "the workers; scalers wait",
        ("test_a_launcher_waits_for_its_name_and_the_job_says_so",),
    ),
    Place(
        "restart of a replica of a TFJob or PyTorchJob",
        "for the name, without a limit but `activeDeadlineSeconds`; of a pod without contact: "
        "the grace time of the job, then the pod is deleted by force",
        STALLED,
        "the name of the replica",
        "the other replicas",
        (
            "test_a_replica_waits_for_its_name_and_the_job_says_so",
            "test_a_replica_that_waits_for_its_name_keeps_the_deadline_of_its_job",
            "test_a_lost_pod_with_a_finalizer_is_deleted_by_force_once_and_told",
        ),
    ),
    Place(
        "restart of all replicas (`restartScope: Job`)",
        "for the end of all pods of the attempt before, as for one replica",
        STALLED,
        "the names of all replicas",
        NOTHING,
        ("test_a_whole_job_waits_for_all_its_names_and_says_so",),
    ),
    Place(
        "fewer replicas of a PyTorchJob, and then more",
        "fewer: does not wait; more: for the name, as a restart",
        STALLED,
        "the name of the replica",
        "the other replicas",
        ("test_a_replica_that_comes_back_waits_for_its_name",),
    ),
    Place(
        "suspension of a job",
        NO,
        "the job is `Suspended` at once; " + STALLED + ", as long as a pod is there",
        "the names of the pods",
        NOTHING,
        (
            "test_a_suspended_job_says_which_pod_keeps_its_room",
            "test_a_suspended_federated_job_says_which_pod_keeps_its_room",
        ),
    ),
    Place(
        "resumption of a TFJob or PyTorchJob",
        "for the name, as a restart",
        STALLED,
        "the name of the replica",
        "the other replicas",
        ("test_a_resumed_job_waits_for_its_names_and_says_so",),
    ),
    Place(
        "resumption of a TrainingJob",
        "workers: 30 s after the grace period, then they get new indices; launcher: as a restart",
        STALLED,
        "the names of the pods",
        "the workers",
        ("test_a_resumed_elastic_job_gets_workers_with_new_indices",),
    ),
    Place(
        "clean-up after the end (`cleanPodPolicy`)",
        NO,
        NOTHING,
        "the names of the pods",
        "the job has ended; its time to live passes",
        ("test_a_job_ends_without_waiting_for_its_pods",),
    ),
    Place(
        "deletion after `ttlSecondsAfterFinished`",
        NO,
        NOTHING,
        "the names of the pods",
        "the job is gone",
        ("test_a_job_is_deleted_after_its_time_to_live",),
    ),
    Place(
        "an edit of a FederatedLearningJob, or a worker that is made again",
        "for the name, without a limit",
        "condition `Training` False, reason `Terminating`",
        "the name of the worker",
        "the other workers",
        ("test_a_trainer_waits_for_its_name_and_the_job_says_so",),
    ),
    Place(
        "trainers after the result of a FederatedLearningJob",
        NO,
        NOTHING,
        "the names of the pods",
        "the job is `Complete`",
        ("test_a_federation_is_complete_without_waiting_for_its_pods",),
    ),
    Place(
        "an edit of a JointInferenceService",
        "does not wait: its Deployment replaces the pod under another name",
        f"{STALLED}, and the message of `Running`, which stays True",
        NOTHING,
        "the service",
        ("test_a_service_goes_on_beside_a_pod_that_stays",),
    ),
    Place(
        "a job that is deleted",
        "does not wait: its nodes are told at once. The job itself stays only with "
        "`--cascade=foreground`",
        NOTHING,
        "the names of the pods",
        "all others",
        ("test_a_deleted_job_plans_nothing",),
    ),
    Place(
        "a job that is made again under its name",
        "for the names, without a limit",
        "reason `Terminating`, of `Stalled`, `Running` or `Training`",
        "the names of the pods",
        "all others",
        ("test_a_new_job_of_the_same_name_says_what_keeps_the_name",),
    ),
)


def row(each: Place) -> str:
    return f"| {each.place} | {each.wait} | {each.told} | {each.reserved} | {each.others} |"


@pytest.mark.parametrize("each", PLACES, ids=[each.place for each in PLACES])
def test_each_place_is_a_row_of_the_page_and_has_its_tests(each: Place) -> None:
    assert row(each) in PAGE.read_text(encoding="utf-8").splitlines()
    assert each.tests
    for name in each.tests:
        assert callable(globals()[name])


def test_the_page_has_no_other_row() -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## A pod that does not go")
    _, _, table = section.partition("\n## ")[0].partition("| place |")
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    assert lines == [row(each) for each in PLACES]


# ---- samples ------------------------------------------------------------------------------------


def deleted(world: World, *names: str, seconds: float = 0.0, **metadata: Any) -> None:
    """Somebody deletes these pods, and they stay. Args: metadata: of the pods"""
    for name in names:
        ref = ObjectRef(PODS, "default", name)
        marked = terminating(world.children[ref], at(seconds))
        world.children[ref] = merged(marked, {"metadata": metadata})


def finalized(world: World, *names: str) -> None:
    """The kubelet has confirmed the end of these pods, and somebody's finalizer keeps them."""
    finalizers = ["storage.example.com/flush"]
    deleted(world, *names, deletionGracePeriodSeconds=0, finalizers=finalizers)


def on_node(world: World, name: str, node: str = "edge1") -> None:
    ref = ObjectRef(PODS, "default", name)
    world.children[ref] = merged(world.children[ref], {"spec": {"nodeName": node}})


def stalled(world: World) -> tuple[str, str]:
    found = world.condition("Stalled")
    return found.get("reason", ""), found.get("message", "")


def deletions_of(world: World, seconds: float) -> list[str]:
    actions = (one for one in world.plan(at(seconds)).actions if isinstance(one, Delete))
    return [one.ref.name for one in actions if one.ref.type == PODS]


# ---- scalers of a TrainingJob -------------------------------------------------------------------


def scaling_in(timeout: int = 10, **metadata: Any) -> ElasticWorld:
    """A ScaleIn of worker 1 whose pod was deleted at READ seconds and does not go."""
    world = training(example(worker={"replicas": 3}))
    on_node(world, worker(1))
    world.scale_in(worker(1), timeout=timeout).settle(at(READ)).end(exit_code=0)
    world.terminates = True
    world.settle(at(READ))
    ref = ObjectRef(PODS, "default", worker(1))
    world.children[ref] = merged(world.children[ref], {"metadata": metadata})
    return world


def test_a_scale_in_waits_no_longer_than_its_timeout() -> None:
    world = scaling_in(timeout=10)
    world.settle(at(READ + 9))
    assert world.state("in")["phase"] == "ScriptExecuted"
    assert world.plan(at(READ + 9)).requeue_after_s == 1
    world.settle(at(READ + 10))
    told = world.state("in")
    assert told["phase"] == "ScaleSucceeded"
    assert f"within 10 s (spec.timeout) 1 pods did not go: pod {worker(1)}" in told["message"]
    assert "on node edge1: Terminating: its node has not confirmed its end" in told["message"]
    assert (world.status["phase"], world.status.get("currentScaler")) == ("Running", None)


def test_a_scale_in_waits_no_longer_for_a_long_grace_period() -> None:
    world = scaling_in(
        timeout=10,
        deletionTimestamp=rfc3339(at(READ + 86400)),
        deletionGracePeriodSeconds=86400,
    )
    assert world.settle(at(READ + 9)).state("in")["phase"] == "ScriptExecuted"
    assert world.settle(at(READ + 10)).state("in")["phase"] == "ScaleSucceeded"


def test_a_scale_in_waits_no_longer_by_the_clock_of_another_machine() -> None:
    world = scaling_in(timeout=10, deletionTimestamp=rfc3339(at(86400)))
    assert world.settle(at(READ)).state("in")["phase"] == "ScaleSucceeded"


def test_a_scale_in_whose_pods_go_in_time_says_nothing_of_them() -> None:
    world = scaling_in(timeout=10).end_deleted()
    world.settle(at(READ + 5))
    assert world.state("in")["message"] == "TrainingJob elastic-training has 2 workers"


def test_a_scale_in_ends_also_where_the_api_accepts_no_deletion() -> None:
    world = training(example(worker={"replicas": 3}))
    world.scale_in(worker(1), timeout=10).settle(at(READ)).end(exit_code=0)
    world.refuses = True
    for seconds in (READ, READ + 30, READ + 89):
        carry_out(world, seconds)
        assert world.state("in")["phase"] == "ScriptExecuted"
    carry_out(world, READ + 90)  # three timeouts and a minute
    told = world.state("in")
    assert told["phase"] == "ScaleSucceeded"
    assert "the API server has not accepted its deletion" in told["message"]


def carry_out(world: World, seconds: float) -> None:
    """Some plans, also where they do not settle."""
    for _ in range(5):
        world.apply(world.plan(at(seconds)))


def test_a_scale_out_after_a_scale_in_that_left_a_pod_goes_on() -> None:
    world = scaling_in(timeout=10).scale_out(1, name="out", age=-1)
    world.settle(at(READ + 10)).pods_become("Running", worker(3)).settle(at(READ + 20))
    assert world.state("out")["phase"] == "ScaleSucceeded"
    assert world.workers() == [0, 1, 2, 3], "worker 1 is still there"
    assert world.status["targetWorkers"] == [worker(0), worker(2), worker(3)]


def test_no_worker_gets_the_index_of_a_pod_that_is_still_there() -> None:
    """The status of a job of the et-operator does not tell the next index."""
    world = training(example(worker={"replicas": 3}))
    deleted(world, worker(2))
    world.object["status"]["targetWorkers"] = [worker(0), worker(1)]
    del world.object["status"]["nextWorkerIndex"]
    world.scale_out(1).settle()
    assert world.state("out")["addPods"] == [worker(3)]
    assert f"Pod/{worker(3)}" in world.names()


def test_a_scale_out_says_which_pod_kept_the_name() -> None:
    world = training().scale_out(1, timeout=30).settle()
    world.pods_become("Failed", worker(2), reason="Evicted")
    world.terminates = True
    world.settle(at(6))
    finalized(world, worker(2))
    world.settle(at(29))
    assert world.state("out")["phase"] == "Scaling"
    world.settle(at(30))
    told = world.state("out")
    assert told["phase"] == "ScaleFailed"
    assert f"{worker(2)} did not run within 30 s" in told["message"]
    assert "finalizers storage.example.com/flush" in told["message"]
    assert world.status["targetWorkers"] == [worker(0), worker(1)]


def test_a_scale_out_that_gives_up_waits_for_no_end() -> None:
    world = training().scale_out(1, timeout=5).settle()
    world.terminates = True
    assert world.settle(at(5)).state("out")["phase"] == "ScaleFailed"
    world.scale_out(1, name="next").settle(at(6))
    assert world.state("next")["addPods"] == [worker(3)]


def test_a_scale_out_that_gives_up_ends_also_where_the_api_accepts_no_deletion() -> None:
    world = training().scale_out(1, timeout=5).settle()
    world.refuses = True
    carry_out(world, 5)
    assert world.state("out")["phase"] == "Scaling"
    assert world.plan(at(5)).requeue_after_s == 5 + 60 + 5
    carry_out(world, 75)
    assert world.state("out")["phase"] == "ScaleFailed"
    assert "the API server has not accepted its deletion" in world.state("out")["message"]


# ---- a TrainingJob without scalers --------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "target", "event"),
    [
        ("ExitCode", [worker(0), worker(2)], "WorkerReplaced"),
        ("Never", [worker(0)], "WorkerLost"),
    ],
)
def test_a_lost_worker_is_replaced(policy: str, target: list[str], event: str) -> None:
    world = training(example(worker={"replicas": 2, "restartPolicy": policy}))
    deleted(world, worker(1))
    assert event in [one.reason for one in world.plan().events]
    world.settle()
    assert world.status["targetWorkers"] == target
    waits = created(example(worker={"replicas": 2, "restartPolicy": policy}))
    deleted(waits, worker(1))
    waits.settle(at(LATE - 1))
    assert waits.status["targetWorkers"] == [worker(0), worker(1)]
    assert waits.settle(at(LATE)).status["targetWorkers"] == target


def test_a_launcher_waits_for_its_name_and_the_job_says_so() -> None:
    world = training(example(restartPolicy="OnFailure")).pods_become("Failed", LAUNCHER)
    world.terminates = True
    world.settle(at(2))
    finalized(world, LAUNCHER)
    world.scale_out(1).settle(at(FOR_EVER))
    assert stalled(world) == (
        TERMINATING,
        f"pod {LAUNCHER}: Terminating: it has the finalizers storage.example.com/flush and stays "
        "until their controllers remove them",
    )
    assert world.status["phase"] == "Restarting"
    assert world.state("out")["phase"] == "Created"
    assert world.workers() == [0, 1]
    world.end_deleted().settle(at(FOR_EVER)).pods_become("Running").settle(at(FOR_EVER))
    assert (world.status["phase"], stalled(world)) == ("Scaling", ("", ""))


def test_a_resumed_elastic_job_gets_workers_with_new_indices() -> None:
    world = training()
    world.terminates = True
    world.object["metadata"]["annotations"] = {SUSPENDED: "true"}
    world.settle()
    world.object["metadata"]["annotations"] = {}
    world.settle(at(LATE - 1))
    assert world.status["targetWorkers"] == [worker(0), worker(1)]
    world.settle(at(LATE))
    assert world.status["targetWorkers"] == [worker(2), worker(3)]
    world.pods_become("Running", worker(2), worker(3)).settle(at(LATE))
    assert (world.status["phase"], stalled(world)[0]) == ("WorkersReady", TERMINATING)


# ---- TFJob and PyTorchJob -----------------------------------------------------------------------


def training_job(**run: Any) -> World:
    spec = pytorch_spec(2, policy="OnFailure", run=run)
    return started(pytorchjob.KIND, spec).pods_become("Running").settle()


def test_a_replica_waits_for_its_name_and_the_job_says_so() -> None:
    world = training_job()
    world.terminates = True
    on_node(world, WORKER_0)
    world.pods_become("Failed", WORKER_0).settle(at(2))
    deleted(world, WORKER_0, seconds=2)
    assert world.plan(at(2)).requeue_after_s == LATE
    assert stalled(world) == ("", "")
    world.settle(at(2 + LATE))
    assert stalled(world) == (
        TERMINATING,
        f"pod {WORKER_0} on node edge1: Terminating: its node has not confirmed its end; where the "
        "node is lost for good, delete the Node",
    )
    assert world.plan(at(FOR_EVER)).actions == ()
    assert world.status["replicaStatuses"]["Master"]["active"] == 1
    world.end_deleted().settle(at(FOR_EVER))
    assert pods(world) == [MASTER, WORKER_0, WORKER_1]
    assert stalled(world) == ("", "")


def test_a_replica_that_waits_for_its_name_keeps_the_deadline_of_its_job() -> None:
    world = training_job(activeDeadlineSeconds=600)
    world.terminates = True
    world.pods_become("Failed", WORKER_0).settle(at(2))
    assert world.settle(at(600)).condition("Failed")["status"] == "True"


def test_a_lost_pod_with_a_finalizer_is_deleted_by_force_once_and_told() -> None:
    world = training_job()
    on_node(world, WORKER_0)
    silent = {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(at(0))}
    world.pods_become("Running", WORKER_0, conditions=[silent])
    world.contact("edge1", connected=False)
    seconds = FOR_EVER / 2
    for _ in range(9):
        plan = world.plan(at(seconds))
        forced = [one for one in plan.actions if isinstance(one, Delete)]
        if forced:
            break
        world.apply(plan)
    assert [(one.ref.name, one.is_forced) for one in forced] == [(WORKER_0, True)]
    finalized(world, WORKER_0)
    world.settle(at(seconds))
    assert deletions_of(world, FOR_EVER) == []
    world.settle(at(FOR_EVER))
    assert stalled(world)[0] == TERMINATING
    assert "finalizers storage.example.com/flush" in stalled(world)[1]


def test_a_whole_job_waits_for_all_its_names_and_says_so() -> None:
    world = training_job(restartScope="Job")
    world.terminates = True
    world.pods_become("Failed", WORKER_0).settle(at(2))
    world.gone("Pod", MASTER).gone("Pod", WORKER_0)
    deleted(world, WORKER_1, seconds=2)
    world.settle(at(2))
    assert pods(world) == [WORKER_1], "none joins a process of the attempt before"
    world.settle(at(FOR_EVER))
    assert pods(world) == [WORKER_1]
    assert stalled(world)[0] == TERMINATING
    world.end_deleted().settle(at(FOR_EVER))
    assert pods(world) == [MASTER, WORKER_0, WORKER_1]


def test_a_replica_that_comes_back_waits_for_its_name() -> None:
    world = training_job()
    world.terminates = True
    world.change(pytorch_spec(1, policy="OnFailure")).settle()
    assert (deletions_of(world, FOR_EVER), stalled(world)) == ([], ("", ""))
    world.change(pytorch_spec(2, policy="OnFailure")).settle(at(FOR_EVER))
    assert stalled(world)[0] == TERMINATING
    assert WORKER_1 in stalled(world)[1]
    world.end_deleted().settle(at(FOR_EVER))
    assert WORKER_1 in pods(world)


def suspended_jobs() -> list[tuple[str, World, str]]:
    """(kind, a suspended job whose pods stay, one of its pods)"""
    jobs = []
    for kind, spec in (
        (pytorchjob.KIND, pytorch_spec(2)),
        (tfjob.KIND, tf_spec(Worker=2)),
    ):
        world = started(kind, spec).pods_become("Running").settle()
        world.terminates = True
        world.change({**spec, "runPolicy": {"suspend": True}})
        jobs.append((kind.definition.name, world, WORKER_0))
    elastic = training()
    elastic.terminates = True
    elastic.object["metadata"]["annotations"] = {SUSPENDED: "true"}
    return [*jobs, ("TrainingJob", elastic, LAUNCHER)]


@pytest.mark.parametrize("number", range(3), ids=["PyTorchJob", "TFJob", "TrainingJob"])
def test_a_suspended_job_says_which_pod_keeps_its_room(number: int) -> None:
    kind, world, name = suspended_jobs()[number]
    world.settle()
    assert conditions(world)[-1] == "Suspended"
    assert stalled(world) == ("", "")
    assert world.plan().requeue_after_s == LATE, f"{kind} looks again"
    world.settle(at(LATE))
    assert stalled(world)[0] == TERMINATING
    assert conditions(world)[0] == "Stalled"
    assert conditions(world)[-1] == "Suspended"
    world.end_deleted().settle(at(LATE))
    assert stalled(world) == ("", "")
    assert name not in pods(world)


def test_a_suspended_federated_job_says_which_pod_keeps_its_room() -> None:
    world = federated_job().contact("edge0").contact("edge1").settle()
    world.pods_become("Running").settle().terminates = True
    world.change(federated_learning_spec(suspend=True)).settle()
    assert world.condition("Suspended")["status"] == "True"
    assert (stalled(world), world.plan().requeue_after_s) == (("", ""), LATE)
    world.settle(at(LATE))
    assert stalled(world)[0] == TERMINATING
    world.end_deleted().settle(at(LATE))
    assert (stalled(world), pods(world)) == (("", ""), [])


def test_a_resumed_job_waits_for_its_names_and_says_so() -> None:
    world = training_job()
    world.terminates = True
    world.change(pytorch_spec(2, policy="OnFailure", run={"suspend": True})).settle()
    world.gone("Pod", MASTER)
    world.change(pytorch_spec(2, policy="OnFailure")).settle(at(LATE))
    assert stalled(world)[0] == TERMINATING
    assert MASTER in pods(world), "the other replicas do not wait"


@pytest.mark.parametrize("name", ["PyTorchJob", "TrainingJob"])
def test_a_job_ends_without_waiting_for_its_pods(name: str) -> None:
    if name == "PyTorchJob":
        world = training_job(cleanPodPolicy="All").pods_become("Succeeded", MASTER)
    else:
        world = training().pods_become("Succeeded", LAUNCHER)
    world.terminates = True
    world.settle()
    assert world.condition("Succeeded")["status"] == "True"
    settled = world.object["status"]
    assert world.settle(at(FOR_EVER)).object["status"] == settled
    assert world.plan(at(FOR_EVER)).actions == ()


def test_a_job_is_deleted_after_its_time_to_live() -> None:
    world = training_job(cleanPodPolicy="All", ttlSecondsAfterFinished=60)
    world.terminates = True
    world.pods_become("Succeeded", MASTER).settle()
    (delete,) = world.plan(at(60)).actions
    assert isinstance(delete, Delete)
    assert delete.ref == world.observed().ref


# ---- FederatedLearningJob and JointInferenceService ---------------------------------------------


def test_a_trainer_waits_for_its_name_and_the_job_says_so() -> None:
    world = federated_job().settle().pods_become("Running").settle()
    on_node(world, TRAINER)
    deleted(world, TRAINER)
    world.settle()
    assert world.condition("Training")["reason"] == "Starting"
    assert world.plan(at(LATE - 1)).requeue_after_s == 1
    world.settle(at(LATE))
    told = world.condition("Training")
    assert (told["status"], told["reason"]) == ("False", TERMINATING)
    assert told["message"].startswith(f"pod {TRAINER} on node edge1: Terminating: ")
    assert world.status["phase"] == "Pending"
    world.end_deleted().settle(at(LATE)).pods_become("Running").settle(at(LATE))
    assert world.condition("Training")["status"] == "True"


def test_a_federation_is_complete_without_waiting_for_its_pods() -> None:
    world = federated_job().settle().pods_become("Running").settle()
    world.terminates = True
    world.pods_become("Succeeded", "digits-aggregation").settle()
    world.settle(at(FOR_EVER))
    assert world.condition("Complete")["status"] == "True"
    assert deletions_of(world, FOR_EVER) == []


def test_a_service_goes_on_beside_a_pod_that_stays() -> None:
    world = small_service().settle().available("cloud", "edge").pod("edge", "edge0").settle()
    world.pods[0] = terminating(world.pods[0])
    world.settle(at(LATE - 1))
    assert stalled(world) == ("", "")
    world.settle(at(LATE))
    assert stalled(world)[0] == TERMINATING
    assert stalled(world)[1].startswith("pod edge-0 on node edge0: Terminating: its node has not")
    running = world.condition("Running")
    assert (running["status"], running["reason"]) == ("True", "WorkersAvailable")
    assert stalled(world)[1] in running["message"]
    world.pods.clear()
    world.settle(at(FOR_EVER))
    assert stalled(world) == ("", "")


def edge_training_job() -> World:
    world = training_job()
    on_node(world, WORKER_0)
    return world


@pytest.mark.parametrize(
    ("make", "nodes"),
    [
        (federated_job, ["edge0", "edge1"]),
        (edge_training_job, ["edge1"]),
        (training, []),  # no node needs to know of its pods
        (small_service, ["edge0"]),
    ],
)
def test_a_deleted_job_plans_nothing(make: Any, nodes: list[str]) -> None:
    world: World = make().settle()
    before = world.kind.assignments(world.observed())
    assert sorted(node for node, each in before.items() if each.body.workers) == nodes
    plan = world.delete().plan(at(FOR_EVER))
    assert (plan.actions, plan.status, plan.requeue_after_s) == ((), None, None)
    held = world.kind.assignments(world.observed())
    assert all(not each.body.workers for each in held.values())


@pytest.mark.parametrize(
    ("make", "type_"),
    [
        (federated_job, "Training"),
        (lambda: World(pytorchjob.KIND, training_job().object), "Stalled"),
        (lambda: ElasticWorld(example()), "Stalled"),
        (small_service, "Running"),
    ],
)
def test_a_new_job_of_the_same_name_says_what_keeps_the_name(make: Any, type_: str) -> None:
    world: World = make()
    text = "an earlier Pod default/x is still being deleted: it has the finalizers a/b"
    world.refusal = Refusal(TERMINATING, text)
    world.apply(world.plan())
    told = world.condition(type_)
    assert (told["reason"], told["message"]) == (TERMINATING, text)
    assert world.status.get("phase") != "Failed"
