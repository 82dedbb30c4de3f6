"""Scalers of a TrainingJob: what they do, in which order, and what they refuse."""

from typing import Any

import pytest

from globalmanager.contract import Create, Delete, ExecutionFailure, Refusal, Severity
from globalmanager.kinds.elastic.trainingjob import KIND
from tests.globalmanager.kinds.elastic.world import (
    JOB,
    LAUNCHER,
    ElasticWorld,
    example,
    training,
    worker,
)
from tests.support.world import World, at, merged

OUT = ["Created", "Scaling", "ScriptExecuted", "ScaleSucceeded"]
REFUSED = ["Created", "ScaleFailed"]
READ = 20.0  # seconds after which the launcher has surely read a list of hosts


def workers(*indices: int) -> list[str]:
    return [worker(index) for index in indices]


def twelve() -> ElasticWorld:
    return training(example(worker={"replicas": 12, "maxReplicas": 20}))


def finish_scale_in(world: ElasticWorld, now: float = READ) -> ElasticWorld:
    """The launcher has read the list, and the workers are idle."""
    return world.settle(at(now)).end(exit_code=0).settle(at(now))


# ---- ScaleOut -----------------------------------------------------------------------------------


def test_a_scale_out_adds_workers_with_the_next_indices() -> None:
    world = training().scale_out(2).settle()
    assert (world.status["phase"], world.status["currentScaler"]) == (
        "Scaling",
        "ScaleOut:default/out",
    )
    assert world.state("out")["addPods"] == workers(2, 3)
    assert world.hosts() == workers(0, 1), "no host before all new workers run"
    world.pods_become("Running", worker(2)).settle()
    assert world.hosts() == workers(0, 1), "no host before all new workers run"
    world.pods_become("Running", worker(3)).settle()
    assert world.hosts() == workers(0, 1, 2, 3)
    assert world.history("out") == OUT
    assert (world.status["phase"], world.status.get("currentScaler")) == ("Running", None)
    assert world.condition("Scaling")["status"] == "False"


def test_the_new_pods_are_named_in_the_scale_out_before_they_are_made() -> None:
    """And then in the job, so a restarted GlobalManager goes on with the same pods."""
    world = training().scale_out(1)
    for _ in range(10):
        plan = world.plan()
        if any(isinstance(one, Create) and one.type.kind == "Pod" for one in plan.actions):
            break
        world.apply(plan)
    assert world.state("out")["addPods"] == workers(2)
    assert world.status["targetWorkers"] == workers(0, 1, 2)


def test_a_new_pod_has_the_name_of_its_scale_out_as_a_label() -> None:
    world = training().scale_out(1).settle()
    assert world.child("Pod", worker(2))["metadata"]["labels"]["scaleout-name"] == "out"
    assert "scaleout-name" not in world.child("Pod", worker(0))["metadata"]["labels"]


def test_an_index_is_never_used_again() -> None:
    world = finish_scale_in(training().scale_in(worker(1)).settle())
    assert world.workers() == [0]
    world.scale_out(1).settle(at(READ))
    assert world.workers() == [0, 2]


def test_workers_that_do_not_start_in_time_are_deleted_and_the_scale_out_fails() -> None:
    world = training().scale_out(2, timeout=5).settle().pods_become("Running", worker(2))
    assert world.settle().plan().requeue_after_s == 5
    world.settle(at(5))
    assert world.workers() == [0, 1]
    assert world.history("out") == ["Created", "Scaling", "ScaleFailed"]
    assert f"{worker(3)} did not run within 5 s" in world.state("out")["message"]
    assert world.status["phase"] == "Running"
    assert world.hosts() == workers(0, 1)


NO_ROOM: dict[str, Any] = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient cpu.",
        }
    ]
}


def test_a_scale_out_that_is_late_says_why_its_pods_did_not_run() -> None:
    world = training().scale_out(2, timeout=5).settle().pods_become("Running", worker(2))
    world.pods_become("Pending", worker(3), **NO_ROOM).settle(at(4))
    told = []
    for _ in range(5):
        plan = world.plan(at(5))
        told += [event.message for event in plan.events if event.reason == "ScaleOutFailed"]
        world.apply(plan)
    assert world.history("out")[-1] == "ScaleFailed"
    for text in (world.state("out")["message"], world.state("out")["conditions"][-1]["message"]):
        assert f"{worker(3)} did not run within 5 s" in text
        assert "0/3 nodes are available: 3 Insufficient cpu." in text
        assert "the new workers were deleted" in text
    assert len(told) == 2
    assert all("3 Insufficient cpu." in text for text in told)


def test_a_scale_out_whose_pods_the_api_refuses_says_why() -> None:
    world = training().scale_out(1, timeout=5)
    while worker(2) not in world.status["targetWorkers"]:
        world.apply(world.plan())
    world.refusal = Refusal("Forbidden", "pods are forbidden: exceeded quota")
    world.apply(world.plan(at(1)), actions=0)
    stalled = world.plan(at(1)).status
    assert stalled is not None
    world.object["status"] = merged(world.status, stalled)
    world.refusal = None
    world.settle(at(5))
    assert world.history("out")[-1] == "ScaleFailed"
    assert "exceeded quota" in world.state("out")["message"]


def test_the_timeout_is_60_s_where_none_is_given() -> None:
    world = training().scale_out(1).settle()
    assert world.settle(at(59)).workers() == [0, 1, 2]
    assert world.settle(at(60)).workers() == [0, 1]


def test_a_new_worker_that_fails_is_made_again_until_the_time_is_over() -> None:
    world = training().scale_out(1).settle().pods_become("Failed", worker(2)).settle()
    before = world.child("Pod", worker(2))["metadata"]["uid"]
    world.settle(at(5))
    assert world.child("Pod", worker(2))["metadata"]["uid"] != before
    assert world.pods_become("Running").settle(at(6)).history("out") == OUT


@pytest.mark.parametrize(
    ("count", "most", "problem"),
    [
        (8, 9, "10 workers are more than maxReplicas, 9"),
        (999, None, "1001 workers are more than 1000"),
    ],
)
def test_max_replicas_is_kept(count: int, most: int | None, problem: str) -> None:
    """The et-operator never read it."""
    world = training(example(worker={"maxReplicas": most})).scale_out(count).settle()
    assert world.history("out") == REFUSED
    assert problem in world.state("out")["message"]
    assert world.workers() == [0, 1]


# ---- ScaleIn ------------------------------------------------------------------------------------


def test_a_scale_in_by_count_takes_the_highest_indices() -> None:
    world = training(example(worker={"replicas": 4})).scale_in(count=2).settle()
    assert world.state("in")["toDeletePods"] == workers(2, 3)
    assert world.workers() == [0, 1, 2, 3]
    finish_scale_in(world)
    assert (world.workers(), world.hosts()) == ([0, 1], workers(0, 1))
    assert world.history("in") == OUT
    assert [name for name in world.names() if name.startswith("Service/")] == [
        f"Service/{name}" for name in workers(0, 1)
    ]


def test_the_worker_leaves_the_list_and_becomes_idle_before_its_pod_ends() -> None:
    world = training().scale_in(worker(1)).settle(at(READ))
    assert (world.hosts(), world.workers()) == (workers(0), [0, 1])
    (command,) = world.commands()
    assert command.split() == ["idle", f",{worker(1)},", "60"]
    assert world.end(exit_code=0).settle(at(READ)).workers() == [0]


def test_a_worker_ends_gracefully() -> None:
    """The et-operator deleted it with a grace period of 0."""
    world = training().scale_in(worker(1)).settle(at(READ)).end(exit_code=0)
    world.apply(world.plan(at(READ)))
    deletions = [one for one in world.plan(at(READ)).actions if isinstance(one, Delete)]
    assert worker(1) in [one.ref.name for one in deletions]
    assert not any(one.is_forced for one in deletions)


def test_twelve_workers_and_worker_1_goes_while_worker_10_runs() -> None:
    """In the et-operator a process with worker-10 kept worker-1 for ever."""
    world = finish_scale_in(twelve().scale_in(worker(1)).settle())
    assert world.workers() == [0, *range(2, 12)]
    assert worker(10) in world.hosts()


def test_worker_10_goes_before_worker_9() -> None:
    world = finish_scale_in(twelve().scale_in(count=3).settle())
    assert world.workers() == list(range(9))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"pods": ["nobody"]}, "nobody is no worker of TrainingJob elastic-training"),
        ({"pods": [worker(0), "other-job-worker-1"]}, "other-job-worker-1 is no worker"),
        ({"pods": [worker(7)]}, f"{worker(7)} is no worker"),
        ({"pods": [LAUNCHER]}, f"{LAUNCHER} is no worker"),
        ({"count": 2}, "has 2 workers, so 2 cannot go"),
        ({"count": 5}, "has 2 workers, so 5 cannot go"),
        ({"pods": [worker(0), worker(1)]}, "has 2 workers, so 2 cannot go"),
    ],
)
def test_names_that_match_nothing_fail_the_scaler_and_delete_nothing(
    given: dict[str, Any], problem: str
) -> None:
    """In the et-operator they deleted every worker, and the ScaleIn said ScaleSucceeded."""
    world = training().scale_in(*given.get("pods", ()), count=given.get("count", 0)).settle()
    assert world.history("in") == REFUSED
    assert problem in world.state("in")["message"]
    assert "nothing was deleted" in world.state("in")["message"]
    assert world.settle(at(600)).workers() == [0, 1]


def test_min_replicas_is_kept() -> None:
    """The et-operator never read it."""
    job = example(worker={"replicas": 4, "minReplicas": 3})
    world = training(job).scale_in(count=2).settle()
    assert world.history("in") == REFUSED
    assert "below minReplicas, 3" in world.state("in")["message"]


def test_a_busy_worker_ends_when_its_time_is_over() -> None:
    """In the et-operator a ScaleIn waited for ever, and all scalers after it too."""
    world = training().scale_in(worker(1), timeout=30).settle(at(READ))
    assert world.end(exit_code=124).settle(at(READ + 30)).workers() == [0]
    assert world.history("in") == OUT


def test_where_idleness_cannot_be_asked_the_workers_get_the_time() -> None:
    world = training().scale_in(worker(1)).settle().settle(at(READ))
    world.end(fault=ExecutionFailure.REFUSED, message="no sh").settle(at(READ))
    assert world.workers() == [0, 1]
    assert world.plan(at(READ)).requeue_after_s == 60 - READ
    assert world.settle(at(60)).workers() == [0]


def test_a_pod_that_does_not_end_holds_up_no_further_scaler() -> None:
    world = training(example(worker={"replicas": 3}))
    world.terminates = True
    finish_scale_in(world.scale_in(worker(1)).settle())
    assert world.history("in") == OUT[:3]
    world.settle(at(READ + 60))
    assert world.history("in") == OUT
    assert f"pod {worker(1)}: Terminating: " in world.state("in")["message"]


# ---- scripts ------------------------------------------------------------------------------------


SCRIPT: dict[str, Any] = {
    "script": "/scale.sh -v",
    "timeout": 9,
    "env": [{"name": "TOKEN", "value": "it's"}],
}
RUN = "export TOKEN='it'\"'\"'s'\nexec timeout 9 sh /scale.sh -v "


def test_a_script_runs_once_the_new_workers_run_and_before_they_are_listed() -> None:
    world = training().scale_out(2, **SCRIPT).settle()
    assert world.commands() == []
    world.pods_become("Running").settle()
    assert world.commands() == [f"{RUN}{worker(2)}:1,{worker(3)}:1"]
    assert world.hosts() == workers(0, 1)
    world.end(exit_code=0).settle()
    assert (world.history("out"), world.hosts()) == (OUT, workers(0, 1, 2, 3))


def test_a_script_of_a_scale_in_runs_before_the_launcher_loses_the_workers() -> None:
    world = training().scale_in(worker(1), **SCRIPT).settle()
    assert world.commands() == [f"{RUN}{worker(1)}:1"]
    assert world.hosts() == workers(0, 1)
    finish_scale_in(world.end(exit_code=0).settle())
    assert (world.history("in"), world.workers()) == (OUT, [0])


def test_variables_of_a_script_stand_in_no_argument() -> None:
    """Arguments are in the URL of the request, so in the audit log."""
    world = training().scale_in(worker(1), **SCRIPT).settle()
    (execution, _result) = next(iter(world.executions.values()))
    assert "it's" not in str(execution.command)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ({"exit_code": 3, "output": "no\nroom\n"}, "exit code 3: room"),
        (
            {"fault": ExecutionFailure.TIMEOUT, "message": "no end"},
            "could not run in the launcher: no end",
        ),
    ],
)
def test_a_script_that_fails_fails_the_scaler(result: dict[str, Any], problem: str) -> None:
    world = training().scale_out(1, **SCRIPT).settle().pods_become("Running").settle()
    world.end(**result).settle()
    assert (world.workers(), world.hosts()) == ([0, 1], workers(0, 1))
    assert world.history("out") == ["Created", "Scaling", "ScaleFailed"]
    assert problem in world.state("out")["message"]
    world.scale_in(worker(1), **SCRIPT).settle().end(**result).settle()
    assert world.history("in") == ["Created", "Scaling", "ScaleFailed"]
    assert problem in world.state("in")["message"]
    assert world.settle(at(600)).workers() == [0, 1]


@pytest.mark.parametrize("apply", ["out", "in"])
def test_a_long_script_and_a_long_line_make_no_long_message(apply: str) -> None:
    world, script = training(), f"/s.sh {'a' * 16_000}"
    if apply == "out":
        world.scale_out(1, script=script).settle().pods_become("Running").settle()
    else:
        world.scale_in(worker(1), script=script).settle()
    while world.state(apply)["phase"] != "ScaleFailed":
        plan = world.end(exit_code=3, output="b" * 4096).plan()
        for event in plan.events:
            assert len(event.message) <= 1024
        world.apply(plan)
        assert len(world.state(apply)["message"]) <= 1024
    assert "'/s.sh aaa" in world.state(apply)["message"]
    assert "ended in the launcher with exit code 3: bbb" in world.state(apply)["message"]
    assert len(world.state(apply)["message"]) < 700


def test_a_restarted_global_manager_runs_a_script_again() -> None:
    world = training().scale_out(1, **SCRIPT).settle().pods_become("Running").settle()
    world.crash().settle()
    assert len(world.commands()) == 1
    assert world.end(exit_code=0).settle().history("out") == OUT


# ---- several scalers ----------------------------------------------------------------------------


def test_scalers_are_executed_one_at_a_time_the_oldest_first() -> None:
    """The et-operator took the newest first."""
    world = training()
    world.scale_out(1, "young", age=1).scale_out(2, "old", age=9).scale_in(count=1, name="new")
    world.settle()
    assert world.status["currentScaler"] == "ScaleOut:default/old"
    assert [world.history(name) for name in ("young", "new")] == [["Created"], ["Created"]]
    world.pods_become("Running").settle()
    assert world.status["currentScaler"] == "ScaleOut:default/young"
    assert world.state("young")["addPods"] == workers(4)
    world.pods_become("Running").settle()
    assert world.status["currentScaler"] == "ScaleIn:default/new"
    assert world.state("new")["toDeletePods"] == workers(4)
    finish_scale_in(world)
    assert world.workers() == [0, 1, 2, 3]


def test_of_one_second_the_name_decides() -> None:
    world = training().scale_out(1, "b").scale_out(1, "a").settle()
    assert world.status["currentScaler"] == "ScaleOut:default/a"


def test_a_scaler_with_a_wrong_spec_holds_up_no_other() -> None:
    world = training().scale_out(0, "wrong", age=9).scale_out(1, "right").settle()
    assert world.status["currentScaler"] == "ScaleOut:default/right"
    assert world.history("wrong") == ["ScaleFailed"], "its own kind refuses it"


def test_a_scaler_before_the_launcher_runs_waits() -> None:
    world = ElasticWorld(example()).scale_out(1).settle()
    assert world.history("out") == ["Created"]
    world.pods_become("Running").settle().pods_become("Running").settle()
    assert world.history("out") == ["Created", "Scaling"]


def events_of(world: ElasticWorld) -> list[tuple[str, bool, Severity]]:
    """(reason, is it about the scaler, severity) of the events about scalers, until all is done."""
    told = []
    for _ in range(20):
        plan = world.plan()
        told += [
            (event.reason, event.about is not None, event.severity)
            for event in plan.events
            if event.reason.startswith("Scale")
        ]
        world.apply(plan).pods_become("Running")
    return told


def test_every_outcome_has_an_event_on_the_scaler_and_on_the_job() -> None:
    normal, warning = Severity.NORMAL, Severity.WARNING
    assert events_of(training().scale_out(1)) == [
        ("ScaleOutScaling", True, normal),
        ("ScaleOutScaling", False, normal),
        ("ScaleOutSucceeded", True, normal),
        ("ScaleOutSucceeded", False, normal),
    ]
    assert events_of(training().scale_in("nobody")) == [
        ("ScaleInFailed", True, warning),
        ("ScaleInFailed", False, warning),
    ]


# ---- what happens meanwhile ---------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(8))
def test_a_scale_out_that_is_deleted_leaves_a_consistent_job(steps: int) -> None:
    world = training().scale_out(1)
    for _ in range(steps):
        world.apply(world.plan())
    world.drop("out").settle().pods_become("Running").settle(at(READ)).settle(at(2 * READ))
    assert world.status["targetWorkers"] == [worker(index) for index in world.workers()]
    assert world.hosts() == world.status["targetWorkers"]
    assert (world.status["phase"], world.status.get("currentScaler")) == ("Running", None)


@pytest.mark.parametrize("steps", range(8))
def test_a_scale_in_that_is_deleted_leaves_a_consistent_job(steps: int) -> None:
    world = training().scale_in(worker(1))
    for number in range(steps):
        world.apply(world.plan(at(number * READ)))
        world.end(exit_code=0)
    world.drop("in").settle(at(200)).settle(at(220))
    assert world.status["targetWorkers"] == [worker(index) for index in world.workers()]
    assert world.hosts() == world.status["targetWorkers"]
    assert world.status["phase"] == "Running"


@pytest.mark.parametrize("gap", ["a plan in between", "at once", "afterwards"])
def test_a_worker_that_a_deleted_scale_in_took_from_the_list_gets_a_new_index(gap: str) -> None:
    """Horovod never uses a host again on which its process was ended."""
    world = training(example(worker={"replicas": 3})).scale_in(worker(1)).settle()
    assert world.hosts() == workers(0, 2)
    if gap == "afterwards":
        world.drop("in").settle(at(1)).gone("Pod", worker(1))
    else:
        world.gone("Pod", worker(1))
        if gap == "a plan in between":
            world.settle(at(1))
        world.drop("in")
    for second in range(2, 60, 4):
        world.settle(at(second))
        assert 1 not in world.workers()
        world.pods_become("Running")
    assert world.workers() == [0, 2, 3]
    assert world.hosts() == workers(0, 2, 3)
    assert world.status["targetWorkers"] == workers(0, 2, 3)


def test_a_worker_that_a_failed_scale_in_took_from_the_list_gets_a_new_index() -> None:
    world = training(example(worker={"replicas": 3})).scale_in(worker(1)).settle()
    world.change(example(worker={"replicas": 3, "minReplicas": 3})["spec"])
    world.gone("Pod", worker(1))
    for second in range(2, 60, 4):
        world.settle(at(second)).pods_become("Running")
    assert world.state("in")["phase"] == "ScaleFailed"
    assert world.workers() == [0, 2, 3]


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_a_job_that_ends_fails_its_scalers(end: str) -> None:
    world = training().scale_out(1, "first").scale_in(count=1, name="second").settle()
    world.pods_become(end, LAUNCHER).settle()
    assert world.condition("Scaling")["status"] == "False"
    for name in ("first", "second"):
        assert world.state(name)["phase"] == "ScaleFailed"
        assert "has ended" in world.state(name)["message"]
    world.scale_out(1, "later").settle()
    assert world.state("later")["phase"] == "ScaleFailed"


@pytest.mark.parametrize("apply", ["out", "in"])
def test_the_phase_is_scaling_as_long_as_the_scaler_says_that_it_scales(apply: str) -> None:
    world = training()
    world.scale_out(1) if apply == "out" else world.scale_in(worker(1))
    seen = []
    for step in range(30):
        world.apply(world.plan(at(step)))
        phase = world.state(apply).get("phase")
        is_scaling = phase in ("Scaling", "ScriptExecuted")
        seen.append(phase)
        assert (world.status["phase"] == "Scaling") == is_scaling, phase
        assert (world.status.get("currentScaler") is not None) == is_scaling, phase
        world.pods_become("Running").end(exit_code=0)
    assert seen[-1] == "ScaleSucceeded"


def test_a_suspended_job_names_no_current_scaler() -> None:
    world = training().scale_out(1).settle()
    assert world.status["currentScaler"] == "ScaleOut:default/out"
    world.object["metadata"]["annotations"] = {"job-supervisor.kube-ai.io/job-suspended": "true"}
    assert "currentScaler" not in world.settle().status


def test_a_job_that_is_suspended_while_scaling_goes_on_with_the_scaling() -> None:
    """However long the suspension lasts: the timeout does not run meanwhile."""
    world = training().scale_out(1).settle()
    mark = "job-supervisor.kube-ai.io/job-suspended"
    world.object["metadata"]["annotations"] = {mark: "true"}
    assert world.settle().workers() == []
    world.object["metadata"]["annotations"] = {mark: "false"}
    for second in range(1000, 1050, 10):
        world.settle(at(second)).pods_become("Running").settle(at(second))
    assert world.workers() == [0, 1, 2]
    assert world.history("out") == OUT
    assert world.hosts() == workers(0, 1, 2)


def test_a_scaling_that_gets_no_worker_after_the_resume_fails_after_its_timeout() -> None:
    world = training().scale_out(1).settle()
    mark = "job-supervisor.kube-ai.io/job-suspended"
    world.object["metadata"]["annotations"] = {mark: "true"}
    world.settle()
    world.object["metadata"]["annotations"] = {mark: "false"}
    for second in range(1000, 1059, 10):
        world.settle(at(second)).pods_become("Running", worker(0), worker(1), LAUNCHER)
        world.settle(at(second))
    assert world.history("out")[-1] != "ScaleFailed"
    world.settle(at(1061))
    assert world.history("out")[-1] == "ScaleFailed"


def test_a_scaler_of_a_suspended_job_says_that_it_waits_and_is_executed_after_the_resume() -> None:
    world = training()
    mark = "job-supervisor.kube-ai.io/job-suspended"
    world.object["metadata"]["annotations"] = {mark: "true"}
    world.settle().scale_out(1).settle()
    assert world.history("out") == ["Created"]
    text = "waits: TrainingJob elastic-training is suspended; resume it"
    assert world.state("out")["message"] == text
    world.object["metadata"]["annotations"] = {}
    for _ in range(4):
        world.settle(at(10)).pods_become("Running")
    assert world.settle(at(10)).workers() == [0, 1, 2]
    assert world.history("out") == OUT


def test_a_scaler_of_a_job_that_cannot_start_names_the_fault_of_the_job() -> None:
    world = ElasticWorld(example()).settle().scale_out(1).settle()
    waits = world.state("out")["message"]
    assert waits.startswith("waits until TrainingJob elastic-training is Running")
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    image = {"containerStatuses": [{"name": "mnist-elastic", "state": waiting}]}
    world.pods_become("Pending", worker(0), **image).settle(at(5)).settle(at(5))
    fault = world.condition("Stalled")["message"]
    assert "no such image" in fault
    text = f"{waits}; TrainingJob elastic-training is stalled: {fault}"
    (created,) = world.state("out")["conditions"]
    assert (world.state("out")["message"], created["message"]) == (text, text)
    assert created["lastTransitionTime"] < created["lastUpdateTime"]
    world.scale_out(1, "later").settle(at(6))
    assert world.state("later")["message"] == text
    for second in (7, 8, 9):
        world.pods_become("Running").settle(at(second))
    assert world.history("out")[:2] == ["Created", "Scaling"]
    assert "stalled" not in world.state("later")["message"]


def test_another_worker_that_is_lost_while_scaling_out_is_replaced() -> None:
    world = training().scale_out(1).settle().pods_become("Failed", worker(0), reason="Evicted")
    world.settle().pods_become("Running").settle(at(READ)).settle(at(2 * READ))
    assert world.workers() == [1, 2, 3]
    assert world.history("out") == OUT
    assert sorted(world.hosts()) == workers(1, 2, 3)


def test_a_worker_that_is_lost_while_it_leaves_is_not_replaced() -> None:
    world = training(example(worker={"replicas": 3})).scale_in(worker(1)).settle()
    world.pods_become("Failed", worker(1), reason="Evicted").settle(at(READ))
    finish_scale_in(world)
    assert world.workers() == [0, 2]
    assert world.history("in") == OUT


def test_a_launcher_that_is_lost_while_scaling_is_started_again_and_scaling_goes_on() -> None:
    job = example(restartPolicy="OnFailure")
    world = training(job).scale_out(1, **SCRIPT).settle().pods_become("Running").settle()
    assert len(world.commands()) == 1
    world.pods_become("Failed", LAUNCHER).settle(at(5)).settle(at(40))
    world.pods_become("Running").settle(at(41))
    assert len(world.commands()) == 1, "the new launcher runs the script"
    world.end(exit_code=0).settle(at(41)).settle(at(41 + READ))
    assert world.history("out") == OUT
    assert world.hosts() == workers(0, 1, 2)


def test_two_jobs_of_one_name_in_two_namespaces_have_nothing_in_common() -> None:
    """The et-operator listed pods without a namespace. A snapshot has only the job's own."""
    other = example()
    other["metadata"]["namespace"] = "other"
    first, second = training(), training(other)
    finish_scale_in(first.scale_in(worker(1)).settle())
    assert (first.workers(), second.settle().workers()) == ([0], [0, 1])


# ---- kubectl scale ------------------------------------------------------------------------------


def scaled(world: ElasticWorld, replicas: int) -> ElasticWorld:
    """The user calls `kubectl scale`."""
    changed = example(worker={"replicas": replicas})["spec"]
    world.change(changed)
    return world


def test_kubectl_scale_makes_a_scale_out_or_a_scale_in() -> None:
    world = scaled(training(), 4).settle()
    made = world.scaler(f"{JOB}-scale-2")
    assert (made["kind"], made["spec"]["toAdd"]) == ("ScaleOut", {"count": 2})
    world.pods_become("Running").settle()
    assert world.workers() == [0, 1, 2, 3]
    scaled(world, 1).settle(at(READ))
    made = world.scaler(f"{JOB}-scale-3")
    assert (made["kind"], made["spec"]["toDelete"]) == ("ScaleIn", {"count": 3})
    finish_scale_in(world, 2 * READ)
    assert world.workers() == [0]


def test_kubectl_scale_counts_the_scalers_that_are_under_way() -> None:
    world = training().scale_out(2, "a", age=2).settle().scale_out(1, "b", age=1)
    scaled(world, 6).settle()
    assert world.scaler(f"{JOB}-scale-2")["spec"]["toAdd"] == {"count": 1}
    for _ in range(3):
        world.pods_become("Running").settle()
    assert len(world.workers()) == 6


@pytest.mark.parametrize("plans", range(7))
def test_kubectl_scale_counts_a_scale_out_after_each_of_its_plans(plans: int) -> None:
    world = training().scale_out(2)
    for _ in range(plans):
        world.apply(world.plan())
    scaled(world, 4)
    for _ in range(3):
        world.settle().pods_become("Running")
    assert world.settle().workers() == [0, 1, 2, 3]


def test_kubectl_scale_beyond_the_limits_fails_the_scaler_and_not_the_job() -> None:
    world = scaled(training(), 50).settle()
    assert world.state(f"{JOB}-scale-2")["phase"] == "ScaleFailed"
    assert "maxReplicas, 9" in world.state(f"{JOB}-scale-2")["message"]
    assert (world.status["phase"], world.workers()) == ("Running", [0, 1])


def test_a_job_that_would_start_beyond_its_limits_fails() -> None:
    world = ElasticWorld(example(worker={"replicas": 50})).settle()
    assert world.status["phase"] == "Failed"
    assert "maxReplicas" in world.condition("Failed")["message"]


def has_scalers(world: ElasticWorld, *names: str) -> bool:
    return sorted(ref.name for ref in world.scalers) == sorted(names)


def test_a_scaler_of_the_user_with_the_name_of_a_kubectl_scale_swallows_none() -> None:
    """The names can be guessed."""
    name = f"{JOB}-scale-2"
    world = training().scale_out(1, name)
    world.settle().pods_become("Running").settle()
    assert world.state(name)["phase"] == "ScaleSucceeded"
    scaled(world, 6).settle().pods_become("Running").settle()
    assert world.scaler(f"{name}-2")["spec"]["toAdd"] == {"count": 3}
    assert len(world.workers()) == 6
    assert has_scalers(world, name, f"{name}-2")


def test_a_scaler_of_the_user_that_waits_under_this_name_is_counted() -> None:
    name = f"{JOB}-scale-2"
    world = training().scale_out(1, "first", age=9).scale_out(1, name)
    scaled(world, 6)
    for _ in range(4):
        world.settle().pods_become("Running")
    assert world.settle().workers() == [0, 1, 2, 3, 4, 5]
    assert has_scalers(world, "first", name, f"{name}-2")


def test_a_kubectl_scale_that_a_restart_repeats_makes_no_second_scaler() -> None:
    world = scaled(training(), 50)
    known = world.status["observedReplicas"]
    world.settle()
    assert world.state(f"{JOB}-scale-2")["phase"] == "ScaleFailed"
    world.object["status"]["observedReplicas"] = known  # the write of the status was lost
    assert has_scalers(world.settle(), f"{JOB}-scale-2")


def test_a_scaler_of_another_job_under_this_name_delays_a_kubectl_scale_by_one_plan() -> None:
    world = scaled(training(), 4)
    name = f"{JOB}-scale-2"
    (create,) = [one for one in world.plan().actions if isinstance(one, Create)]
    assert create.object["metadata"]["name"] == name
    taken = f"scaleouts.kai.alibabacloud.com default/{name} exists already and belongs to nobody"
    world.refusal = Refusal("NameConflict", taken)
    refused = world.plan()
    assert refused.status is not None
    world.object["status"] = merged(world.status, refused.status)
    assert world.condition("Stalled")["reason"] == "NameConflict"
    world.refusal = None
    world.settle()
    assert world.scaler(f"{name}-2")["spec"]["toAdd"] == {"count": 2}
    world.pods_become("Running").settle()
    assert world.workers() == [0, 1, 2, 3]
    assert "Stalled" not in [one["type"] for one in world.status["conditions"]]


def test_a_kubectl_scale_of_a_job_that_has_ended_is_told() -> None:
    world = training().pods_become("Succeeded", LAUNCHER).settle()
    plan = scaled(world, 4).plan()
    (event,) = plan.events
    assert (event.severity, event.reason) == (Severity.WARNING, "TrainingJobNotScaled")
    assert "has ended" in event.message
    assert world.apply(plan).plan().events == ()
    assert world.scalers == {}


def test_a_kubectl_scale_that_comes_with_the_end_of_the_job_makes_no_scaler_and_is_told() -> None:
    world = scaled(training().pods_become("Succeeded", LAUNCHER), 4)
    plan = world.plan()
    assert world.apply(plan).status["phase"] == "Succeeded"
    assert plan.stages == ()
    assert "TrainingJobNotScaled" in [event.reason for event in world.plan().events]
    assert world.settle().scalers == {}


def test_another_edit_makes_no_scaler() -> None:
    world = training().change(example(backoffLimit=3)["spec"]).settle()
    assert world.scalers == {}


def test_a_job_without_scalers_needs_nothing_of_the_world_of_scalers() -> None:
    world = World(KIND, example()).settle()
    assert world.status["observedReplicas"] == 2
