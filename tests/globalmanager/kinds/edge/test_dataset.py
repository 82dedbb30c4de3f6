"""Dataset: its node gets the assignment and counts the samples."""

from typing import Any

import pytest

from common.wire import WorkerGrant
from edgeai.api.resources import ObjectRef
from globalmanager.kinds.edge.dataset import KIND
from tests.support.world import World, job, report

SPEC = {"url": "/data/a.csv", "format": "csv", "nodeName": "edge0", "credentialName": "s3-key"}


def dataset_world(**fields: Any) -> World:
    spec = {key: value for key, value in {**SPEC, **fields}.items() if value is not None}
    return World(KIND, job("faces", spec)).nodes("edge0")


def count_report(number: float, **more: Any) -> Any:
    """A report with the number of samples."""
    return report(worker="dataset", counts={"numberOfSamples": number}, **more)


def test_the_assignment_names_the_location_of_the_data() -> None:
    world = dataset_world()
    ((node, assignment),) = world.kind.assignments(world.observed()).items()
    assert node == "edge0"
    assert assignment.key == "datasets.edgeai.io/default/faces"
    assert assignment.body.spec == {
        "url": "/data/a.csv",
        "format": "csv",
        "credentialName": "s3-key",
    }


def test_the_localcontroller_reports_without_a_worker_secret() -> None:
    world = dataset_world()
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
def test_an_invalid_spec_becomes_a_condition_and_no_assignment(
    fields: dict[str, Any], message: str
) -> None:
    world = dataset_world(**fields).settle()
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert accepted["message"].startswith(message)
    assert world.kind.assignments(world.observed()) == {}


def test_the_condition_names_a_node_that_does_not_exist() -> None:
    world = dataset_world(nodeName="edge9").settle()
    resolved = world.condition("ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", "NodeNotFound")
    assert "edge9" in resolved["message"]
    assert world.nodes("edge9").settle().condition("ResolvedRefs")["status"] == "True"


def test_a_dataset_refers_only_to_its_node() -> None:
    (ref,) = KIND.references(dataset_world().observed())
    assert isinstance(ref, ObjectRef)
    assert (ref.type.kind, ref.name) == ("Node", "edge0")


def test_the_node_reports_the_number_of_samples() -> None:
    world = dataset_world().settle()
    world.receive(count_report(120, details={"updateTime": "2026-01-02T04:00:00+01:00"}))
    assert world.status["numberOfSamples"] == 120
    assert world.status["updateTime"] == "2026-01-02T03:00:00Z"


def test_the_number_of_samples_may_shrink_with_the_same_or_a_new_ledger() -> None:
    world = dataset_world().settle()
    for number, ledger_id in ((120, "ledger-1"), (80, "ledger-1"), (60, "ledger-2")):
        world.receive(count_report(number, ledger_id=ledger_id))
        assert world.status["numberOfSamples"] == number


@pytest.mark.parametrize(
    ("first", "again"),
    [
        pytest.param(
            count_report(5), count_report(5, observed_at="2026-01-02T05:00:00Z"), id="same number"
        ),
        pytest.param(count_report(5, attempt=2), count_report(6, attempt=1), id="older attempt"),
    ],
)
def test_a_repeated_report_is_not_written(first: Any, again: Any) -> None:
    world = dataset_world().settle()
    world.receive(first)
    assert world.receive(again) is None


def test_an_invalid_time_is_left_out() -> None:
    world = dataset_world().settle()
    world.receive(count_report(5, details={"updateTime": "yesterday"}))
    assert world.status["numberOfSamples"] == 5
    assert "updateTime" not in world.status


def test_a_plan_does_not_write_the_number_of_samples() -> None:
    world = dataset_world().contact("edge0").settle()
    world.receive(count_report(5))
    assert world.plan().status is None


def node_report(generation: int = 1, **more: Any) -> Any:
    """A report of the Dataset's node about one generation of the spec."""
    more["details"] = {"generation": str(generation), **more.get("details", {})}
    return report(worker="faces", node=more.pop("node", "edge0"), **more)


def failed_count(
    problem: str = "NotFound", reason: str = "spec.url: /data/a.csv is not there"
) -> Any:
    """A report that the node could not count the samples."""
    return node_report(status="lost", reason=reason, details={"problem": problem})


def test_a_dataset_waits_for_the_first_count() -> None:
    condition = dataset_world().settle().condition("Counted")
    assert (condition["status"], condition["reason"]) == ("False", "Waiting")
    assert "edge0" in condition["message"]


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        pytest.param(node_report(counts={"numberOfSamples": 5}), ("True", "Counted"), id="counted"),
        pytest.param(failed_count(), ("False", "NotFound"), id="a known problem"),
        pytest.param(failed_count("no word"), ("False", "SourceFailed"), id="an unknown problem"),
        pytest.param(node_report(0), ("False", "Waiting"), id="an earlier generation"),
        pytest.param(node_report(node="edge1"), ("False", "Waiting"), id="another node"),
    ],
)
def test_the_condition_counted_follows_the_report_of_the_node(
    received: Any, expected: tuple[str, str]
) -> None:
    world = dataset_world().settle()
    world.receive(received)
    condition = world.settle().condition("Counted")
    assert (condition["status"], condition["reason"]) == expected


def test_a_failed_count_keeps_the_last_number_until_the_next_count() -> None:
    world = dataset_world().settle()
    world.receive(node_report(counts={"numberOfSamples": 5}))
    world.settle().receive(failed_count())
    assert world.settle().condition("Counted")["message"] == "spec.url: /data/a.csv is not there"
    assert world.status["numberOfSamples"] == 5
    world.receive(node_report(counts={"numberOfSamples": 5}))
    assert world.settle().condition("Counted")["status"] == "True"


def test_a_new_number_of_samples_changes_no_condition() -> None:
    world = dataset_world().contact("edge0").settle()
    world.receive(node_report(counts={"numberOfSamples": 5}))
    world.settle().receive(node_report(counts={"numberOfSamples": 6}))
    assert world.plan().status is None


def test_lost_contact_is_shown() -> None:
    world = dataset_world().contact("edge0", connected=False)
    assert world.plan().requeue_after_s == 40
    world.settle().contact("edge0").settle()
    assert world.condition("EdgeConnected")["status"] == "True"


def test_a_dataset_in_a_directory_of_the_system_is_refused_and_no_node_reads_it() -> None:
    world = dataset_world(url="/etc/shadow").settle()
    assert world.condition("Accepted")["status"] == "False"
    assert "workers may not have '/etc'" in world.condition("Accepted")["message"]
    assert world.kind.assignments(world.observed()) == {}
