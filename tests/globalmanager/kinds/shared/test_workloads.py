"""Jobs that name a Workload of Kueue: held, admitted, evicted, ended."""

from collections.abc import Callable

import pytest

from edgeai.api.resources import Object
from globalmanager.contract import Adopt, PatchStatus
from globalmanager.kinds.elastic import trainingjob
from globalmanager.kinds.shared.workloads import LABEL, WORKLOADS
from tests.globalmanager.kinds.edge.samples import federated_job
from tests.globalmanager.kinds.elastic.world import created, example
from tests.globalmanager.kinds.training.samples import pods
from tests.support.world import World, at, job

NAME = "queued"


def federation() -> World:
    return federated_job().contact("edge0").contact("edge1")


def training() -> World:
    return World(trainingjob.KIND, job("elastic-training", example()["spec"]))


JOBS: dict[str, Callable[[], World]] = {
    "FederatedLearningJob": federation,
    "TrainingJob": training,
}


@pytest.fixture(params=JOBS)
def world(request: pytest.FixtureRequest) -> World:
    """A job that names a Workload which waits for quota."""
    world = JOBS[request.param]()
    world.object["metadata"]["labels"] = {LABEL: NAME}
    return world.workload(NAME)


def admitted(world: World) -> World:
    """The job runs."""
    world.workload(NAME, QuotaReserved="True", Admitted="True").settle()
    for _ in range(3):  # workers first, then their launcher
        world.pods_become("Running").settle()
    return world


def evicted(world: World, reason: str = "Preempted") -> World:
    world.workload(NAME, Evicted="True")
    workload(world)["status"]["conditions"][-1]["reason"] = reason
    return world


def workload(world: World) -> Object:
    return world.other("Workload", NAME)


def of_workload(world: World, type_: str) -> tuple[str, str]:
    """(status, reason) of a condition of the Workload"""
    conditions = workload(world)["status"]["conditions"]
    found: Object = next((one for one in conditions if one["type"] == type_), {})
    return found.get("status", ""), found.get("reason", "")


def test_a_job_waits_until_its_workload_is_admitted(world: World) -> None:
    world.settle()
    assert (world.status["phase"], pods(world)) == ("Suspended", [])
    assert "startTime" not in world.status
    admitted(world)
    assert world.status["phase"] in ("Running", "Training")
    assert world.condition("Suspended")["status"] == "False"
    assert of_workload(world, "PodsReady") == ("True", "Started")


def test_a_job_waits_for_a_workload_that_does_not_exist(world: World) -> None:
    world.without("Workload", NAME).settle()
    assert (world.status["phase"], pods(world)) == ("Suspended", [])


def test_a_reservation_alone_starts_nothing(world: World) -> None:
    """An admission check may still refuse."""
    world.workload(NAME, QuotaReserved="True").settle()
    assert pods(world) == []


def test_the_job_becomes_the_owner_of_its_workload_once(world: World) -> None:
    actions = [action for action in world.plan().actions if isinstance(action, Adopt)]
    assert [action.ref.name for action in actions] == [NAME]
    world.settle()
    assert not [action for action in world.plan().actions if isinstance(action, Adopt)]


def test_the_workload_of_another_job_starts_nothing(world: World) -> None:
    owner = {"uid": "of-another-job", "controller": True}
    workload(world)["metadata"]["ownerReferences"] = [owner]
    world.workload(NAME, QuotaReserved="True", Admitted="True", Evicted="True").settle()
    assert (world.status["phase"], pods(world)) == ("Suspended", [])
    assert of_workload(world, "QuotaReserved")[0] == "True", "its quota is not ours"


def test_an_evicted_job_ends_its_pods_and_then_gives_its_quota_back(world: World) -> None:
    evicted(admitted(world)).settle(at(60))
    assert (world.status["phase"], pods(world)) == ("Suspended", [])
    assert of_workload(world, "QuotaReserved") == ("False", "Pending")
    assert of_workload(world, "Admitted") == ("False", "NoReservation")
    assert of_workload(world, "Requeued") == ("True", "Preempted")
    assert of_workload(world, "PodsReady") == ("False", "WaitForStart")
    assert of_workload(world, "Evicted") == ("True", "Preempted")
    assert workload(world)["status"].get("admission") is None


def test_a_deactivated_job_is_not_queued_again(world: World) -> None:
    evicted(admitted(world), "Deactivated").settle(at(60))
    assert of_workload(world, "Requeued") == ("False", "Deactivated")


def test_a_job_that_is_admitted_again_runs_with_a_new_start_time(world: World) -> None:
    before = admitted(world).status["startTime"]
    evicted(world).settle(at(60))
    world.workload(NAME, Evicted="False", QuotaReserved="True", Admitted="True").settle(at(90))
    assert pods(world) != []
    assert world.status["startTime"] > before


def test_a_trainer_on_an_edge_keeps_the_quota_until_its_node_confirms_its_end() -> None:
    world = federation()
    world.object["metadata"]["labels"] = {LABEL: NAME}
    admitted(world.workload(NAME)).terminates = True
    evicted(world).settle(at(60))
    assert of_workload(world, "QuotaReserved")[0] == "True"
    world.end_deleted("digits-train-1").settle(at(9000))
    assert of_workload(world, "QuotaReserved")[0] == "True"
    world.end_deleted().settle(at(9001))
    assert of_workload(world, "QuotaReserved")[0] == "False"


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_the_workload_of_a_job_that_has_ended_is_finished(world: World, end: str) -> None:
    reason = {} if end == "Succeeded" else {"reason": "DeadlineExceeded"}
    admitted(world).pods_become(end, **reason).settle(at(60))
    assert of_workload(world, "Finished") == ("True", end)
    patches = [one for one in world.plan(at(61)).actions if isinstance(one, PatchStatus)]
    assert [one for one in patches if one.ref.type == WORKLOADS] == []


def test_an_eviction_after_the_end_deletes_nothing(world: World) -> None:
    admitted(world).pods_become("Succeeded").settle(at(60))
    left = pods(world)
    evicted(world).settle(at(61))
    assert pods(world) == left


def test_a_job_that_a_person_suspends_waits_although_it_is_admitted(world: World) -> None:
    admitted(world)
    world.change({**world.object["spec"], "suspend": True}).settle(at(60))
    assert (world.status["phase"], pods(world)) == ("Suspended", [])
    assert of_workload(world, "QuotaReserved")[0] == "True"


def test_a_job_without_the_label_does_not_wait() -> None:
    assert pods(created(example())) != []
