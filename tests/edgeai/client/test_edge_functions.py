"""`serve` and `federate`: which objects they make, and what they refuse before they make any."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from edgeai.api.resources import NODES
from edgeai.client import (
    AsyncClient,
    Client,
    Dataset,
    FederatedLearningJob,
    InvalidObject,
    JointInferenceService,
    Model,
    NotPossible,
    NotShippable,
    federate,
    serve,
    train,
)
from globalmanager.kinds.edge.federatedlearningjob import spec as federations
from globalmanager.kinds.edge.jointinferenceservice import spec as services
from tests.edgeai.client.conftest import condition, tell
from tests.globalmanager.cluster import LocalApi

OUTSIDE = 3
PATHS = {"edge0": "/data/a.csv", "edge1": "/data/b.csv"}
RESULT = "/data/line.npz"
HALF: Any = 2.5
LOWER_CASE: Any = "fedavg"


def small(batch: Any) -> Any:
    return batch


class Large:
    def predict(self, batch: Any) -> Any:
        return batch


class Silent:
    def answer(self, batch: Any) -> Any:
        return batch


def inputs() -> Iterator[Any]:
    yield [[1]]


def fit(weights: Any, data: Any, rate: float = 0.1) -> Any:
    return weights


def outside(batch: Any) -> int:
    return OUTSIDE


@pytest.fixture
async def blocking(cluster: LocalApi, client: AsyncClient) -> AsyncIterator[Client]:
    for node in PATHS:
        await client.kube.create(NODES, {"metadata": {"name": node}})
    blocking = await asyncio.to_thread(Client, cluster.kubeconfig)
    yield blocking
    await asyncio.to_thread(blocking.close)


async def objects_of(client: AsyncClient) -> list[str]:
    kinds: tuple[Any, ...] = (JointInferenceService, FederatedLearningJob, Model, Dataset)
    return [str(one) for kind in kinds for one in await client.list(kind)]


async def test_a_service_has_two_models_which_are_deleted_with_it(
    blocking: Client, client: AsyncClient
) -> None:
    service = await asyncio.to_thread(
        serve,
        small,
        Large,
        inputs=inputs,
        hard_examples=("Threshold", {"threshold": 0.8}),
        edge_model="/models/small.npz",
        on=["edge0"],
        client=blocking,
    )
    spec = services.read(service.resource.object)
    mining = spec.edge_worker.mining
    assert mining is not None
    assert [(one.key, one.value) for one in mining.parameters] == [("threshold", "0.8")]
    models = {one.name: one for one in await client.list(Model)}
    assert models[f"{service.name}-edge"].spec.url == "/models/small.npz"
    for model in models.values():
        (owner,) = model.metadata["ownerReferences"]
        assert owner["uid"] == service.resource.uid
    assert spec.cloud_worker.model.name in models


async def test_without_nodes_one_function_runs_at_the_edge_and_one_in_the_cloud(
    blocking: Client,
) -> None:
    service = await asyncio.to_thread(serve, small, Large, inputs=inputs, client=blocking)
    workers = service.resource.object["spec"]
    edge, cloud = (workers[f"{role}Worker"]["template"]["spec"] for role in ("edge", "cloud"))
    assert edge["nodeSelector"] == {"node-role.kubernetes.io/edge": ""}
    affinity = cloud["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"][0]["matchExpressions"][0]["operator"] == "DoesNotExist"


async def test_a_federation_has_a_trainer_for_each_dataset(
    blocking: Client, client: AsyncClient
) -> None:
    job = await asyncio.to_thread(
        partial(federate, fit, PATHS, model=RESULT, args={"rate": 0.5}, rounds=np.int64(3)),
        name="line",
        client=blocking,
    )
    (worker,) = job.resource.object["spec"]["aggregationWorker"]["template"]["spec"]["containers"]
    assert "functions.aggregate(3, 'FedAvg')" in worker["env"][0]["value"]
    spec = federations.read(job.resource.object)
    assert [worker.dataset.name for worker in spec.training_workers] == ["line-0", "line-1"]
    datasets = await client.list(Dataset)
    assert {one.spec.node_name: one.spec.url for one in datasets} == PATHS
    other = await asyncio.to_thread(federate, fit, ["line-0"], model=RESULT, client=blocking)
    spec = federations.read(other.resource.object)
    assert [worker.dataset.name for worker in spec.training_workers] == ["line-0"]


REFUSED: list[tuple[Callable[..., Any], type[Exception], str]] = [
    (partial(serve, outside, small, inputs=inputs), NotShippable, "outside: uses 'OUTSIDE'"),
    (partial(serve, small, lambda b: b, inputs=inputs), NotShippable, "is a lambda"),
    (partial(serve, small, Silent, inputs=inputs), NotShippable, "Silent: has no method `predict`"),
    (partial(serve, small, inputs, inputs=inputs), NotShippable, "inputs: args: too many"),
    (
        partial(serve, small, small, inputs=inputs, hard_examples="Thresh"),
        InvalidObject,
        r"serve: hard_examples 'Thresh' is unknown; use a function, or one of .*Threshold \(thresh",
    ),
    (
        partial(serve, small, small, inputs=inputs, hard_examples=("Random", {"ratio": 1})),
        InvalidObject,
        "hard_examples 'ratio' is unknown",
    ),
    (
        partial(serve, small, small, inputs=inputs, on=["edge9"]),
        InvalidObject,
        "serve: node 'edge9' does not exist; use edge0, edge1",
    ),
    (
        partial(serve, small, small, inputs=inputs, name="No_name"),
        InvalidObject,
        "serve: name 'No_name' is no name",
    ),
    (partial(federate, outside, PATHS, model=RESULT), NotShippable, "outside: "),
    (
        partial(federate, fit, PATHS, model=RESULT, args={"speed": 1}),
        NotShippable,
        "fit: args: got an unexpected keyword argument 'speed'",
    ),
    (
        partial(federate, fit, {"edge9": "/a.csv"}, model=RESULT),
        InvalidObject,
        "federate: node 'edge9' does not exist",
    ),
    (partial(federate, fit, {}, model=RESULT), InvalidObject, "federate: datasets {} has none"),
    (partial(federate, fit, PATHS, model="s3://a/b"), InvalidObject, "model 's3://a/b' is no path"),
    (partial(federate, fit, PATHS, model=RESULT, rounds=0), InvalidObject, "rounds 0 is no whole"),
    (partial(federate, fit, PATHS, model=RESULT, rounds=HALF), InvalidObject, "rounds 2.5 is no"),
    (
        partial(federate, fit, PATHS, model=RESULT, aggregation=LOWER_CASE),
        InvalidObject,
        "federate: aggregation 'fedavg' is unknown; use FedAvg, FedAvgM, TrimmedMean",
    ),
    (partial(train, small, args={"batch": 1}, on=["edge9"]), InvalidObject, "train: node 'edge9'"),
]


@pytest.mark.parametrize(("call", "error", "problem"), REFUSED)
async def test_what_cannot_run_is_refused_before_anything_is_made(
    blocking: Client,
    client: AsyncClient,
    call: Callable[..., Any],
    error: type[Exception],
    problem: str,
) -> None:
    with pytest.raises(error, match=problem):
        await asyncio.to_thread(call, client=blocking)
    assert await objects_of(client) == []


async def test_a_name_that_is_taken_is_refused_and_nothing_is_left_behind(
    blocking: Client, client: AsyncClient
) -> None:
    await asyncio.to_thread(federate, fit, PATHS, model=RESULT, name="taken", client=blocking)
    before = await objects_of(client)
    with pytest.raises(InvalidObject, match="name 'taken' is taken by another FederatedLearning"):
        await asyncio.to_thread(federate, fit, PATHS, model=RESULT, name="taken", client=blocking)
    assert await objects_of(client) == before
    await client.apply_document(
        {
            "apiVersion": "edgeai.io/v1alpha1",
            "kind": "Model",
            "metadata": {"name": "half-cloud"},
            "spec": {"url": "/m"},
        }
    )
    with pytest.raises(InvalidObject, match="name 'half-cloud' is taken by another Model"):
        await asyncio.to_thread(serve, small, small, inputs=inputs, name="half", client=blocking)
    assert await client.list(JointInferenceService) == []


async def test_a_handle_says_what_the_kind_cannot_do(blocking: Client) -> None:
    service = await asyncio.to_thread(serve, small, Large, inputs=inputs, client=blocking)
    for act, problem in (
        (service.suspend, "cannot be suspended; delete it instead"),
        (service.resume, "cannot be resumed; it runs until it is deleted"),
        (partial(service.scale, 2), "cannot be scaled; change its spec"),
    ):
        with pytest.raises(NotPossible, match=f"a JointInferenceService {problem}"):
            await asyncio.to_thread(act)


async def test_a_federation_is_suspended_and_resumed(blocking: Client, client: AsyncClient) -> None:
    job = await asyncio.to_thread(federate, fit, PATHS, model=RESULT, client=blocking)
    await asyncio.to_thread(job.suspend)
    assert (await client.get(FederatedLearningJob, job.name)).spec.suspend is True
    await asyncio.to_thread(job.resume)
    assert not (await client.get(FederatedLearningJob, job.name)).spec.suspend


async def test_a_service_is_waited_for_until_it_runs(blocking: Client, client: AsyncClient) -> None:
    service = await asyncio.to_thread(serve, small, Large, inputs=inputs, client=blocking)
    await tell(client, service.resource.ref, condition("Running", "True", "WorkersAvailable"))
    assert (await asyncio.to_thread(service.wait, timeout_s=60)).result == "succeeded"
