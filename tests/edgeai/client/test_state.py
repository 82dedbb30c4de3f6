"""How far an object is, of statuses of every form."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeai.cli.jobs.page import described
from edgeai.client.objects import CLASSES
from edgeai.client.pods import owned, workers_of
from edgeai.client.state import conditions_of, state_of
from tests.edgeai.client.conftest import condition
from tests.edgeai.faults.test_remedies import RECORDED

WORDS: Final = st.sampled_from(("", "a", "\x1b[2J", "Failed", "Running", "True", "False", "type"))
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.just(0.5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
FIELDS: Final = (
    *("phase", "conditions", "workers", "metrics", "elastic", "message", "round", "rounds"),
    *("replicaStatuses", "tfReplicaStatuses", "containerStatuses", "type", "status", "reason"),
)
STATUS: Final = st.dictionaries(st.sampled_from(FIELDS), JSON | st.lists(JSON, max_size=3))


@given(STATUS, STATUS)
def test_a_status_of_any_form_is_read(status: Any, entry: Any) -> None:
    metadata = {
        "name": "a",
        "namespace": "b",
        "uid": "c",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    status = {**status, "conditions": [entry, *([status] if status else [])]}
    for each in CLASSES:
        type_ = each.type_in()
        head = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": metadata}
        object_ = {**head, "status": status}
        pod = {"metadata": metadata, "spec": {}, "status": entry}
        assert state_of(object_).result in ("", "succeeded", "failed")
        assert json.dumps([str(one) for one in workers_of(object_, [pod])])
        assert described(each(object_), state_of(object_, [pod]), [pod]).name == "a"
        assert owned([pod], {"c"}) == []


def status_of(kind: str, *conditions: Any, **status: Any) -> Any:
    head = {"kind": kind, "metadata": {"generation": 1}}
    return state_of({**head, "status": {"conditions": list(conditions), **status}})


CREATED: Final = condition("Created", "True", "PyTorchJobCreated", "made")


@pytest.mark.parametrize(
    ("kind", "conditions", "phase", "result"),
    [
        ("PyTorchJob", [CREATED, condition("Running", "True", "PyTorchJobRunning")], "Running", ""),
        ("PyTorchJob", [CREATED, condition("Failed", "True", "X")], "Failed", "failed"),
        ("PyTorchJob", [CREATED, condition("Succeeded", "True", "X")], "Succeeded", "succeeded"),
        ("FederatedLearningJob", [condition("Complete", "True", "Complete")], "", "succeeded"),
        ("FederatedLearningJob", [condition("Training", "True", "WorkersRunning")], "", ""),
        ("JointInferenceService", [condition("Failed", "True", "CrashLoopBackOff")], "", ""),
        ("JointInferenceService", [condition("Running", "True", "X")], "", "succeeded"),
        ("Dataset", [condition("Counted", "False", "NotFound")], "NotFound", ""),
        ("Dataset", [condition("Accepted", "False", "InvalidSpec")], "InvalidSpec", "failed"),
        ("ScaleOut", [condition("ScaleFailed", "True", "ScaleOutFailed")], "", "failed"),
    ],
)
def test_the_phase_and_the_result(kind: str, conditions: Any, phase: str, result: str) -> None:
    state = status_of(kind, *conditions)
    assert state.result == result
    assert phase in ("", state.phase)  # "": such a kind always writes a phase


def test_a_condition_of_an_earlier_spec_is_no_result() -> None:
    old = condition("Running", "True", "WorkersAvailable") | {"observedGeneration": 0}
    assert status_of("JointInferenceService", old).result == ""


def test_what_an_object_waits_for_is_what_is_bad_and_else_what_starts() -> None:
    bad = condition("EdgeConnected", "False", "NoContact", "no session")
    starting = condition("Running", "False", "Starting", "not available yet")
    assert status_of("X", bad, starting).waits_for == ("no session",)
    assert status_of("X", starting).waits_for == ("not available yet",)
    room = status_of("TrainingJob", elastic={"message": "0/3 nodes"}, phase="Running")
    assert room.waits_for == ("0/3 nodes",)


def test_a_service_that_is_up_still_says_that_its_edge_is_out_of_contact() -> None:
    up = condition("Running", "True", "WorkersAvailable", "both workers are available")
    lost = condition("EdgeConnected", "False", "NoContact", "no session with edge1")
    state = status_of("JointInferenceService", up, lost)
    assert (state.result, state.waits_for) == ("succeeded", ("no session with edge1",))
    assert status_of("JointInferenceService", up).waits_for == ()


def test_every_golden_condition_that_is_bad_comes_with_a_remedy() -> None:
    number = 0
    for file in RECORDED.glob("*.json"):
        for job in json.loads(file.read_text())["jobs"]:
            for moment in job["moments"]:
                status = moment.get("status")
                for one in conditions_of({"status": status}) if isinstance(status, dict) else ():
                    assert one.good or one.remedy, one
                    number += not one.good
    assert number > 50
