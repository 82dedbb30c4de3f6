"""The status of pods, restart policies and back-off."""

import pytest

from edgeai.localcluster.kubelet.container import ContainerSettings, RestartBackoff
from edgeai.localcluster.kubelet.status import (
    ContainerRecord,
    pod_phase,
    pod_status,
    running,
    should_restart,
    terminated,
    waiting,
)
from edgeai.localcluster.objects.resources import Object

NOW = "2030-01-02T03:04:05Z"


def ended(code: int) -> Object:
    return terminated(code, started_at=NOW, finished_at=NOW)


def record(state: Object, last_state: Object | None = None) -> ContainerRecord:
    return ContainerRecord("c", "i", state=state, last_state=last_state or {})


@pytest.mark.parametrize(
    ("policy", "inits", "mains", "phase"),
    [
        ("Always", [], [record(waiting("ContainerCreating"))], "Pending"),
        ("Always", [], [record(running(NOW))], "Running"),
        ("Always", [], [record(running(NOW)), record(waiting("x"))], "Pending"),
        ("Always", [], [record(waiting("CrashLoopBackOff"), ended(1))], "Running"),
        ("Always", [], [record(ended(0))], "Running"),
        ("OnFailure", [], [record(ended(0))], "Succeeded"),
        ("OnFailure", [], [record(ended(1))], "Running"),
        ("Never", [], [record(ended(0))], "Succeeded"),
        ("Never", [], [record(ended(0)), record(ended(1))], "Failed"),
        ("Never", [], [record(ended(1)), record(running(NOW))], "Running"),
        ("Never", [record(running(NOW))], [record(waiting("x"))], "Pending"),
        ("Never", [record(ended(1))], [record(waiting("x"))], "Failed"),
        ("Always", [record(ended(1))], [record(waiting("x"))], "Pending"),
        ("Always", [record(ended(0))], [record(running(NOW))], "Running"),
    ],
)
def test_phase_is_that_of_kubernetes(
    policy: str, inits: list[ContainerRecord], mains: list[ContainerRecord], phase: str
) -> None:
    assert pod_phase(policy, inits, mains) == phase


def test_transition_times_change_with_the_condition_alone() -> None:
    pod: Object = {"spec": {"restartPolicy": "Always"}}
    facts = {"hostIP": "h", "podIP": "p", "startTime": NOW}
    main = record(running(NOW))
    pod["status"] = pod_status(pod, facts, [], [main], NOW)
    main.ready = True
    later = pod_status(pod, facts, [], [main], "2030-01-02T03:05:00Z")
    times = {each["type"]: each["lastTransitionTime"] for each in later["conditions"]}
    assert times == {
        "PodScheduled": NOW,
        "Initialized": NOW,
        "ContainersReady": "2030-01-02T03:05:00Z",
        "Ready": "2030-01-02T03:05:00Z",
    }


def test_back_off_doubles_to_its_cap_and_starts_anew_after_a_long_run() -> None:
    backoff = RestartBackoff(ContainerSettings())
    waits = [backoff.next_s(0) for _ in range(9)]
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert [backoff.next_s(600), backoff.next_s(0)] == [0, 1]


def test_back_off_goes_on_for_ever() -> None:
    backoff = RestartBackoff(ContainerSettings())
    assert [backoff.next_s(0) for _ in range(2000)][-1] == 60


@pytest.mark.parametrize(
    ("policy", "code", "restarts"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_restart_policies(policy: str, code: int, *, restarts: bool) -> None:
    assert should_restart(policy, code) is restarts
