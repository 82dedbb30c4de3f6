"""TrainingJobs that lose workers, their launcher, or both; restarts, suspension, clean-up."""

from typing import Any

import pytest

from edgeai.api.resources import Object
from globalmanager.contract import Create, Refusal
from globalmanager.kinds.elastic.trainingjob import KIND
from tests.globalmanager.kinds.elastic.world import (
    JOB,
    LAUNCHER,
    created,
    example,
    launched,
    running,
    training,
    worker,
)
from tests.globalmanager.kinds.training.samples import ended, pods
from tests.support.world import World, at

EVICTED: dict[str, Any] = {"reason": "Evicted", "message": "The node was low on resource: memory."}
PREEMPTED: dict[str, Any] = {
    "conditions": [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ]
}
SHUT_DOWN: dict[str, Any] = {"reason": "Terminated", "message": "Pod was terminated in response"}
REFUSED: dict[str, Any] = {"reason": "OutOfcpu", "message": "Node didn't have enough resource"}
LATE: dict[str, Any] = {"reason": "DeadlineExceeded"}


def conditions(world: World) -> dict[str, bool]:
    return {one["type"]: one["status"] == "True" for one in world.status["conditions"]}


def terminating(world: World, *names: str) -> World:
    """A node or the user deletes these pods, and they are still there."""
    for ref, child in world.children.items():
        if ref.type.kind == "Pod" and ref.name in names:
            child["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:35Z"
    return world


# ---- workers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "phase", "state", "is_replaced"),
    [
        (None, "Failed", EVICTED, True),
        (None, "Failed", PREEMPTED, True),
        (None, "Failed", SHUT_DOWN, True),
        (None, "Failed", REFUSED, True),
        (None, "Failed", LATE, False),
        (None, "Failed", ended(1, container="mnist-elastic"), False),
        (None, "Failed", ended(137, container="mnist-elastic"), True),
        (None, "Succeeded", {}, False),
        ("Never", "Failed", EVICTED, False),
        ("Never", "Failed", ended(137, container="mnist-elastic"), False),
        ("OnFailure", "Failed", EVICTED, True),
        ("OnFailure", "Failed", ended(1, container="mnist-elastic"), True),
        ("OnFailure", "Succeeded", {}, False),
        ("Always", "Failed", ended(1, container="mnist-elastic"), True),
        ("Always", "Succeeded", {}, True),
        ("ExitCode", "Failed", EVICTED, True),
        ("ExitCode", "Failed", ended(1, container="mnist-elastic"), False),
        ("ExitCode", "Failed", ended(137, container="mnist-elastic"), True),
    ],
)
def test_the_policy_says_which_ended_workers_are_replaced(
    policy: str | None, phase: str, state: dict[str, Any], *, is_replaced: bool
) -> None:
    world = running(example(worker={"restartPolicy": policy} if policy else {}))
    world.pods_become(phase, worker(1), **state).settle()
    second = worker(2) if is_replaced else worker(1)
    assert world.status["targetWorkers"] == [worker(0), second]
    assert pods(world) == sorted([LAUNCHER, worker(0), second])
    assert world.status.get("replacedWorkers", 0) == is_replaced
    assert world.status["phase"] == "Running"


@pytest.mark.parametrize(
    ("policy", "target"),
    [(None, [worker(0), worker(2)]), ("Never", [worker(0)]), ("ExitCode", [worker(0), worker(2)])],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_deleted_worker_never_comes_back_under_its_name(
    policy: str | None, target: list[str], *, is_there: bool
) -> None:
    world = running(example(worker={"restartPolicy": policy} if policy else {}))
    if is_there:
        terminating(world, worker(1)).settle()
    else:
        # The watch of a new leader can be late, so a pod counts as gone only after a moment.
        world.gone("Pod", worker(1)).settle()
        assert world.status["targetWorkers"] == [worker(0), worker(1)]
        assert world.condition("Stalled")["reason"] == "WorkersMissing"
        assert world.plan().requeue_after_s == 5.0
        world.settle(at(5))
    assert world.status["targetWorkers"] == target


def test_a_pod_that_a_late_watch_did_not_show_goes_on() -> None:
    world = running()
    hidden = {ref: child for ref, child in world.children.items() if ref.name == worker(1)}
    world.gone("Pod", worker(1)).settle()
    world.children |= hidden
    world.settle(at(3))
    assert world.status["targetWorkers"] == [worker(0), worker(1)]
    assert "Stalled" not in conditions(world)


def test_restarts_are_counted_for_metrics() -> None:
    world = running(example(restartPolicy="OnFailure"))
    before = world.status
    world.pods_become("Failed", LAUNCHER).settle(at(100))
    assert KIND.outcomes(before, world.status)["restarted"] == 1


def test_a_replaced_worker_leaves_the_list_before_its_successor_comes() -> None:
    world = running()
    world.pods_become("Failed", worker(1), **EVICTED).settle(at(20))
    assert world.status["currentWorkers"] == [worker(0)]
    world.pods_become("Running", worker(2)).settle(at(21))
    assert world.status["currentWorkers"] == [worker(0)]
    assert world.plan(at(21)).requeue_after_s == pytest.approx(9.0)
    joining = world.condition("Running")
    assert (joining["status"], joining["reason"]) == ("True", "TrainingJobWorkersJoining")
    assert joining["message"].endswith(f"Its launcher gets within seconds: {worker(2)}")
    world.settle(at(31))
    assert world.status["currentWorkers"] == [worker(0), worker(2)]
    assert world.condition("Running")["reason"] == "TrainingJobRunning"


def test_a_job_that_begins_to_scale_does_not_say_for_long_who_joins() -> None:
    world = training()
    world.pods_become("Failed", worker(1), **EVICTED).settle(at(20))
    world.pods_become("Running", worker(2)).settle(at(21))
    assert world.condition("Running")["reason"] == "TrainingJobWorkersJoining"
    world.scale_out(1).settle(at(22))
    assert world.condition("Running")["reason"] == "TrainingJobRunning"
    assert world.status["phase"] == world.status["conditions"][-1]["type"] == "Scaling"


def test_an_index_is_never_used_twice_even_when_the_highest_worker_was_replaced() -> None:
    world = running()
    for index in range(1, 3):
        world.pods_become("Failed", worker(index), **EVICTED).settle(at(100 * index))
        world.pods_become("Running").settle(at(100 * index + 50))
    assert world.status["targetWorkers"] == [worker(0), worker(3)]
    assert world.status["nextWorkerIndex"] == 4


def test_twelve_workers_keep_the_order_of_their_index() -> None:
    world = running(example(worker={"replicas": 12, "maxReplicas": 12}))
    assert world.status["currentWorkers"] == [worker(index) for index in range(12)]
    world.pods_become("Failed", worker(1), **EVICTED).settle(at(30))
    assert world.status["targetWorkers"] == [worker(i) for i in (0, *range(2, 13))]
    assert f"Pod/{worker(10)}" in world.names()


def test_workers_that_end_again_and_again_are_replaced_ever_more_slowly() -> None:
    world = running(example(worker={"restartPolicy": "Always"}))
    for index in range(1, 4):
        world.pods_become("Failed", worker(index)).settle()
        assert world.status["targetWorkers"][-1] == worker(index + 1)
    world.pods_become("Failed", worker(4))
    assert world.settle().status["targetWorkers"][-1] == worker(4)
    assert world.plan().requeue_after_s == 8.0
    assert world.settle(at(8)).status["targetWorkers"][-1] == worker(5)


def test_a_worker_that_nothing_replaces_leaves_the_list_of_hosts_and_keeps_its_pod() -> None:
    world = (
        running().pods_become("Failed", worker(1), **ended(1, container="mnist-elastic")).settle()
    )
    assert world.status["currentWorkers"] == [worker(0)]
    assert world.status["replicaStatuses"]["Worker"]["failed"] == 1


def test_a_worker_on_a_node_without_contact_stays_in_the_list_until_it_is_evicted() -> None:
    world = running()
    silent = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    world.pods_become("Running", worker(1), conditions=silent).settle()
    assert world.status["currentWorkers"] == [worker(0), worker(1)]
    assert world.condition("Stalled")["reason"] == "NodeNotReady"
    terminating(world, worker(1)).settle(at(300))
    assert world.status["targetWorkers"] == [worker(0), worker(2)]


def test_a_worker_that_is_lost_before_the_launcher_starts_keeps_its_name() -> None:
    world = created().pods_become("Running", worker(0)).settle().gone("Pod", worker(1)).settle()
    assert world.status["targetWorkers"] == [worker(0), worker(1)]
    assert f"Pod/{worker(1)}" in world.names()


def test_a_worker_that_is_lost_before_the_launcher_exists_is_the_reason_not_to_be_ready() -> None:
    world = created(example(worker={"minReplicas": 2})).pods_become("Running")
    assert world.apply(world.plan()).status["phase"] == "WorkersReady"
    world.gone("Pod", LAUNCHER).gone("Pod", worker(1)).settle()
    assert world.status["phase"] == "WorkersCreated"
    condition = world.condition("WorkersReady")
    assert (condition["status"], condition["reason"]) == ("False", "TrainingJobWorkerLost")
    assert "has lost a worker before its launcher started" in condition["message"]


def test_a_worker_whose_node_is_lost_before_the_launcher_starts_is_replaced_in_the_end() -> None:
    world = terminating(created().pods_become("Running"), worker(1)).settle(at(30))
    assert world.status["targetWorkers"] == [worker(0), worker(1)]
    assert world.plan(at(30)).requeue_after_s == 30.0
    world.settle(at(60))
    assert world.status["targetWorkers"] == [worker(0), worker(2)]


def test_a_job_whose_workers_fail_for_good_before_the_launcher_starts_has_failed() -> None:
    world = (
        created(example(worker={"minReplicas": 2}))
        .pods_become("Running")
        .pods_become("Failed", worker(1), **ended(127, container="mnist-elastic"))
    )
    assert world.settle().status["phase"] == "Failed"
    assert "exit code 127" in world.condition("Failed")["message"]


def test_the_launcher_starts_without_a_failed_worker_when_the_others_are_enough() -> None:
    world = created(example(worker={"minReplicas": 1})).pods_become("Running", worker(0))
    world.pods_become("Failed", worker(1)).settle()
    assert world.status["phase"] == "LauncherCreated"
    assert world.status["currentWorkers"] == [worker(0)]


# ---- the launcher -------------------------------------------------------------------------------


def test_a_failed_launcher_ends_a_job_without_a_restart_policy() -> None:
    world = running().pods_become("Failed", LAUNCHER, **ended(2, container="mnist-elastic"))
    assert world.settle().status["phase"] == "Failed"
    assert "exit code 2" in world.condition("Failed")["message"]
    assert conditions(world)["Running"] is False


def test_a_failed_launcher_is_started_again_as_often_as_the_limit_says() -> None:
    world = running(example(restartPolicy="OnFailure", backoffLimit=2))
    for number in (1, 2):
        world.pods_become("Failed", LAUNCHER).settle(at(number * 100))
        assert world.status["phase"] == "Restarting"
        assert world.status["restartCount"] == number
        assert world.child("Pod", LAUNCHER)["metadata"]["annotations"]["edgeai.io/attempt"] == str(
            number
        )
        world.pods_become("Running").settle(at(number * 100 + 50))
        assert world.status["phase"] == "Running"
    world.pods_become("Failed", LAUNCHER).settle(at(1000))
    assert world.status["phase"] == "Failed"
    assert "started again 2 times" in world.condition("Failed")["message"]


def test_a_launcher_that_fails_at_once_is_started_again_after_a_pause() -> None:
    world = running(example(restartPolicy="OnFailure"))
    world.pods_become("Failed", LAUNCHER).settle()
    assert world.plan().requeue_after_s == 1.0
    world.settle(at(1))
    assert world.child("Pod", LAUNCHER)["metadata"]["annotations"]["edgeai.io/attempt"] == "1"


def test_a_restarted_launcher_gets_the_present_list() -> None:
    world = running(example(restartPolicy="OnFailure", worker={"minReplicas": 2}))
    world.pods_become("Failed", worker(0), **EVICTED).pods_become("Failed", LAUNCHER, **EVICTED)
    world.settle(at(100))
    assert f"Pod/{LAUNCHER}" not in world.names(), "it waits for the new worker"
    world.pods_become("Running", worker(2)).settle(at(101))
    hosts = world.child("ConfigMap", f"{JOB}-config")["data"]["hostfile"]
    assert hosts == f"{worker(1)}:1\n{worker(2)}:1\n"
    assert f"Pod/{LAUNCHER}" in world.names()


@pytest.mark.parametrize(("policy", "phase"), [("Never", "Failed"), ("OnFailure", "Restarting")])
def test_a_launcher_whose_pod_is_gone_is_lost_after_a_moment(policy: str, phase: str) -> None:
    world = running(example(restartPolicy=policy)).gone("Pod", LAUNCHER).settle()
    assert world.status["phase"] == "Running"
    assert world.condition("Stalled")["reason"] == "LauncherMissing"
    assert world.plan().requeue_after_s == 5.0
    world.settle(at(5))
    assert world.status["phase"] == phase
    assert (f"Pod/{LAUNCHER}" in world.names()) == (phase == "Restarting")
    assert "Stalled" not in conditions(world)


def test_a_launcher_that_is_deleted_while_it_runs_has_not_succeeded() -> None:
    world = terminating(running(), LAUNCHER).pods_become("Succeeded", LAUNCHER).settle()
    assert world.status["phase"] == "Running"


def test_a_worker_fails_and_the_launcher_too_while_the_manager_is_away() -> None:
    world = launched(example(restartPolicy="OnFailure"))
    world.pods_become("Failed", worker(1), **EVICTED).pods_become("Failed", LAUNCHER).settle(at(9))
    assert world.status["phase"] == "Restarting"
    assert world.status["restartCount"] == 1
    assert world.status["targetWorkers"] == [worker(0), worker(2)]


# ---- suspension ---------------------------------------------------------------------------------

SUSPENDED = "job-supervisor.kube-ai.io/job-suspended"


def annotate(world: World, value: str) -> World:
    world.object["metadata"]["annotations"] = {SUSPENDED: value}
    return world


def suspend(world: World, is_suspended: bool) -> World:
    return world.change({**world.object["spec"], "suspend": is_suspended})


@pytest.mark.parametrize("way", ["field", "annotation"])
def test_a_suspended_job_has_no_children_and_resumes_in_its_size(way: str) -> None:
    world = running()
    world.pods_become("Failed", worker(1), **EVICTED).settle(at(1))
    world.pods_become("Running").settle(at(60))
    (suspend(world, True) if way == "field" else annotate(world, "true")).settle(at(70))
    assert world.names() == []
    assert world.status["phase"] == "Suspended"
    assert [name for name, is_true in conditions(world).items() if is_true] == [
        "Created",
        "Suspended",
    ]
    (suspend(world, False) if way == "field" else annotate(world, "false")).settle(at(80))
    assert world.status["phase"] == "WorkersCreated"
    assert world.status["startTime"] == "2026-01-02T03:05:25Z"
    world.pods_become("Running").settle(at(81))
    world.pods_become("Running").settle(at(82))
    assert world.status["phase"] == "Running"
    assert world.status["currentWorkers"] == [worker(0), worker(2)]
    assert world.condition("Suspended")["reason"] == "TrainingJobResumed"


@pytest.mark.parametrize("lifted", ["field", "annotation"])
def test_a_job_with_both_suspensions_runs_when_both_are_lifted(lifted: str) -> None:
    world = suspend(annotate(running(), "true"), True).settle()
    (suspend(world, False) if lifted == "field" else annotate(world, "false")).settle(at(1))
    assert world.status["phase"] == "Suspended"
    annotate(suspend(world, False), "false").settle(at(2))
    assert world.status["phase"] == "WorkersCreated"


def test_a_job_that_is_created_suspended_makes_nothing() -> None:
    world = created(example(annotations={SUSPENDED: "true"}))
    assert world.names() == []
    assert world.status["phase"] == "Suspended"
    assert "startTime" not in world.status


def test_a_job_that_resumes_while_its_pods_still_end_waits_for_them() -> None:
    world = running()
    plan = annotate(world, "true").plan()
    world.apply(plan)  # the status; the deletions follow
    terminating(world, LAUNCHER, worker(0), worker(1))
    annotate(world, "false").settle()
    assert world.status["phase"] == "Created"
    for name in (LAUNCHER, worker(0), worker(1)):
        world.gone("Pod", name)
    world.settle()
    assert world.status["targetWorkers"] == [worker(0), worker(1)]
    assert world.status["phase"] == "WorkersCreated"
    assert "restartCount" not in world.status


def test_a_launcher_that_succeeded_before_the_suspension_ends_the_job() -> None:
    world = annotate(running().pods_become("Succeeded", LAUNCHER), "true").settle()
    assert world.status["phase"] == "Succeeded"


def test_a_suspended_job_keeps_its_end() -> None:
    world = running().pods_become("Succeeded", LAUNCHER).settle()
    annotate(world, "true").settle()
    assert world.status["phase"] == "Succeeded"


# ---- the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (None, [LAUNCHER, worker(1)]),
        ("Running", [LAUNCHER, worker(1)]),
        ("All", [LAUNCHER]),
        ("None", [LAUNCHER, worker(0), worker(1)]),
    ],
)
def test_the_policy_says_which_workers_stay_at_the_end(policy: str | None, left: list[str]) -> None:
    world = running(example(cleanPodPolicy=policy))
    world.pods_become("Failed", worker(1)).pods_become("Succeeded", LAUNCHER).settle()
    assert pods(world) == left
    others = [name for name in world.names() if not name.startswith("Pod/")]
    assert bool(others) == (policy == "None")
    assert world.status["currentWorkers"] == []
    assert "active" not in world.status["replicaStatuses"]["Launcher"]


def test_an_edit_that_makes_a_running_job_wrong_changes_nothing_but_is_told() -> None:
    world = running()
    before = world.names()
    wrong = example(slotsPerWorker=0)["spec"]
    plan = world.change(wrong).plan()
    assert plan.actions == ()
    (event,) = plan.events
    assert "spec.slotsPerWorker" in event.message
    world.apply(plan)
    assert world.plan().events == ()
    assert world.plan().status is None
    assert world.names() == before
    stalled = world.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "InvalidSpec")
    assert "spec.slotsPerWorker is 0" in stalled["message"]
    assert "Stalled" not in conditions(world.change(example()["spec"]).settle())


def limited(low: int, high: int) -> Object:
    return example(worker={"minReplicas": low, "maxReplicas": high})


def test_limits_that_exclude_each_other_are_told_and_the_running_job_goes_on() -> None:
    world = running()
    plan = world.change(limited(5, 3)["spec"]).plan()
    assert [event.reason for event in plan.events] == ["TrainingJobStalled"]
    stalled = world.apply(plan).condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "InvalidSpec")
    assert "spec.etReplicaSpecs.worker.minReplicas is 5, above maxReplicas, 3" in stalled["message"]
    assert world.plan().events == ()
    world.pods_become("Failed", worker(1), **EVICTED).settle()
    assert pods(world) == [LAUNCHER, worker(0), worker(2)], "a lost worker is replaced as always"
    other = world.change(limited(6, 3)["spec"]).settle().condition("Stalled")
    assert "minReplicas is 6" in other["message"]
    assert "Stalled" not in conditions(world.change(limited(1, 3)["spec"]).settle())
    world.change(limited(5, 3)["spec"]).settle()
    assert world.pods_become("Succeeded", LAUNCHER).settle().status["phase"] == "Succeeded"


def test_limits_that_exclude_each_other_are_told_while_workers_are_awaited() -> None:
    """The launcher then waits for all workers, also for one that has no room."""
    world = created().pods_become("Running", worker(0)).pods_become("Pending", worker(1))
    world.change(limited(5, 3)["spec"]).settle(at(100))
    assert world.status["phase"] == "WorkersCreated"
    assert world.condition("Stalled")["reason"] == "InvalidSpec"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(3, 9, "below minReplicas, 3"), (1, 1, "above maxReplicas, 1"), (2, 2, "")],
)
def test_an_edit_of_the_limits_that_excludes_the_present_size_is_told_once(
    low: int, high: int, text: str
) -> None:
    world = running()
    plan = world.change(limited(low, high)["spec"]).plan()
    told = [event for event in plan.events if event.reason == "TrainingJobOutsideLimits"]
    assert [text in event.message for event in told] == [True] * bool(text)
    assert all("2 workers" in event.message for event in told)
    assert world.apply(plan).settle().plan().events == ()
    assert pods(world) == [LAUNCHER, worker(0), worker(1)]


def test_a_wrong_job_that_never_started_has_failed() -> None:
    world = created(example(slotsPerWorker=0))
    assert world.status["phase"] == "Failed"
    assert "spec.slotsPerWorker" in world.condition("Failed")["message"]


# ---- pods that do not start ---------------------------------------------------------------------


UNSCHEDULABLE: dict[str, Any] = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient cpu.",
        }
    ]
}


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "mnist-elastic", "state": state}]}


@pytest.mark.parametrize(
    ("state", "since_s", "reason", "message"),
    [
        (UNSCHEDULABLE, 0, "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu."),
        (waiting("ErrImagePull", "no such image"), 0, "ImagePullBackOff", "no such image"),
        (waiting("ImagePullBackOff", "x" * 5000), 0, "ImagePullBackOff", "xxx"),
        ({}, 60, "NotScheduled", "it does not start"),
    ],
    ids=["no room", "no image", "no image, a long message", "no word"],
)
@pytest.mark.parametrize("pod", [worker(1), LAUNCHER])
def test_a_pod_that_does_not_start_stalls_the_job(
    pod: str, state: dict[str, Any], since_s: int, reason: str, message: str
) -> None:
    world = launched() if pod == LAUNCHER else created().pods_become("Running", worker(0))
    world.pods_become("Pending", pod, **state).settle()
    assert ("Stalled" in conditions(world)) == (since_s == 0)
    stalled = world.settle(at(since_s)).condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", reason)
    assert stalled["message"].startswith(f"pod {pod}: ")
    assert message in stalled["message"]
    assert len(stalled["message"]) <= 1024
    assert "Stalled" not in conditions(world.pods_become("Running").settle(at(61)))


# ---- indices ------------------------------------------------------------------------------------


def test_the_end_of_the_indices_is_told() -> None:
    world = running(example(worker={"replicas": 3}))
    world.object["status"]["nextWorkerIndex"] = 9999
    world.pods_become("Failed", worker(0), worker(1), **EVICTED)
    plan = world.plan()
    told = {event.reason: event.message for event in plan.events}
    assert worker(9999) in told["WorkerReplaced"]
    assert f"worker {worker(1)}" in told["WorkerLost"]
    assert "no index up to 9999 is left; create the job anew" in told["WorkerLost"]
    world.apply(plan).settle().settle(at(60)).settle(at(80))
    assert world.status["targetWorkers"] == [worker(2), worker(9999)]
    assert world.status["replacedWorkers"] == 1
    assert world.plan(at(80)).events == ()


# ---- what the API refuses -----------------------------------------------------------------------


def test_a_name_that_somebody_else_has_is_told() -> None:
    world = created()
    world.refusal = Refusal("NameConflict", "secrets default/elastic-training belongs to nobody")
    world.settle()
    stalled = world.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "NameConflict")
    world.refusal = None
    assert "Stalled" not in conditions(world.settle())


# ---- a kill after any action --------------------------------------------------------------------


def lives() -> dict[str, list[Any]]:
    """Name -> what happens to a job one after the other."""
    evicted = lambda w: w.pods_become("Failed", worker(1), **EVICTED)  # noqa: E731
    failed = lambda w: w.pods_become("Failed", LAUNCHER)  # noqa: E731
    run = lambda w: w.pods_become("Running")  # noqa: E731
    done = lambda w: w.pods_become("Succeeded", LAUNCHER)  # noqa: E731
    return {
        "a worker and the launcher fail": [run, run, evicted, failed, run, run, done],
        "suspended": [
            run,
            run,
            lambda w: annotate(w, "true"),
            lambda w: annotate(w, "false"),
            run,
            run,
            done,
        ],
    }


def live(events: list[Any], *, cut: int | None) -> tuple[World, int]:
    """The world at the end of a life in which the manager is killed after `cut` actions, and the
    number of actions without a kill.
    """
    world, count = created_nothing(), 0
    for number, happens in enumerate([lambda w: w, *events]):
        happens(world)
        for step in range(20):
            plan = world.plan(at(number * 200 + step))
            if not plan.actions and plan.status is None:
                break
            if cut is not None and count <= cut < count + len(plan.actions):
                world.apply(plan, actions=cut - count)
                count += len(plan.actions)
                continue
            world.apply(plan)
            count += len(plan.actions)
        else:
            raise AssertionError(f"does not settle: {plan}")
    return world, count


def created_nothing() -> World:
    job = example(restartPolicy="OnFailure", launcherAttachMode="kubexec")
    return World(KIND, job)


@pytest.mark.parametrize("name", list(lives()))
def test_a_job_comes_to_the_same_end_after_a_kill_at_any_action(name: str) -> None:
    expected, count = live(lives()[name], cut=None)
    assert expected.status["phase"] == "Succeeded"
    for cut in range(count):
        found, _ = live(lives()[name], cut=cut)
        shown = [
            {key: each.status.get(key) for key in ("phase", "targetWorkers", "restartCount")}
            for each in (expected, found)
        ]
        assert shown[0] == shown[1], f"killed after {cut} actions"
        assert found.names() == expected.names(), f"killed after {cut} actions"


def test_no_plan_makes_a_pod_that_the_status_does_not_name() -> None:
    world = created_nothing()
    for _ in range(20):
        plan = world.plan()
        named = world.status.get("targetWorkers", [])
        made = [
            each.object["metadata"]["name"]
            for each in plan.actions
            if isinstance(each, Create) and each.type.kind == "Pod"
        ]
        assert set(made) <= {*named, LAUNCHER}
        world.apply(plan).pods_become("Running")


# ---- jobs that the et-operator started ----------------------------------------------------------


def started_by_the_operator(**spec: Any) -> World:
    """A running job whose pods edgeai did not make, and whose launcher was started again twice."""
    world = running(example(**spec))
    for ref, child in world.children.items():
        if ref.type.kind in ("Pod", "Service"):
            marks = child["metadata"]["labels"]
            child["metadata"]["labels"] = {
                key: value for key, value in marks.items() if "/" not in key
            }
            child["metadata"].pop("annotations", None)
    del world.object["status"]["nextWorkerIndex"]
    world.object["status"]["restartCount"] = 2
    return world


def test_a_job_of_the_operator_goes_on_with_its_pods() -> None:
    world = started_by_the_operator()
    before = {name: world.child("Pod", name)["metadata"]["uid"] for name in pods(world)}
    world.settle(at(1))
    assert {name: world.child("Pod", name)["metadata"]["uid"] for name in pods(world)} == before
    assert world.status["phase"] == "Running"
    service = world.child("Service", worker(0))["spec"]["selector"]
    assert service.items() <= world.child("Pod", worker(0))["metadata"]["labels"].items()


def test_a_launcher_of_the_operator_that_fails_is_started_again_once() -> None:
    world = started_by_the_operator(restartPolicy="OnFailure")
    world.pods_become("Failed", LAUNCHER).settle(at(100))
    assert world.status["restartCount"] == 3
    assert world.child("Pod", LAUNCHER)["metadata"]["annotations"]["edgeai.io/attempt"] == "3"


def test_the_plan_that_only_writes_a_new_worker_down_is_followed_at_once() -> None:
    world = running(example(worker={"restartPolicy": "OnFailure"}))
    assert not world.plan().is_decision
    world.pods_become("Failed", worker(1), **EVICTED)
    plan = world.plan()
    assert plan.is_decision
    assert not plan.stages
    assert not world.settle().plan().is_decision
