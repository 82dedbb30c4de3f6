"""Dataset: its node gets the assignment and counts the samples."""

from typing import Any

import pytest

from common.wire import WorkerGrant
from globalmanager.contract import ObjectRef
from globalmanager.kinds.dataset import KIND
from tests.globalmanager.builders import World, job, report

SPEC = {"url": "/data/a.csv", "format": "csv", "nodeName": "edge0", "credentialName": "s3-key"}


def dataset(**fields: Any) -> World:
    spec = {key: value for key, value in {**SPEC, **fields}.items() if value is not None}
    return World(KIND, job("faces", spec)).nodes("edge0")


def counted(number: float, **more: Any) -> Any:
    return report(worker="dataset", counts={"numberOfSamples": number}, **more)


def test_the_node_gets_the_place_of_the_data() -> None:
    world = dataset()
    ((node, assignment),) = world.kind.assignments(world.observed()).items()
    assert node == "edge0"
    assert assignment.key == "datasets.edgeai.io/default/faces"
    assert assignment.body.spec == {
        "url": "/data/a.csv",
        "format": "csv",
        "credentialName": "s3-key",
    }


def test_the_node_itself_reports_and_no_secret_grants_it() -> None:
    world = dataset()
    (assignment,) = world.kind.assignments(world.observed()).values()
    assert assignment.body.workers == {"faces": WorkerGrant(secret_hash="")}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"url": None}, "spec.url: is missing", id="no url"),
        pytest.param({"url": "data.csv"}, "spec.url: 'data.csv' is no absolute", id="relative"),
        pytest.param({"nodeName": None}, "spec.nodeName: is missing", id="no node"),
        pytest.param({"nodeName": "A B"}, "spec.nodeName: 'A B' cannot be", id="no node name"),
        pytest.param({"format": 5}, "spec.format: has the wrong form", id="format"),
    ],
)
def test_an_invalid_spec_reaches_the_user_and_no_node(fields: dict[str, Any], message: str) -> None:
    world = dataset(**fields).settle()
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert accepted["message"].startswith(message)
    assert world.kind.assignments(world.observed()) == {}


def test_a_node_that_does_not_exist_is_named() -> None:
    world = dataset(nodeName="edge9").settle()
    resolved = world.condition("ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", "NodeNotFound")
    assert "edge9" in resolved["message"]
    assert world.nodes("edge9").settle().condition("ResolvedRefs")["status"] == "True"


def test_a_dataset_refers_only_to_its_node() -> None:
    (ref,) = KIND.references(dataset().observed())
    assert isinstance(ref, ObjectRef)
    assert (ref.type.kind, ref.name) == ("Node", "edge0")


def test_the_node_reports_the_number_of_samples() -> None:
    world = dataset().settle()
    world.receive(counted(120, details={"updateTime": "2026-01-02T04:00:00+01:00"}))
    assert world.status["numberOfSamples"] == 120
    assert world.status["updateTime"] == "2026-01-02T03:00:00Z"


def test_the_number_of_samples_may_shrink_with_any_ledger() -> None:
    world = dataset().settle()
    for number, ledger_id in ((120, "ledger-1"), (80, "ledger-1"), (60, "ledger-2")):
        world.receive(counted(number, ledger_id=ledger_id))
        assert world.status["numberOfSamples"] == number


@pytest.mark.parametrize(
    ("first", "again"),
    [
        pytest.param(counted(5), counted(5, observed_at="2026-01-02T05:00:00Z"), id="same number"),
        pytest.param(counted(5, attempt=2), counted(6, attempt=1), id="older attempt"),
    ],
)
def test_a_repeated_report_is_not_written(first: Any, again: Any) -> None:
    world = dataset().settle()
    world.receive(first)
    assert world.receive(again) is None


def test_an_invalid_time_is_left_out() -> None:
    world = dataset().settle()
    world.receive(counted(5, details={"updateTime": "yesterday"}))
    assert world.status["numberOfSamples"] == 5
    assert "updateTime" not in world.status


def test_the_reconciler_leaves_the_count_alone() -> None:
    world = dataset().contact("edge0").settle()
    world.receive(counted(5))
    assert world.plan().status is None


def told(generation: int = 1, **more: Any) -> Any:
    more["details"] = {"generation": str(generation), **more.get("details", {})}
    return report(worker="faces", node=more.pop("node", "edge0"), **more)


def failed(problem: str = "NotFound", reason: str = "spec.url: /data/a.csv is not there") -> Any:
    return told(status="lost", reason=reason, details={"problem": problem})


def test_a_dataset_waits_for_the_first_count() -> None:
    counted_ = dataset().settle().condition("Counted")
    assert (counted_["status"], counted_["reason"]) == ("False", "Waiting")
    assert "edge0" in counted_["message"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(told(counts={"numberOfSamples": 5}), ("True", "Counted"), id="counted"),
        pytest.param(failed(), ("False", "NotFound"), id="the node's reason"),
        pytest.param(failed("no word"), ("False", "SourceFailed"), id="a reason that is none"),
        pytest.param(told(0), ("False", "Waiting"), id="of the spec before"),
        pytest.param(told(node="edge1"), ("False", "Waiting"), id="of another node"),
    ],
)
def test_the_condition_counted_is_what_the_node_says(said: Any, expected: tuple[str, str]) -> None:
    world = dataset().settle()
    world.receive(said)
    condition = world.settle().condition("Counted")
    assert (condition["status"], condition["reason"]) == expected


def test_a_problem_keeps_the_number_says_why_and_heals() -> None:
    world = dataset().settle()
    world.receive(told(counts={"numberOfSamples": 5}))
    world.settle().receive(failed())
    assert world.settle().condition("Counted")["message"] == "spec.url: /data/a.csv is not there"
    assert world.status["numberOfSamples"] == 5
    world.receive(told(counts={"numberOfSamples": 5}))
    assert world.settle().condition("Counted")["status"] == "True"


def test_a_new_number_of_samples_changes_no_condition() -> None:
    world = dataset().contact("edge0").settle()
    world.receive(told(counts={"numberOfSamples": 5}))
    world.settle().receive(told(counts={"numberOfSamples": 6}))
    assert world.plan().status is None


def test_lost_contact_is_shown() -> None:
    world = dataset().contact("edge0", connected=False)
    assert world.plan().requeue_after_s == 40
    world.settle().contact("edge0").settle()
    assert world.condition("EdgeConnected")["status"] == "True"
