"""A field that a kind lacks is refused. The error says which one, and what may be meant."""

import copy
from typing import Any

import pytest

from edgeai.api.resources import Object
from edgeai.client import AsyncClient, PyTorchJob, TFJob
from edgeai.client.errors import InvalidObject
from edgeai.client.strictness import unknown_fields
from edgeai.client.words import check_document
from edgeai.kube import errors
from tests.edgeai.cli.jobs.conftest import Run, run

__all__ = ["run"]

JOB: Object = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "mnist"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Worker": {
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "pytorch", "image": "a:1"}]}},
            }
        }
    },
}


def job(*path: str, **fields: Any) -> Object:
    """The job with further fields at this path."""
    made = copy.deepcopy(JOB)
    place = made
    for step in path:
        place = place[step]
    place.update(fields)
    return made


WORKER = ("spec", "pytorchReplicaSpecs", "Worker")
TYPOS = {
    "a field of a replica": (
        job(*WORKER, restartPolcy="Never"),
        "spec.pytorchReplicaSpecs.Worker.restartPolcy",
        "did you mean restartPolicy?",
    ),
    "a field of a container": (
        job(*WORKER, template={"spec": {"containers": [{"name": "pytorch", "imagee": "a:1"}]}}),
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].imagee",
        "did you mean image?",
    ),
    "a field of the spec": (job("spec", runPolcy={}), "spec.runPolcy", "did you mean runPolicy?"),
    "a field like no other": (job("spec", zzz=1), "spec.zzz", "correct it, or leave it out"),
    "beside the spec": (job(sepc={}), "sepc", "did you mean spec?"),
    "in the metadata": (job("metadata", lables={"a": "b"}), "metadata.lables", "mean labels?"),
}


@pytest.mark.parametrize("case", TYPOS)
async def test_a_field_that_the_kind_lacks_is_refused(client: AsyncClient, case: str) -> None:
    document, field, remedy = TYPOS[case]
    with pytest.raises(InvalidObject) as refused:
        await client.apply_document(document)
    text = str(refused.value)
    assert field in text
    assert "PyTorchJob" in text or "the document" in text
    assert remedy in text
    assert await client.list(PyTorchJob) == []


async def test_several_faults_are_named_together(client: AsyncClient) -> None:
    document = job(*WORKER, restartPolcy="Never")
    document["spec"]["runPolcy"] = {}
    with pytest.raises(InvalidObject, match=r"restartPolcy.*runPolcy"):
        await client.apply_document(document)


async def test_an_object_with_a_typo_is_refused(client: AsyncClient) -> None:
    with pytest.raises(InvalidObject, match="restartPolcy"):
        await client.apply(PyTorchJob(job(*WORKER, restartPolcy="Never")))


async def test_a_change_with_a_typo_leaves_the_object_as_it_was(client: AsyncClient) -> None:
    before = await client.apply_document(JOB)
    with pytest.raises(InvalidObject, match="restartPolcy"):
        await client.apply_document(job(*WORKER, restartPolcy="Never"), is_forced=True)
    (now,) = await client.list(PyTorchJob)
    assert now.metadata["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_what_an_api_has_shown_is_no_typo(client: AsyncClient) -> None:
    """All that stands in the metadata and the status of an object that was read."""
    await client.apply_document(JOB)
    (found,) = await client.list(PyTorchJob)
    await client.apply_document({**found.object, "status": {"conditions": []}})


async def test_submit_names_the_object_the_field_and_what_may_be_meant(run: Run) -> None:
    text = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mnist}
spec:
  tfReplicaSpecs:
    Worker:
      restartPolcy: Never
      template: {spec: {containers: [{name: tensorflow, image: "a:1"}]}}
"""
    refused = await run("submit", "-", text=text)
    assert refused.code != 0
    for part in (
        "TFJob default/mnist",
        "spec.tfReplicaSpecs.Worker.restartPolcy",
        "restartPolicy?",
    ):
        assert part in refused.error


async def test_a_document_is_refused_before_the_documents_before_it_are_applied(
    run: Run, client: AsyncClient
) -> None:
    text = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: first}
spec: {tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: tensorflow, image: a}]}}}}}
---
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: second, lables: {a: b}}
spec: {tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: tensorflow, image: a}]}}}}}
"""
    refused = await run("submit", "-", text=text)
    assert "document 2" in refused.error
    assert await client.list(TFJob) == []


ANSWERS = {
    'strict decoding error: unknown field "spec.a", unknown field "spec.b"': ["spec.a", "spec.b"],
    'failed to create typed patch object: .spec.a[name="x"].b: field not declared in schema': [
        'spec.a[name="x"].b'
    ],
    "quota exceeded": [],
}


@pytest.mark.parametrize("message", ANSWERS)
def test_the_words_of_api_servers_are_understood(message: str) -> None:
    error = errors.Invalid("patch", "x", code=400, message=message)
    assert unknown_fields(error) == ANSWERS[message]


@pytest.mark.parametrize("path", [(), ("metadata",)])
def test_an_unknown_field_of_a_stranger_is_short_and_harmless_on_a_terminal(
    path: tuple[str, ...],
) -> None:
    with pytest.raises(InvalidObject) as refused:
        check_document(job(*path, **{"\x1b[2J" + "x" * 100_000: 1}), "document 1")
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 400
