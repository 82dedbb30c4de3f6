"""What users of Sedna read of their jobs, in group sedna.io as they know it, beside edgeai's own.

In group edgeai.io nothing of this appears.
"""

from typing import Any

import pytest

from globalmanager.kinds.edge.jointinferenceservice import KIND
from tests.globalmanager.kinds.edge.samples import (
    EDGEAI,
    SEDNA,
    federated_job,
    joint_inference_spec,
    sedna_federated_job,
    sedna_service,
)
from tests.support.world import World, job, report

COUNTS = {"seen": 30, "hard": 10, "uploaded": 10}


def service(group: str = "sedna.io", **fields: Any) -> World:
    type_ = SEDNA if group == "sedna.io" else EDGEAI
    manifest = job("digits", {**joint_inference_spec(), **fields})
    return World(KIND, manifest, type_).model("small").model("big").nodes("edge0")


def metrics(world: World) -> dict[str, str]:
    return {entry["key"]: entry["value"] for entry in world.status["metrics"]}


def condition_types(world: World) -> list[str]:
    return [entry["type"] for entry in world.status["conditions"]]


# ---- metrics ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "ratio"),
    [
        (COUNTS, "0.3333333333333333"),
        ({"seen": 4, "hard": 1, "uploaded": 1}, "0.25"),
        ({"seen": 4, "hard": 4, "uploaded": 4}, "1"),
        ({"seen": 4, "hard": 0, "uploaded": 0}, "0"),
        ({"seen": 30_000_000, "hard": 1, "uploaded": 1}, "3.3333333333333334e-08"),
    ],
)
def test_sednas_metrics_are_beside_ours_at_full_precision(
    counts: dict[str, int], ratio: str
) -> None:
    """Sedna writes each number as JSON has it."""
    world = service().settle()
    world.receive(report(counts=counts))
    told = metrics(world)
    assert told["inferenceNumber"] == told["seen"] == str(counts["seen"])
    assert told["hardExampleNumber"] == told["hard"] == str(counts["hard"])
    assert told["uploadCloudRatio"] == ratio
    assert float(told["uploadCloudRatio"]) == counts["uploaded"] / counts["seen"]
    assert len(told) == len(world.status["metrics"])


def test_a_metric_of_sedna_that_no_worker_has_told_is_left_out() -> None:
    world = service().settle()
    world.receive(report(counts={"seen": 4}))
    assert metrics(world) == {"seen": "4", "inferenceNumber": "4"}
    world.receive(report(counts={"seen": 4, "hard": 1}))
    told = {"inferenceNumber": "4", "hardExampleNumber": "1"}
    assert metrics(world) == {"seen": "4", "hard": "1", **told}


def test_a_report_and_a_plan_write_the_same_metrics() -> None:
    """Otherwise each would correct the other for ever."""
    world = service().settle()
    world.receive(report(counts=COUNTS))
    told = world.status["metrics"]
    world.settle()
    assert world.status["metrics"] == told
    assert world.plan().status is None


def test_no_metric_of_sedna_is_in_group_edgeai() -> None:
    world = service("edgeai.io").settle()
    world.receive(report(counts=COUNTS))
    world.settle()
    assert not {"inferenceNumber", "hardExampleNumber"} & metrics(world).keys()
    assert metrics(world)["uploadCloudRatio"] == "0.3333"


# ---- phases -------------------------------------------------------------------------------------


def test_a_training_federation_is_running() -> None:
    world = sedna_federated_job().settle()
    assert world.status["phase"] == "Pending"
    world.pods_become("Running").settle()
    assert world.status["phase"] == "Running"
    assert world.condition("Training")["status"] == "True"
    world.pods_become("Succeeded").settle()
    assert world.status["phase"] == "Succeeded"
    ours = federated_job().settle().pods_become("Running").settle()
    assert ours.status["phase"] == "Training"


@pytest.mark.parametrize(
    ("group", "phase", "is_told"), [("sedna.io", "Failed", True), ("edgeai.io", "Invalid", False)]
)
def test_a_spec_that_is_not_accepted_has_failed(group: str, phase: str, is_told: bool) -> None:
    """Until it is corrected."""
    world = service(group, cloudWorker=None).settle()
    assert world.status["phase"] == phase
    assert ("Failed" in condition_types(world)) == is_told
    world.change(joint_inference_spec()).settle()
    assert world.status["phase"] == "Pending"
    assert "Failed" not in condition_types(world)


def test_a_federation_that_is_not_accepted_has_no_final_condition() -> None:
    """In Sedna, too, a job that cannot be created is tried again."""
    world = sedna_federated_job()
    good = world.object["spec"]
    world.change({**good, "trainingWorkers": []}).settle()
    assert world.status["phase"] == "Failed"
    assert "Failed" not in condition_types(world)
    world.change(good).settle()
    assert world.status["phase"] == "Pending"


# ---- the condition Failed -----------------------------------------------------------------------


@pytest.mark.parametrize("group", ["sedna.io", "edgeai.io"])
def test_a_service_whose_worker_cannot_run_has_the_condition_failed(group: str) -> None:
    world = service(group).settle()
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    crashing = {"name": "main", "state": waiting, "restartCount": 3}
    world.pod("edge", "edge0", phase="Running", containerStatuses=[crashing]).settle()
    assert world.status["phase"] == "Failed"
    running = world.condition("Running")
    assert running["reason"] == "CrashLoopBackOff"
    if group == "edgeai.io":
        assert "Failed" not in condition_types(world)
        return
    failed = world.condition("Failed")
    assert (failed["status"], failed["reason"]) == ("True", running["reason"])
    assert failed["message"] == running["message"]
    world.available("edge", "cloud").settle()
    assert world.status["phase"] == "Running"
    assert "Failed" not in condition_types(world)


# ---- labels -------------------------------------------------------------------------------------


def labels_of_sedna(labels: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if "sedna.io/" in key}


def test_children_and_pods_of_a_service_have_sednas_labels() -> None:
    world = sedna_service().settle()
    for role in ("edge", "cloud"):
        wanted = {
            "jointinferenceservice.sedna.io/name": "bird-watch",
            "jointinferenceservice.sedna.io/uid": "uid-1",
            "jointinferenceservice.sedna.io/worker-type": role,
        }
        deployment = world.child("Deployment", f"bird-watch-deployment-{role}")
        assert labels_of_sedna(deployment["metadata"]["labels"]) == wanted
        template = deployment["spec"]["template"]["metadata"]["labels"]
        assert labels_of_sedna(template) == wanted
        assert not labels_of_sedna(deployment["spec"]["selector"]["matchLabels"])


def test_pods_of_a_federation_have_sednas_labels() -> None:
    world = sedna_federated_job().settle()
    name = world.object["metadata"]["name"]
    for pod, role in ((f"{name}-aggregation", "aggregation"), (f"{name}-train-1", "train")):
        assert labels_of_sedna(world.child("Pod", pod)["metadata"]["labels"]) == {
            "federatedlearningjob.sedna.io/name": name,
            "federatedlearningjob.sedna.io/uid": "uid-1",
            "federatedlearningjob.sedna.io/worker-type": role,
        }


def test_the_pods_of_a_running_federation_stay_when_they_lack_the_labels() -> None:
    """Earlier releases made them without."""
    world = sedna_federated_job().settle()
    before = world.plan().actions
    for ref, child in list(world.children.items()):
        if ref.type.kind == "Pod":
            metadata = child["metadata"]
            labels = {k: v for k, v in metadata["labels"].items() if "sedna.io/" not in k}
            world.children[ref] = {**child, "metadata": {**metadata, "labels": labels}}
    assert before == world.plan().actions == ()


@pytest.mark.parametrize("world", [service("edgeai.io"), federated_job()], ids=["ji", "fl"])
def test_no_child_in_group_edgeai_has_a_label_of_sedna(world: World) -> None:
    world.settle()
    assert world.children
    for child in world.children.values():
        assert not labels_of_sedna(child["metadata"]["labels"])
