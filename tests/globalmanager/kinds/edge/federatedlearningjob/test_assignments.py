"""FederatedLearningJob: the assignment of each node."""

from globalmanager.contract import task_key
from globalmanager.edge.sessions.desired_sets import DesiredSets
from globalmanager.kinds.edge.federatedlearningjob import KIND
from tests.globalmanager.kinds.edge.samples import federated_job, sedna_federated_job
from tests.support.world import World


def reporting_workers(world: World) -> dict[str, list[str]]:
    """Node -> workers that may report from the node."""
    assignments = KIND.assignments(world.observed())
    return {node: list(each.body.workers) for node, each in assignments.items()}


def test_the_assignment_of_a_node_names_the_trainers_of_the_node() -> None:
    world = sedna_federated_job().settle()
    assert reporting_workers(world) == {
        "edge1": ["surface-defect-detection-train-0"],
        "edge2": ["surface-defect-detection-train-1"],
    }


def test_running_trainers_may_report_while_the_spec_is_not_accepted() -> None:
    world = sedna_federated_job().settle()
    world.change({})
    world.pod("train", "edge1", name="surface-defect-detection-train-0")
    assert reporting_workers(world) == {"edge1": ["surface-defect-detection-train-0"]}


def test_a_job_that_is_being_deleted_has_no_assignment() -> None:
    world = federated_job().settle().delete()
    assert KIND.assignments(world.observed()) == {}


def bound(world: World) -> dict[str, list[str]]:
    """Node -> the workers whose reports the GlobalManager takes from the node now."""
    sets = DesiredSets()
    assignments = KIND.assignments(world.observed())
    sets.assign(task_key(world.observed().ref), assignments)
    found = {node: sets.binding_of(node, world.observed().uid) for node in assignments}
    return {node: sorted(binding.workers) for node, binding in found.items() if binding}


def test_a_trainer_without_fixed_node_reports_from_its_node_alone() -> None:
    world = federated_job(2).settle()
    assert reporting_workers(world)["edge0"] == ["digits-train-0", "digits-train-1"]
    assert bound(world) == {"edge0": ["digits-train-0"], "edge1": ["digits-train-1"]}


def test_the_grant_follows_the_pod_and_without_a_pod_the_dataset() -> None:
    world = federated_job(2)
    assert bound(world) == {"edge0": ["digits-train-0"], "edge1": ["digits-train-1"]}
    world.dataset("data0", "edge5")
    assert bound(world) == {"edge5": ["digits-train-0"], "edge1": ["digits-train-1"]}
    world.pod("train", "edge0", name="digits-train-0")
    assert bound(world) == {
        "edge0": ["digits-train-0"],
        "edge1": ["digits-train-1"],
        "edge5": [],
    }
