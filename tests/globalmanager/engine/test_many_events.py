"""An API server gets one Event for all objects of one type that one stage creates or deletes."""

from collections.abc import Sequence
from typing import Final

import pytest

from edgeai.api.resources import Object, ResourceType
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Invalid
from globalmanager.contract import Create, Plan
from globalmanager.engine.events import EVENTS
from globalmanager.kinds.training.pytorchjob import KIND as PYTORCH_JOB
from globalmanager.manifests.crds import crd
from tests.globalmanager.cluster import CRDS, LocalApi, User, run_manager
from tests.globalmanager.engine.test_apply import Bench
from tests.globalmanager.gadgets import CONFIGMAPS, gadget
from tests.globalmanager.objects import GADGETS
from tests.support.waiting import async_eventually

PYTORCH_JOBS: Final = ResourceType("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")


def job(workers: int) -> Object:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}}
    return {
        "metadata": {"name": "fat", "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": template}}},
    }


async def messages(client: KubeClient, prefix: str) -> list[str]:
    """The messages of the Events whose reason begins with `prefix`."""
    listing = await client.list(EVENTS, namespace="default")
    return sorted(one["message"] for one in listing.items if one["reason"].startswith(prefix))


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (1, ["created Pod fat-worker-0", "created Service fat-worker-0"]),
        (
            110,
            [
                "created 10 pods: fat-worker-100, fat-worker-101, … fat-worker-109",
                "created 100 pods: fat-worker-0, fat-worker-1, … fat-worker-99",
                "created 110 services: fat-worker-0, fat-worker-1, … fat-worker-109",
            ],
        ),
    ],
)
async def test_one_event_tells_of_all_pods_that_one_plan_creates(
    bare_cluster: LocalApi, user: User, workers: int, expected: list[str]
) -> None:
    await user.create(CRDS, crd(PYTORCH_JOB, PYTORCH_JOBS))
    async with run_manager(bare_cluster.kubeconfig, kinds=(PYTORCH_JOB,)):
        await user.create(PYTORCH_JOBS, job(workers))

        async def are_told() -> bool:
            found = await messages(user.client, "SuccessfulCreate")
            assert found == expected, f"{len(found)} Events, with {found[:3]}"
            return True

        await async_eventually("the Events", are_told)


@pytest.fixture
async def bench(cluster: LocalApi, kube: KubeClient, user: User) -> Bench:
    made = await user.create(GADGETS, gadget("a"))
    return Bench(kube, made)


def configs(bench: Bench, names: Sequence[str]) -> tuple[Create, ...]:
    metadata = bench.config()["metadata"]
    return tuple(
        Create(CONFIGMAPS, bench.config(metadata={**metadata, "name": name})) for name in names
    )


async def test_the_event_of_a_stage_that_fails_in_part_tells_what_was_done(bench: Bench) -> None:
    stage = configs(bench, ["c", "NOT A NAME", "b"])
    with pytest.raises(Invalid):
        await bench.applier.apply(bench.observed(), Plan(stages=(stage,)))
    await bench.recorded()
    assert await messages(bench.client, "Created") == ["created 2 configmaps: c, b"]


async def test_the_longest_names_leave_the_end_of_the_message(bench: Bench) -> None:
    names = [f"{number}{'x' * 252}" for number in range(9)]
    await bench.applier.apply(bench.observed(), Plan(stages=(configs(bench, names),)))
    await bench.recorded()
    (message,) = await messages(bench.client, "Created")
    assert message == f"created 9 configmaps: {names[0]}, {names[1]}, … {names[8]}"
