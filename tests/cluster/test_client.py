"""The Python client and the commands about jobs, on a real API server without a GlobalManager."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgeai.api.resources import PODS
from edgeai.cli.api import Object
from edgeai.cli.status_sources import from_api
from edgeai.client import AsyncClient, Model, ModelSpec, ObjectGone, PyTorchJob, WaitTimeout
from edgeai.client.errors import InvalidObject
from edgeai.kube import errors
from tests.cluster.controlplane import ControlPlane
from tests.edgeai.cli.command import edgeai
from tests.edgeai.client.conftest import condition, tell
from tests.globalmanager.kinds.training.samples import pytorch_spec
from tests.support.client import Client
from tests.support.waiting import eventually

MODEL = Model.of("small", ModelSpec(url="/models/small.npz"))


def pytorch_job(name: str, spec: Object) -> Object:
    head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}}
    return {**head, "spec": spec}


@pytest.fixture
async def users_client(crds: ControlPlane, namespace: str) -> AsyncIterator[AsyncClient]:
    async with await AsyncClient.open(crds.kubeconfig, namespace) as client:
        yield client


async def test_apply_creates_changes_and_leaves_what_others_have_set(
    users_client: AsyncClient,
) -> None:
    made = await users_client.apply(MODEL)
    labels = {"metadata": {"labels": {"team": "a"}}}
    await users_client.kube.merge_patch(made.ref, labels)
    again = await users_client.apply(Model.of("small", ModelSpec(url="/models/b.npz")))
    assert (again.uid, again.spec.url) == (made.uid, "/models/b.npz")
    assert again.metadata["labels"] == {"team": "a"}
    formatted = await users_client.apply(Model.of("small", ModelSpec(url="/b", format="npz")))
    assert formatted.spec.format == "npz"
    assert (await users_client.apply(MODEL)).spec.format == ""  # its own field goes


async def test_a_field_of_another_manager_is_named_and_taken_only_by_force(
    users_client: AsyncClient,
) -> None:
    theirs = Model.of("small", ModelSpec(url="/theirs"), namespace=users_client.namespace).object
    await users_client.kube.apply(Model.type_in(), theirs, manager="somebody")
    with pytest.raises(errors.Conflict, match=r'"somebody".*\.spec\.url'):
        await users_client.apply(MODEL)
    assert (await users_client.apply(MODEL, is_forced=True)).spec == MODEL.spec


async def test_a_field_that_the_kind_lacks_is_refused_and_nothing_is_stored(
    users_client: AsyncClient,
) -> None:
    """Also where the API server is older than fieldValidation, and would drop the field."""
    spec = pytorch_spec(1, master=False)
    (replicas,) = spec["pytorchReplicaSpecs"].values()
    await users_client.apply_document(pytorch_job("right", spec))
    replicas["restartPolcy"] = "Never"
    field = r"spec\.pytorchReplicaSpecs\.Worker\.restartPolcy.*did you mean restartPolicy\?"
    with pytest.raises(InvalidObject, match=field):
        await users_client.apply_document(pytorch_job("wrong", spec))
    assert [each.name for each in await users_client.list(PyTorchJob)] == ["right"]


async def test_a_field_that_no_pod_has_is_refused_in_a_template(
    users_client: AsyncClient, client: Client, namespace: str
) -> None:
    """The definition of a job leaves templates open, and a server drops the field of the pod."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"  # no pod without it
    await asyncio.to_thread(
        eventually, "the ServiceAccount of a new namespace", lambda: client.find(account)
    )
    spec = pytorch_spec(1, master=False)
    (container,) = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["comand"] = ["python3"]
    field = r"Worker\.template\.spec\.containers\[.*\]\.comand .*did you mean command\?"
    with pytest.raises(InvalidObject, match=field):
        await users_client.apply_document(pytorch_job("wrong", spec))
    assert await users_client.list(PyTorchJob) == []
    assert client.list(f"/api/v1/namespaces/{namespace}/pods") == []


async def test_a_typed_spec_of_a_training_job_is_accepted(users_client: AsyncClient) -> None:
    typed = PyTorchJob(pytorch_job("mnist", pytorch_spec()))
    made = await users_client.apply(PyTorchJob.of("mnist", typed.spec))
    assert made.spec == typed.spec


async def test_a_wait_and_a_watch_see_one_object_of_its_life(users_client: AsyncClient) -> None:
    made = await users_client.apply(MODEL)
    await users_client.apply(Model.of("other", ModelSpec(url="/b")))
    waiting = asyncio.create_task(users_client.wait(made, "Accepted"))
    gone = asyncio.create_task(users_client.wait(made, "Counted"))
    async with aclosing(users_client.watch(Model, name="small")) as events:
        assert (await anext(events)).object.name == "small"
        await tell(users_client, made.ref, condition("Accepted", "True", "Valid", "all is well"))
        assert (await anext(events)).type == "MODIFIED"
        assert (await waiting).status.conditions[0].reason == "Valid"
        with pytest.raises(WaitTimeout):
            await users_client.wait(made, "Counted", timeout_s=0.3)
        await users_client.delete(made)
        assert (await anext(events)).type == "DELETED"
    with pytest.raises(ObjectGone):
        await gone
    await users_client.apply(MODEL)
    with pytest.raises(errors.Conflict):
        await users_client.delete(made)


async def test_a_pod_whose_node_has_no_log_stream_says_so(
    users_client: AsyncClient, client: Client, nodes: tuple[str, ...]
) -> None:
    made = await users_client.apply(MODEL)
    account = f"/api/v1/namespaces/{users_client.namespace}/serviceaccounts/default"
    eventually("the ServiceAccount of new pods", lambda: client.find(account))
    owner = {"apiVersion": "edgeai.io/v1alpha1", "kind": "Model", "controller": True}
    owner |= {"name": made.name, "uid": made.uid}
    metadata: Object = {"namespace": users_client.namespace, "ownerReferences": [owner]}
    spec: Object = {"nodeName": nodes[0], "containers": [{"name": "main", "image": "any"}]}
    spec["automountServiceAccountToken"] = False  # it may not be there yet
    pod = await users_client.kube.create(
        PODS, {"metadata": {"name": "digits-a", **metadata}, "spec": spec}
    )
    stranger = {"name": "digits-b", "namespace": users_client.namespace}
    stranger_labels: Any = {**stranger, "labels": pod["metadata"].get("labels") or {}}
    await users_client.kube.create(PODS, {"metadata": stranger_labels, "spec": spec})
    (notice,) = [line async for line in users_client.logs(made)]
    assert (notice.worker, notice.is_notice) == ("digits-a", True)


def test_a_field_that_kubectl_manages_is_taken_over_only_by_force(
    crds: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(yaml.safe_dump(MODEL.object))
    assert crds.kubectl("apply", "-n", namespace, "-f", str(file)).returncode == 0
    other = Model.of("small", ModelSpec(url="/other")).object
    file.write_text(yaml.safe_dump(other))
    where = ("-n", namespace, "--kubeconfig", str(crds.kubeconfig))
    refused = edgeai("submit", str(file), *where)
    assert refused.returncode == 1
    assert ".spec.url" in refused.stderr
    assert "take them over with --force" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert edgeai("submit", str(file), "--force", *where).returncode == 0


def kubeconfig_without_rights(plane: ControlPlane, namespace: str, directory: Path) -> Path:
    """Of a ServiceAccount that nobody has granted anything."""
    plane.client.create(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "nobody", "namespace": namespace},
        }
    )
    file = directory / "nobody"
    plane.write_account_kubeconfig(file, namespace, "nobody")
    return file


async def test_a_right_that_is_missing_is_named(
    crds: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    file = kubeconfig_without_rights(crds, namespace, tmp_path)
    async with await AsyncClient.open(file, namespace) as client:
        with pytest.raises(errors.Forbidden, match=r'cannot list resource "models".*ask an admin'):
            await client.list(Model)
        with pytest.raises(errors.Forbidden, match='cannot patch resource "models"'):
            await client.apply(MODEL)
    told = await from_api(file)
    assert (told.nodes, told.jobs) == ([], [])
    assert any('cannot list resource "nodes"' in each for each in told.unknown)


def test_the_commands_work_on_any_cluster(
    crds: ControlPlane, client: Client, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(yaml.safe_dump(MODEL.object))
    where = ("--kubeconfig", str(crds.kubeconfig), "--state-dir", str(tmp_path / "none"))
    submit = edgeai("submit", str(file), "--wait", "--timeout-s", "0.5", "-n", namespace, *where)
    assert submit.returncode == 2, submit.stderr
    assert f"Model {namespace}/small: applied" in submit.stdout
    described = edgeai("describe", "mdl/small", "-n", namespace, *where)
    assert "no GlobalManager has written a status yet" in described.stdout, described.stderr
    shown = edgeai("status", *where)
    assert shown.returncode == 0, shown.stderr
    nobody = kubeconfig_without_rights(crds, namespace, tmp_path)
    refused = edgeai("describe", "small", "-n", namespace, "--kubeconfig", str(nobody))
    assert refused.returncode == 1
    assert 'cannot get resource "' in refused.stderr
