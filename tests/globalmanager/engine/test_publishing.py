"""A round that is deployed reaches a fleet: the job changes a Model, and a service rolls it out."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.api.resources import DEPLOYMENTS, NODES, Object, ObjectRef
from edgeai.kube.client import KubeClient
from globalmanager.contract import WorkerReport, task_key
from globalmanager.kinds import KINDS
from globalmanager.kinds.edge.dataset import KIND as DATASET
from globalmanager.kinds.edge.incrementallearningjob import KIND as INCREMENTAL
from globalmanager.kinds.edge.jointinferenceservice import KIND as SERVICE
from globalmanager.kinds.edge.model import KIND as MODEL
from tests.globalmanager.cluster import LocalApi, Manager, User, run_manager
from tests.globalmanager.kinds.edge.incrementallearningjob.test_publishing import publishing_spec
from tests.globalmanager.kinds.edge.jointinferenceservice.test_fleet import CAMERA, fleet_spec
from tests.support.waiting import async_eventually
from tests.support.world import patch_of, report

JOBS, SERVICES = INCREMENTAL.definition.types[0], SERVICE.definition.types[0]
MODELS, DATASETS = MODEL.definition.types[0], DATASET.definition.types[0]
FLEET: Final = ObjectRef(MODELS, "default", "fleet")
FIRST: Final = "s3://out/first.pb"
CAMERAS: Final = ("edge0", "edge1", "edge2")


@pytest.fixture
async def user(tmp_path: Path) -> AsyncIterator[User]:
    """Of an API with all that the job and the service refer to."""
    async with (
        LocalApi(tmp_path, is_installed=True) as api,
        await KubeClient.from_kubeconfig(api.kubeconfig) as client,
    ):
        user = User(client)
        for node in CAMERAS:
            await user.create(NODES, {"metadata": {"name": node, "labels": CAMERA}})
        await put(user, MODELS, "initial", {"url": "/models/base"})
        await put(user, MODELS, "deployed", {"url": "/models/deployed/m.pb", "format": "pb"})
        await put(user, MODELS, "big", {"url": "/models/big.pb"})
        await put(user, MODELS, "fleet", {"url": FIRST, "sha256": "0" * 64})
        await put(user, DATASETS, "data", {"url": "/data/train.txt", "nodeName": "edge0"})
        service = fleet_spec(model={"name": "fleet", "hotUpdate": True})
        await put(user, SERVICES, "cameras", {**service, "rollout": {"waves": ["1"]}})
        await put(user, JOBS, "helmet", publishing_spec())
        yield user


@pytest.fixture
async def manager(user: User, tmp_path: Path) -> AsyncIterator[Manager]:
    async with run_manager(tmp_path / "kubeconfig", kinds=KINDS) as manager:
        for node in CAMERAS:
            manager.edge.connect(node)
        yield manager


async def put(user: User, type_: Any, name: str, spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return await user.create(type_, {"metadata": metadata, "spec": spec})


async def tell(user: User, kind: Any, name: str, one: WorkerReport) -> None:
    """A report of a node, folded into the status."""
    ref = ObjectRef(kind.definition.types[0], "default", name)
    object_ = await user.client.get(ref)
    patch = patch_of(kind.fold(object_.get("status") or {}), one)
    await user.client.merge_patch(ref, {"status": patch}, subresource="status")


async def job_status(user: User, is_met: Callable[[Any], Any], what: str) -> Any:
    async def check() -> Any:
        job = await user.get(JOBS, "helmet")
        status = (job or {}).get("status", {})
        assert is_met(status), f"{status}"
        return status

    return await async_eventually(what, check)


async def in_stage(user: User, stage: str) -> str:
    """The directory of the round, once it is in this stage."""
    status = await job_status(user, lambda s: s.get("current", {}).get("stage") == stage, stage)
    return str(status["current"]["directory"])


async def deploy_a_round(user: User) -> str:
    """Returns: the URL of its model"""
    counted = report(worker="data", counts={"numberOfSamples": 10}, details={"generation": "1"})
    await tell(user, DATASET, "data", counted)
    url = f"{await in_stage(user, 'Train')}/m.pb"
    details = {"results.0.url": url, "results.0.format": "pb", "results.1.url": "/models/x"}
    for attempt, stage in enumerate(("Train", "Eval"), 1):
        await in_stage(user, stage)
        done = report(
            worker=f"helmet-{stage.lower()}",
            attempt=attempt,
            status="completed",
            counts={"metrics.precision": 0.9, "metrics.1.precision": 0.5},
            details=details,
        )
        await tell(user, INCREMENTAL, "helmet", done)
    await in_stage(user, "Deploy")
    await roll_out(user)
    return url


async def roll_out(user: User) -> None:
    """The inference worker runs with the new model."""

    async def check() -> bool:
        ref = ObjectRef(DEPLOYMENTS, "default", "helmet-inference")
        deployment = await user.client.get(ref)
        available = [{"type": "Available", "status": "True"}]
        generation = deployment["metadata"]["generation"]
        state = {"replicas": 1, "updatedReplicas": 1, "observedGeneration": generation}
        status = {"status": {**state, "conditions": available}}
        await user.client.merge_patch(ref, status, subresource="status")
        job = await user.get(JOBS, "helmet")
        assert job is not None
        assert job["status"].get("last", {}).get("reason") == "Deployed", f"{job['status']}"
        return True

    await async_eventually("the deployment", check)


def urls(manager: Manager) -> list[str]:
    """Of the Model, that the nodes hold."""
    held = manager.edge.desired.get(task_key(FLEET), {})
    return sorted(each.body.spec["url"] for each in held.values())


async def rollout(user: User, url: str, wave: int) -> None:
    """The service gives out this content, and has come to this wave."""

    async def check() -> bool:
        service = await user.get(SERVICES, "cameras")
        state = (service or {}).get("status", {}).get("rollout") or {}
        assert state.get("version", {}).get("url") == url, f"{state}"
        assert state.get("wave", 0) == wave, f"{state}"
        return True

    await async_eventually(f"the rollout of {url}", check)


async def test_a_deployed_round_goes_to_the_first_wave_of_a_service(
    user: User, manager: Manager
) -> None:
    await rollout(user, FIRST, wave=0)
    await async_eventually("the first version", lambda: urls(manager) == [FIRST] * 3)
    url = await deploy_a_round(user)
    assert url.startswith("s3://out/dir/helmet-")
    await rollout(user, url, wave=1)
    reached = sorted([FIRST, FIRST, url])
    await async_eventually("the first wave", lambda: urls(manager) == reached)
    await job_status(user, lambda s: s.get("published", {}).get("url") == url, "the note")
    assert (await user.client.get(FLEET))["spec"] == {"url": url}

    async def versions() -> bool:
        status = (await user.client.get(FLEET))["status"]
        return [each["url"] for each in status.get("versions", ())] == [FIRST, url]

    await async_eventually("two versions", versions)
