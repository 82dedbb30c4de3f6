"""The few words about a job: also of a status that nobody of us has written."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from globalmanager.rules.summary import metrics_of, phase_of, progress_of, trouble_of

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


@given(st.dictionaries(FIELDS, JSON | st.lists(CONDITION, max_size=3)) | JSON)
def test_any_status_has_words(status: Any) -> None:
    for words in (phase_of(status), progress_of(status), trouble_of(status)):
        assert isinstance(words, str)


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


def test_a_dataset_is_ready_or_says_why_not() -> None:
    good = {"type": "Accepted", "status": "True", "reason": "Valid"}
    assert phase_of({"conditions": [good]}) == "Ready"
    bad = {"type": "Ready", "status": "False", "reason": "FileNotFound"}
    assert phase_of({"conditions": [good, bad]}) == "FileNotFound"
    assert phase_of({}) == "-"


def test_a_job_that_waits_says_for_what() -> None:
    conditions = [
        {"type": "Ready", "status": "False", "message": "Model small does not exist"},
        {"type": "EdgeReady", "status": "Unknown", "message": "later"},
    ]
    assert trouble_of({"conditions": conditions}) == "Model small does not exist"
    assert trouble_of({"conditions": conditions, "phase": "Succeeded"}) == ""
