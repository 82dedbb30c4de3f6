"""Model: the plan only checks the spec."""

from typing import Any

import msgspec
import pytest

from globalmanager.contract import Plan
from globalmanager.kinds.edge.model import KIND
from tests.globalmanager.kinds.edge.samples import proposal_service, small_service
from tests.support.world import World, job, report


def model(**spec: Any) -> World:
    return World(KIND, job("small", spec)).settle()


@pytest.mark.parametrize("url", ["/models/small.pb", "s3://bucket/small.pb"])
def test_a_good_model_is_accepted_once(url: str) -> None:
    world = model(url=url, format="pb", device_soc_versions=["Ascend310"])
    assert world.condition("Accepted")["status"] == "True"
    assert world.plan() == Plan()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({}, "spec.url: is missing", id="no url"),
        pytest.param({"url": ""}, "spec.url: has the wrong form", id="empty url"),
        pytest.param({"url": "ftp://x/y"}, "spec.url: scheme of 'ftp://x/y'", id="scheme"),
        pytest.param(
            {"url": "/m/a", "device_soc_versions": 1}, "spec.device_soc_versions: ", id="type"
        ),
    ],
)
def test_a_bad_model_is_reported_with_the_field(spec: dict[str, Any], message: str) -> None:
    world = model(**spec)
    assert world.condition("Accepted")["message"].startswith(message)
    assert world.condition("Accepted")["status"] == "False"


def test_a_corrected_model_is_accepted() -> None:
    world = model(url="nowhere").change({"url": "/models/a"}).settle()
    assert world.condition("Accepted")["status"] == "True"
    assert world.condition("Accepted")["observedGeneration"] == 2


def test_a_model_has_no_assignment_and_no_reports() -> None:
    world = model(url="/models/a")
    assert world.kind.assignments(world.observed()) == {}
    assert world.receive(report()) is None


def test_a_model_that_is_being_deleted_has_an_empty_plan() -> None:
    assert model(url="nowhere").delete().plan() == Plan()


@pytest.mark.parametrize("url", ["/root/.ssh/id_rsa", "/root/.ssh", "/etc/shadow", "/home/joe/m"])
def test_a_model_in_a_directory_of_the_system_is_refused_by_name(url: str) -> None:
    accepted = model(url=url).condition("Accepted")
    assert accepted["status"] == "False"
    assert accepted["message"].startswith("spec.url: workers may not have ")
    assert "--node-path-prefixes" in accepted["message"]


def test_a_service_with_such_a_model_makes_nothing_and_names_the_model() -> None:
    world = small_service().model("big", "/root/.ssh/id_rsa").settle()
    assert world.names() == []
    told = world.condition("ResolvedRefs")
    assert told["reason"] == "PathNotAllowed"
    assert "Model default/big (spec.cloudWorker.model.name): spec.url: " in told["message"]
    assert "'/root/.ssh'" in told["message"]


def test_scripts_in_a_directory_of_the_system_are_refused() -> None:
    world = proposal_service()
    world.object["spec"]["edgeWorker"]["workerSpec"]["scriptDir"] = "/etc/cron.d"
    world.settle()
    assert world.names() == []
    told = world.condition("ResolvedRefs")
    assert told["reason"] == "PathNotAllowed"
    assert told["message"].startswith("spec.edgeWorker.workerSpec.scriptDir: workers may not have")


def test_a_prefix_allows_the_directory() -> None:
    world = small_service().model("big", "/root/models/m")
    world.settings = msgspec.structs.replace(world.settings, node_path_prefixes=("/", "/root"))
    assert world.settle().condition("ResolvedRefs")["status"] == "True"
