"""`train`: from a function to a job, and what can be done to the job."""

import asyncio
import sys
from typing import Any

import pytest

from edgeai.api.pytorchjob import PyTorchJobSpec
from edgeai.api.specs import parse
from edgeai.api.tfjob import TFJobSpec
from edgeai.client import AsyncClient, Client, InvalidObject, JobFailed, PyTorchJob, TFJob, train
from edgeai.client.training import IMAGES, Trainer
from tests.edgeai.client.conftest import condition, tell
from tests.globalmanager.cluster import LocalApi


def fit(epochs: int = 1) -> None:
    print(epochs)


# ---- the job of a function -----------------------------------------------------------------------


def replica_of(spec: dict[str, Any], role: str = "Master") -> dict[str, Any]:
    (container,) = spec["pytorchReplicaSpecs"][role]["template"]["spec"]["containers"]
    return dict(container)


def test_one_process_leads_and_all_start_again_together() -> None:
    spec = Trainer(program="p", workers=3).spec()
    parsed = parse(spec, PyTorchJobSpec, "spec")
    assert {role: one.replicas for role, one in parsed.pytorch_replica_specs.items()} == {
        "Master": 1,
        "Worker": 2,
    }
    assert spec["runPolicy"] == {"backoffLimit": 3, "restartScope": "Job"}
    assert replica_of(spec)["image"] == IMAGES["pytorch"]
    assert replica_of(spec)["command"][0] == "python3"
    assert Trainer(program="p").spec()["pytorchReplicaSpecs"].keys() == {"Master"}


def test_gpus_are_asked_for_and_each_has_a_process() -> None:
    spec = Trainer(program="p", gpus=4).spec()
    assert spec["nprocPerNode"] == "4"
    replica = replica_of(spec)
    assert replica["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    assert "torch.distributed.run" in replica["command"]
    assert "nprocPerNode" not in Trainer(program="p", gpus=1).spec()


@pytest.mark.parametrize(("workers", "replicas"), [(1, 2), (3, 3), (9, 4)])
def test_an_elastic_job_has_as_many_workers_as_its_bounds_allow(
    workers: int, replicas: int
) -> None:
    spec = Trainer(program="p", workers=workers, elastic=(2, 4), retries=5).spec()
    parse(spec, PyTorchJobSpec, "spec")
    policy = spec["elasticPolicy"]
    assert (policy["minReplicas"], policy["maxReplicas"], policy["maxRestarts"]) == (2, 4, 5)
    assert spec["pytorchReplicaSpecs"]["Worker"]["replicas"] == replicas
    assert "torch.distributed.run" in replica_of(spec, "Worker")["command"]


@pytest.mark.parametrize(("gpus", "processes"), [(0, "1"), (1, "1"), (2, "2")])
def test_an_elastic_worker_is_one_process_or_one_for_each_gpu(gpus: int, processes: str) -> None:
    """torchrun takes `auto`, the default of the field, for as many as there are CPUs."""
    spec = Trainer(program="p", elastic=(2, 4), gpus=gpus).spec()
    assert spec["nprocPerNode"] == processes


def test_tensorflow_has_workers_alone() -> None:
    spec = Trainer(program="p", framework="tensorflow", workers=2, image="mine:1").spec()
    parsed = parse(spec, TFJobSpec, "spec")
    assert [one.replicas for one in parsed.tf_replica_specs.values()] == [2]
    (container,) = spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert (container["name"], container["image"]) == ("tensorflow", "mine:1")


def test_nodes_are_named_and_may_have_a_taint() -> None:
    pod = Trainer(program="p", nodes=("edge0", "edge1")).spec()
    pod = pod["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    names = [term["matchFields"][0]["values"] for term in required["nodeSelectorTerms"]]
    assert names == [["edge0"], ["edge1"]]
    assert pod["tolerations"] == [{"operator": "Exists", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"workers": 0}, "train: workers 0 is less than 1; use 1 or more"),
        ({"elastic": (3, 2)}, "elastic (3, 2) is no pair of bounds"),
        ({"elastic": (1, 2), "framework": "tensorflow"}, "is for PyTorch alone"),
        ({"gpus": -1}, "gpus -1 is negative"),
        ({"retries": -1}, "retries -1 is negative"),
        ({"framework": "jax"}, "framework 'jax' is unknown; use pytorch or tensorflow"),
    ],
)
def test_what_no_job_can_have_is_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidObject) as refused:
        train(fit, **options)
    assert problem in str(refused.value)


# ---- against an API ------------------------------------------------------------------------------


@pytest.fixture
async def blocking(cluster: LocalApi) -> Any:
    client = await asyncio.to_thread(Client, cluster.kubeconfig)
    yield client
    await asyncio.to_thread(client.close)


async def test_the_local_cluster_runs_the_function_with_this_python(
    blocking: Client, client: AsyncClient
) -> None:
    job = await asyncio.to_thread(train, fit, args={"epochs": 3}, client=blocking)
    made = await client.get(PyTorchJob, job.name)
    assert job.name.startswith("fit-")
    assert replica_of(made.object["spec"])["command"][0] == sys.executable
    program = replica_of(made.object["spec"])["env"][0]
    assert (program["name"], "def fit(epochs: int=1)" in program["value"]) == (
        "EDGEAI_PROGRAM",
        True,
    )
    other = await asyncio.to_thread(
        train, fit, framework="tensorflow", name="other", client=blocking
    )
    assert (await client.get(TFJob, "other")).uid == other.resource.uid


def _() -> None:
    pass


def größe() -> None:
    pass


@pytest.mark.parametrize(("function", "name"), [(_, "train-"), (größe, "gr-e-")])
async def test_each_name_of_a_function_makes_a_name_of_a_job(
    blocking: Client, function: Any, name: str
) -> None:
    job = await asyncio.to_thread(train, function, client=blocking)
    assert job.name.startswith(name)


async def test_a_job_is_changed_by_its_handle(blocking: Client, client: AsyncClient) -> None:
    job = await asyncio.to_thread(train, fit, workers=2, client=blocking)
    await asyncio.to_thread(job.suspend)
    assert (await client.get(PyTorchJob, job.name)).spec.run_policy.suspend is True
    await asyncio.to_thread(job.resume)
    await asyncio.to_thread(job.scale, 4)
    spec = (await client.get(PyTorchJob, job.name)).spec
    assert (spec.run_policy.suspend, spec.pytorch_replica_specs["Worker"].replicas) == (False, 4)
    await asyncio.to_thread(job.delete)
    assert await client.list(PyTorchJob) == []


async def test_the_end_of_a_job_is_waited_for_and_a_failure_raises(
    blocking: Client, client: AsyncClient
) -> None:
    job = await asyncio.to_thread(train, fit, client=blocking)
    await tell(client, job.resource.ref, condition("Succeeded", "True", "Done"))
    assert (await asyncio.to_thread(job.wait, timeout_s=60)).result == "succeeded"
    job = await asyncio.to_thread(train, fit, client=blocking)
    await tell(client, job.resource.ref, condition("Failed", "True", "BackoffLimit", "no <data>"))
    with pytest.raises(JobFailed, match="no <data>"):
        await asyncio.to_thread(job.wait, timeout_s=60)
    page = await asyncio.to_thread(job._repr_html_)
    assert "no &lt;data&gt;" in page
    assert "<data>" not in page
