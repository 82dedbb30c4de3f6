"""The few words about a job: also of a status that nobody of us has written."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgeai.faults.summary import (
    faults_of,
    in_one_line,
    metrics_of,
    phase_of,
    progress_of,
    waits_of,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["conditions", "phase", "metrics", "rounds", "round", "replicaStatuses", "tfReplicaStatuses"]
)
CONDITION = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["Created", "Failed", "Ready"]) | JSON,
        "status": JSON,
        "message": JSON,
    }
)


def trouble_of(status: Any) -> str:
    return in_one_line(waits_of({"status": status}))


@given(st.dictionaries(FIELDS, JSON | st.lists(CONDITION, max_size=3)) | JSON, JSON)
def test_any_status_has_words(status: Any, spec: Any) -> None:
    for words in (phase_of(status), progress_of(status), trouble_of(status)):
        assert isinstance(words, str)
    assert all(fault.remedy or fault.text for fault in waits_of({"spec": spec, "status": status}))


def test_a_bad_condition_without_reason_and_message_names_its_type() -> None:
    conditions = [{"type": "Created", "status": "True"}, {"type": "Failed", "status": "True"}]
    assert trouble_of({"conditions": conditions}) == "condition Failed has no message"


def test_rounds_come_before_metrics() -> None:
    status = {"rounds": 5, "round": 2, "metrics": [{"key": "accuracy", "value": "0.9"}]}
    assert progress_of(status) == "round 2/5, accuracy 0.9"
    assert metrics_of(status) == (("accuracy", "0.9"),)


def test_a_training_job_is_in_the_phase_of_its_last_condition() -> None:
    status = {
        "conditions": [
            {"type": "Created", "status": "True"},
            {"type": "Restarting", "status": "True", "message": "Worker 1 was killed"},
        ],
        "replicaStatuses": {"Worker": {"active": 2, "failed": 1}},
    }
    assert phase_of(status) == "Restarting"
    assert progress_of(status) == "Worker 2 active, 1 failed"
    assert trouble_of(status) == "Worker 1 was killed"


def test_a_worker_that_the_launcher_does_not_have_yet_is_not_in_training() -> None:
    status = {"replicaStatuses": {"Worker": {"active": 3}}, "targetWorkers": ["a", "b", "d"]}
    assert progress_of(status | {"currentWorkers": ["a", "b"]}) == (
        "Worker 3 active, 1 not in training yet"
    )
    assert progress_of(status | {"currentWorkers": ["a", "b", "c", "d"]}) == "Worker 3 active"
    assert progress_of(status | {"currentWorkers": []}) == "Worker 3 active", "before the launcher"


def test_a_dataset_is_ready_or_says_why_not() -> None:
    good = {"type": "Accepted", "status": "True", "reason": "Valid"}
    assert phase_of({"conditions": [good]}) == "Ready"
    bad = {"type": "Ready", "status": "False", "reason": "FileNotFound"}
    assert phase_of({"conditions": [good, bad]}) == "FileNotFound"
    assert phase_of({}) == "-"


def test_a_job_that_waits_says_for_what() -> None:
    conditions = [
        {
            "type": "ResolvedRefs",
            "status": "False",
            "reason": "ModelNotFound",
            "message": "Model small does not exist",
        },
        {"type": "Running", "status": "False", "reason": "Waiting", "message": "later"},
    ]
    assert trouble_of({"conditions": conditions}) == "Model small does not exist"
    assert trouble_of({"conditions": conditions, "phase": "Succeeded"}) == ""


# ---- faults -------------------------------------------------------------------------------------

STALLED = {
    "type": "Stalled",
    "status": "True",
    "reason": "CrashLoopBackOff",
    "message": (
        "pod a-master-0 on node n1: CrashLoopBackOff: container main ended with exit code 1: "
        "Error; pod a-worker-0: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu; "
        "and 2 more"
    ),
}
CREATED = {"type": "Created", "status": "True"}


def pod(name: str, **state: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": "n1"}, "status": state}


def test_a_condition_about_two_pods_is_two_faults_with_a_remedy_for_each() -> None:
    faults = faults_of({"status": {"conditions": [STALLED, CREATED]}})
    assert [(fault.worker, fault.reason) for fault in faults] == [
        ("a-master-0", "CrashLoopBackOff"),
        ("a-worker-0", "Unschedulable"),
    ]
    assert "edgeai logs" in faults[0].remedy
    assert "make room" in faults[1].remedy


def test_the_pods_say_more_than_the_condition() -> None:
    ended = {"exitCode": 9, "reason": "Error"}
    entry = {
        "name": "main",
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    job = {"status": {"conditions": [STALLED, CREATED]}}
    faults = faults_of(job, [pod("a-master-0", phase="Running", containerStatuses=[entry])])
    assert [fault.worker for fault in faults] == ["a-master-0", "a-worker-0"]
    assert faults[0].text.endswith("ended with exit code 9: Error (started again 4 times)")


def test_a_fault_that_two_conditions_tell_is_one_fault() -> None:
    text = "pod a-edge-0 on node n1: ImagePullBackOff: container main: no such image"
    conditions = [
        {"type": type_, "status": truth, "reason": "ImagePullBackOff", "message": message}
        for type_, truth, message in (
            ("Running", "False", f"edge worker: {text}"),
            ("Failed", "True", f"edge worker: {text}"),
        )
    ]
    (fault,) = faults_of({"status": {"conditions": conditions}})
    assert (fault.worker, fault.reason) == ("a-edge-0", "ImagePullBackOff")


def test_the_cause_goes_before_its_consequences() -> None:
    told = (
        ("EdgeConnected", "NoContact", "no session"),
        ("Training", "Unschedulable", "pod b: x"),
        ("ResolvedRefs", "ModelNotFound", "Model m"),
    )
    conditions = [
        {"type": type_, "status": "False", "reason": reason, "message": message}
        for type_, reason, message in told
    ]
    faults = faults_of({"status": {"conditions": conditions}})
    assert [fault.reason for fault in faults] == ["ModelNotFound", "Unschedulable", "NoContact"]


def test_a_job_of_another_controller_says_so() -> None:
    job = {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}}
    assert "kueue.x-k8s.io/multikueue works on this job" in waits_of(job)[0].text
    assert waits_of({"spec": {"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}}) == ()


def test_a_suspended_job_waits_to_be_resumed() -> None:
    suspended = {"type": "Suspended", "status": "True", "reason": "TFJobSuspended", "message": "is"}
    job = {"status": {"conditions": [CREATED, suspended]}}
    assert faults_of(job) == ()
    assert [fault.remedy for fault in waits_of(job)] == ["resume the job when it is to go on"]


def test_a_job_that_has_failed_is_judged_by_its_end() -> None:
    message = "TFJob a has failed because 1 Worker failed. pod a-0 on node n1: OOMKilled: c"
    failed = {"type": "Failed", "status": "True", "reason": "TFJobFailed", "message": message}
    job = {"status": {"conditions": [CREATED, failed]}}
    (fault,) = faults_of(job, [pod("a-1", phase="Failed")])
    assert (fault.text, fault.worker) == (message, "a-0")
    assert "memory limit" in fault.remedy


def test_a_node_that_is_silent_for_kubernetes_alone_is_no_fault() -> None:
    silent = pod("a-edge-0", phase="Unknown")
    workers = {"a-edge": {"node": "n1", "status": "running"}}
    connected = {"type": "EdgeConnected", "status": "True", "reason": "Connected"}
    job = {"status": {"workers": workers, "conditions": [connected]}}
    assert faults_of(job, [silent]) == ()
    lost = {**connected, "status": "False", "reason": "NoContact", "message": "no session"}
    told = faults_of({"status": {"workers": workers, "conditions": [lost]}}, [silent])
    assert [fault.reason for fault in told] == ["NodeNotReady", "NoContact"]
    assert [fault.reason for fault in faults_of({}, [silent])] == ["NodeNotReady"]
