"""What a start gets from the API, or waits for: one key for all replicas."""

import asyncio
import base64

import pytest

from edgeai.api.resources import SECRETS
from edgeai.errors import SettingsError
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    NotFound,
    Unauthorized,
    Unreachable,
)
from globalmanager.cache.health import Health
from globalmanager.contract import WorkerSettings
from globalmanager.engine.build import build_engine
from globalmanager.rootkey import SECRET_NAME, get_root_key, retry_until_answered
from tests.globalmanager.cluster import Edge, LocalApi, open_fence
from tests.globalmanager.gadgets import GADGET
from tests.support.waiting import async_eventually


async def test_all_replicas_and_restarts_share_one_key(kube: KubeClient) -> None:
    keys = await asyncio.gather(*(get_root_key(kube, namespace="default") for _ in range(5)))
    again = await get_root_key(kube, namespace="default")
    assert len({*keys, again}) == 1
    assert len(again) == 32


BAD_DATA = {
    "no data": {},
    "another field": {"other": ""},
    "too short": {"key": base64.b64encode(b"short").decode()},
}


@pytest.mark.parametrize("data", BAD_DATA.values(), ids=BAD_DATA)
async def test_a_secret_that_is_no_key_is_named_with_its_remedy(
    kube: KubeClient, data: dict[str, str]
) -> None:
    metadata = {"name": SECRET_NAME, "namespace": "default"}
    await kube.create(SECRETS, {"metadata": metadata, "data": data})
    with pytest.raises(SettingsError, match=r"default/edgeai-worker-key.*delete the Secret"):
        await get_root_key(kube, namespace="default")


async def test_an_api_that_comes_late_is_waited_for(
    bare_cluster: LocalApi, kube: KubeClient
) -> None:
    await bare_cluster.stop()
    problems: list[str] = []
    getting = asyncio.create_task(
        get_root_key(kube, namespace="default", on_problem=problems.append), name="key"
    )
    await async_eventually("a problem", lambda: problems)
    await bare_cluster.start()
    assert len(await getting) == 32


async def test_an_engine_says_what_its_start_waits_for_and_then_begins(
    cluster: LocalApi, kube: KubeClient
) -> None:
    edge = Edge()
    engine = build_engine(
        kube,
        (GADGET,),
        sink=edge,
        contacts=edge.contacts,
        worker_settings=WorkerSettings(),
        fence=open_fence(),
    )
    assert engine.health() == Health(ready=False, reasons=("starting",))
    engine.waits_for_api("get secrets: no route")
    [reason] = engine.health().reasons
    assert reason == "starting: waiting for the Kubernetes API: get secrets: no route"
    running = asyncio.create_task(engine.run(root_key=bytes(32)), name="engine")
    await async_eventually("a healthy engine", lambda: engine.health().ready)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.looptime
async def test_patience_is_endless_and_tells_why() -> None:
    problems: list[str] = []

    async def fail() -> int:
        raise Unreachable("get", "leases", message="no route")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await retry_until_answered("key", fail, on_problem=problems.append)
    assert set(problems) == {"get leases: no route"}
    # Delays of 2.5 s on average once the backoff has grown.
    assert 150 < len(problems) < 400


@pytest.mark.looptime
@pytest.mark.parametrize("refusal", [Forbidden, Unauthorized, NotFound, AlreadyExists])
async def test_who_is_refused_waits_until_somebody_changes_that(refusal: type[ApiError]) -> None:
    refusals = [refusal("get", "secrets", message="no")] * 3

    async def attempt() -> int:
        if refusals:
            raise refusals.pop()
        return 1

    assert await retry_until_answered("key", attempt) == 1


async def test_what_is_no_answer_of_the_api_is_not_waited_for() -> None:
    async def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await retry_until_answered("key", fail)
