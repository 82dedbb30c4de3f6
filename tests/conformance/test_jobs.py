"""The definitions of the chart: a bad job is refused with its field; a good job loses no field."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from edgeai.cli.api import Object
from tests.conformance.space import Space
from tests.globalmanager.kinds.edge.samples import PROPOSAL, SEDNA_STYLE, joint_inference_spec
from tests.support.client import MERGE_PATCH

CHECKOUT: Final = Path(__file__).parents[2]
EXAMPLE: Final = CHECKOUT / "edgeai" / "demo" / "joint_inference" / "joint_inference.yaml"
JOBS: Final = "jointinferenceservices"
TEMPLATE: Final = "spec.edgeWorker.template"
MINING: Final = "spec.edgeWorker.hardExampleMining"


def job(name: str = "digits", *, group: str = "edgeai.io") -> Object:
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "JointInferenceService",
        "metadata": {"name": name},
        "spec": joint_inference_spec(),
    }


def jobs_path(space: Space, group: str) -> str:
    return f"/apis/{group}/v1alpha1/namespaces/{space.name}/{JOBS}"


def spoiled(path: str, value: Any, group: str) -> Object:
    """A job with one field set; None: without it."""
    made = job(group=group)
    *parents, last = path.split(".")
    at = made
    for step in parents:
        at = at[step]
    at[last] = value
    if value is None:
        del at[last]
    return made


BAD_JOBS: dict[str, tuple[str, Any, str]] = {
    "wrong type": ("spec.edgeWorker", "a word", "spec.edgeWorker"),
    "no model name": ("spec.edgeWorker.model", {}, "spec.edgeWorker.model.name"),
    "empty name": ("spec.edgeWorker.model.name", "", "spec.edgeWorker.model.name"),
    "no containers": (f"{TEMPLATE}.spec.containers", [], f"{TEMPLATE}.spec.containers"),
    "unknown algorithm": (MINING, {"name": "Magic"}, f"{MINING}.name"),
    "no cloud worker": ("spec.cloudWorker", None, "spec.cloudWorker"),
    "no spec": ("spec", None, "spec"),
}


@pytest.mark.parametrize("group", ["edgeai.io", "sedna.io"])
@pytest.mark.parametrize("case", BAD_JOBS)
def test_a_bad_job_is_refused_by_the_name_of_its_field(space: Space, case: str, group: str) -> None:
    path, value, field = BAD_JOBS[case]
    answer = space.client("POST", jobs_path(space, group), spoiled(path, value, group))
    assert answer.refusal == (422, "Invalid")
    assert field in {found for found, _ in answer.causes}


@pytest.mark.parametrize(
    "text",
    [PROPOSAL, SEDNA_STYLE, EXAMPLE.read_text()],
    ids=["the proposal's", "Sedna's", "the example's"],
)
def test_nothing_of_a_users_manifest_is_pruned(space: Space, text: str) -> None:
    for document in yaml.safe_load_all(text):
        plural = f"{document['kind'].lower()}s"
        root = f"/apis/{document['apiVersion']}/namespaces/{space.name}/{plural}"
        document["metadata"].pop("namespace", None)
        created = space.client("POST", root, document).ok()
        assert created["spec"] == document["spec"]


def test_the_status_of_a_job_is_written_by_its_subresource_only(space: Space) -> None:
    path = jobs_path(space, "edgeai.io")
    made = space.client("POST", path, {**job(), "status": {"phase": "Running"}}).ok()
    assert "status" not in made
    patch = {"status": {"phase": "Running"}, "spec": None}
    status = f"{path}/digits/status"
    written = space.client("PATCH", status, patch, content_type=MERGE_PATCH).ok()
    assert (written["status"]["phase"], written["spec"]) == ("Running", made["spec"])
    assert written["metadata"]["generation"] == 1
