"""The read-only REST API over a real socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgeai.ids import WorkerName
from localcontroller.http_server import HttpServer
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import LedgerFull
from localcontroller.link.endpoint import Addresses, Endpoint
from localcontroller.link.link import Link, default_delays
from localcontroller.metrics import Metrics
from localcontroller.rest import StatusApi
from tests.localcontroller.builders import (
    SECRET,
    TIMING,
    UID,
    WORKER,
    assign,
    body,
    key,
    secret_hash,
    worker_message,
)
from tests.localcontroller.full_disk import fill_disk, full_disk

ROUTES = (
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/v1/tasks",
    "/api/v1/workers",
    "/api/v1/link",
)
WITHOUT_LEDGER = {
    "/healthz": 200,
    "/readyz": 503,
    "/metrics": 200,
    "/api/v1/tasks": 200,
    "/api/v1/workers": 503,
    "/api/v1/link": 200,
}


class Api:
    def __init__(self, base: str, session: aiohttp.ClientSession) -> None:
        self._base = base
        self._session = session

    async def request(self, path: str, method: str = "GET") -> tuple[int, str]:
        async with self._session.request(method, self._base + path) as response:
            return response.status, await response.text()

    async def json(self, path: str) -> Any:
        async with self._session.get(self._base + path) as response:
            assert response.status == 200
            return await response.json()


@contextlib.asynccontextmanager
async def closing(ledger: Ledger) -> AsyncIterator[None]:
    """Close the ledger at the end."""
    try:
        yield
    finally:
        await ledger.close()


@contextlib.asynccontextmanager
async def serving(ledger: Ledger) -> AsyncIterator[Api]:
    """The REST API of a node without a GlobalManager."""
    metrics = Metrics()
    ledger.on_commit = metrics.count_commit
    endpoint = Endpoint(addresses=Addresses(["ws://127.0.0.1:1"]), node="edge-1")
    delays = default_delays(min_s=1, max_s=60)
    link = Link(endpoint, ledger, metrics, timing=TIMING, delays=delays)
    server = HttpServer(StatusApi(ledger, link, metrics).handle, metrics, api="status")
    host, port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Api(f"http://{host}:{port}", session)
    finally:
        await server.stop()


@pytest.fixture
async def api(ledger: Ledger) -> AsyncIterator[Api]:
    async with serving(ledger) as api:
        yield api


@pytest.fixture
async def tasks(ledger: Ledger) -> Ledger:
    await ledger.apply([assign(version=4, body_=body(WORKER, "another"))])
    return ledger


async def test_tasks_are_listed_with_their_workers(tasks: Ledger, api: Api) -> None:
    assert await api.json("/api/v1/tasks") == {
        "items": [
            {
                "key": key(),
                "plural": "jointinferenceservices",
                "group": "edgeai.io",
                "namespace": "default",
                "name": "digits",
                "uid": UID,
                "version": 4,
                "workers": ["another", WORKER],
            }
        ]
    }


async def test_workers_are_listed_with_what_they_said(tasks: Ledger, api: Api) -> None:
    message = worker_message(7, phase="inference", numbers={"ratio": 0.5}, details={"note": "n"})
    await tasks.record(UID, WORKER, [message])
    assert await api.json("/api/v1/workers") == {
        "items": [
            {
                "task": key(),
                "uid": UID,
                "name": WORKER,
                "attempt": 1,
                "status": "running",
                "reason": "",
                "phase": "inference",
                "taskInfo": {"ratio": 0.5, "seen": 7},
                "details": {"note": "n"},
                "acknowledged": False,
            }
        ]
    }


async def test_a_lost_worker_is_shown_with_the_reason(tasks: Ledger, api: Api) -> None:
    await tasks.observe(UID, WORKER, "lost", "no heartbeat for 30 s")
    (worker,) = (await api.json("/api/v1/workers"))["items"]
    assert (worker["status"], worker["reason"]) == ("lost", "no heartbeat for 30 s")


async def test_an_empty_node_has_empty_lists(api: Api) -> None:
    assert await api.json("/api/v1/tasks") == {"items": []}
    assert await api.json("/api/v1/workers") == {"items": []}


async def test_the_link_shows_that_there_is_no_session(api: Api) -> None:
    state = await api.json("/api/v1/link")
    assert (state["connected"], state["session"]) == (False, "")


async def test_metrics_count_tasks_and_reports(tasks: Ledger, api: Api) -> None:
    await tasks.record(UID, WORKER, [worker_message(1)])
    await tasks.record(UID, WorkerName("another"), [worker_message(1)])
    _, text = await api.request("/metrics")
    families = text_string_to_metric_families(text)
    values = {s.name: s.value for family in families for s in family.samples if not s.labels}
    assert values["localcontroller_tasks"] == 1
    assert values["localcontroller_unacked_reports"] == 2
    assert values["localcontroller_commits_total"] >= 2
    assert values["localcontroller_connected"] == 0
    assert values["localcontroller_ledger_bytes"] > 0


async def test_health_does_not_depend_on_the_cloud(api: Api) -> None:
    assert await api.request("/healthz") == (200, "ok")
    assert await api.request("/readyz") == (200, "ok")


async def test_a_full_disk_is_not_ready_until_there_is_space(tasks: Ledger, api: Api) -> None:
    with full_disk():
        with pytest.raises(LedgerFull):
            await tasks.record(UID, WORKER, [worker_message(1)])
        status, text = await api.request("/readyz")
        assert (status, "full" in text) == (503, True)
        assert await api.request("/healthz") == (200, "ok")
    assert await api.request("/readyz") == (200, "ok")


async def test_a_full_disk_is_not_ready_although_nobody_has_written(
    small_disk: Path,
) -> None:
    ledger = await Ledger.open(small_disk / "state", reserve_bytes=128 * 1024)
    async with closing(ledger), serving(ledger) as api:
        await ledger.apply([assign()])
        assert await api.request("/readyz") == (200, "ok")
        filler = await asyncio.to_thread(fill_disk, small_disk)
        status, text = await api.request("/readyz")
        assert (status, "full" in text) == (503, True)
        await asyncio.to_thread(filler.unlink)
        assert await api.request("/readyz") == (200, "ok")


async def test_a_full_ledger_is_not_ready(state_dir: Path) -> None:
    ledger = await Ledger.open(state_dir, max_bytes=128 * 1024, reserve_bytes=0)
    workers = [WorkerName(f"w{n}") for n in range(40)]
    async with closing(ledger), serving(ledger) as api:
        await ledger.apply([assign(body_=body(*workers))])
        with contextlib.suppress(LedgerFull):
            for worker in workers:
                details = {f"d{n}": "x" * 900 for n in range(4)}
                await ledger.record(UID, worker, [worker_message(1, details=details)])
        status, text = await api.request("/readyz")
        assert (status, "--ledger-max-bytes" in text) == (503, True)


async def test_readiness_writes_nothing_while_there_is_space(tasks: Ledger, api: Api) -> None:
    changes = []
    tasks.on_commit = lambda commit: changes.append(commit.changes)
    for _ in range(3):
        assert await api.request("/readyz") == (200, "ok")
    assert sum(changes) == 0


async def test_readiness_writes_nothing_after_the_disk_has_space_again(
    tasks: Ledger, api: Api
) -> None:
    with full_disk(), pytest.raises(LedgerFull):
        await tasks.record(UID, WORKER, [worker_message(1)])
    assert await api.request("/readyz") == (200, "ok")
    changes = []
    tasks.on_commit = lambda commit: changes.append(commit.changes)
    assert await api.request("/readyz") == (200, "ok")
    assert sum(changes) == 0


@pytest.mark.parametrize("path", ROUTES)
async def test_without_a_ledger_each_route_has_a_defined_answer(
    path: str, ledger: Ledger, api: Api
) -> None:
    await ledger.close()
    status, _ = await api.request(path)
    assert status == WITHOUT_LEDGER[path]


@pytest.mark.parametrize("path", ROUTES)
async def test_no_answer_holds_a_secret_or_its_hash(path: str, tasks: Ledger, api: Api) -> None:
    await tasks.record(UID, WORKER, [worker_message(1)])
    _, text = await api.request(path)
    assert SECRET not in text
    assert secret_hash() not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ROUTES)
async def test_nothing_can_be_changed(method: str, path: str, api: Api) -> None:
    status, _ = await api.request(path, method)
    assert status == 405


async def test_another_path_is_not_found(api: Api) -> None:
    status, _ = await api.request("/api/v1/secrets")
    assert status == 404
