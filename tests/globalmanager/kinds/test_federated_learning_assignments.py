"""FederatedLearningJob: the assignment of each node."""

from globalmanager.kinds.federatedlearningjob import KIND
from tests.globalmanager.builders import World
from tests.globalmanager.kinds.samples import federated_job, sedna_federated_job


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
