"""JointInferenceService: a cloud worker that keeps the hard examples."""

from typing import Any

import pytest

from tests.globalmanager.kinds.edge.samples import joint_inference_spec, small_service
from tests.support.world import World

URL = "/data/hard/digits.jsonl"


def service(
    url: str = URL, *, node: str = "edge1", examples: Any = None, cloud: Any = None
) -> World:
    given = {"hardExamples": examples or {"dataset": "hard"}, "nodeName": "edge1"}
    spec = joint_inference_spec(cloud={**given, **(cloud or {})})
    return small_service(spec).dataset("hard", node, url).settle()


def cloud_pod(world: World) -> dict[str, Any]:
    (pod,) = (
        dict(child["spec"]["template"]["spec"])
        for ref, child in world.children.items()
        if ref.type.kind == "Deployment" and ref.name.endswith("-cloud")
    )
    return pod


def test_the_cloud_worker_alone_may_write_the_directory() -> None:
    world = service(examples={"dataset": "hard", "maxBytes": 4096})
    pod = cloud_pod(world)
    (container,) = pod["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["HARD_EXAMPLES_PATH"] == f"/home/data{URL}"
    assert env["HARD_EXAMPLES_MAX_BYTES"] == "4096"
    (mount,) = (m for m in container["volumeMounts"] if m["mountPath"] == "/home/data/data/hard")
    assert "readOnly" not in mount
    (edge,) = (
        child for ref, child in world.children.items() if ref.name.endswith("-deployment-edge")
    )
    assert "HARD_EXAMPLES" not in str(edge)


def test_nothing_is_kept_without_consent() -> None:
    world = small_service().dataset("hard", "edge1", URL).settle()
    assert "HARD_EXAMPLES" not in str(cloud_pod(world))


@pytest.mark.parametrize(
    ("world", "reason", "text"),
    [
        (service(node="edge0"), "DatasetElsewhere", "is on node edge0, its worker on edge1"),
        (service("/data/hard.csv"), "DatasetInvalid", "is no file of lines of JSON: give it"),
        (service("s3://bucket/hard.jsonl"), "DatasetInvalid", "give it the path of a file"),
        (service("/etc/hard.jsonl"), "PathNotAllowed", "move the data"),
        (service().without("Dataset", "hard").settle(), "DatasetNotFound", "create it"),
    ],
    ids=["elsewhere", "csv", "bucket", "system directory", "missing"],
)
def test_a_dataset_that_cannot_be_written_is_named(world: World, reason: str, text: str) -> None:
    condition = world.condition("ResolvedRefs")
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert "Dataset default/hard (spec.cloudWorker.hardExamples.dataset)" in condition["message"]
    assert text in condition["message"]


@pytest.mark.parametrize(
    ("cloud", "text"),
    [
        ({"nodeName": ""}, "spec.cloudWorker.nodeName: is missing beside hardExamples"),
        ({"hardExamples": {"dataset": "../x"}}, "spec.cloudWorker.hardExamples.dataset: "),
        ({"hardExamples": {"dataset": "hard", "maxBytes": 0}}, "spec.cloudWorker.hardExamples.max"),
    ],
)
def test_a_wrong_spec_names_its_field(cloud: dict[str, Any], text: str) -> None:
    accepted = service(cloud=cloud).condition("Accepted")
    assert accepted["reason"] == "InvalidSpec"
    assert accepted["message"].startswith(text)
