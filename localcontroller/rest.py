"""The read-only REST API of a LocalController, for people and probes on the node.

The API listens on loopback only. No answer contains a secret or the hash of a secret. `/healthz`
answers 503 if the process needs a restart because its credential is lost, and else 200. `/readyz`
answers 200 while the ledger takes reports, and 503 also while this node has no credential: the
files are not there yet, have the token of another pod, or are lost and what was read before is
rejected. Both probes work without the cloud.
"""

from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from edgeai.errors import Unavailable
from edgeai.ids import parse_task_key
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import WorkerRow
from localcontroller.link.link import Link
from localcontroller.metrics import Metrics


class StatusApi:
    def __init__(self, ledger: Ledger, link: Link, metrics: Metrics) -> None:
        self._ledger = ledger
        self._link = link
        self._metrics = metrics

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1024)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_text)
        app.router.add_get("/api/v1/tasks", self._tasks)
        app.router.add_get("/api/v1/workers", self._workers)
        app.router.add_get("/api/v1/link", self._link_state)
        return app

    async def _healthz(self, _request: web.Request) -> web.Response:
        if self._link.loss:
            return web.Response(status=503, text=self._link.loss)
        return web.Response(text="ok")

    async def _readyz(self, _request: web.Request) -> web.Response:
        try:
            await self._ledger.check_space()
        except Unavailable as error:
            return web.Response(status=503, text=str(error))
        if self._link.without_credential:
            text = f"waiting for the credential of this node: {self._link.without_credential}"
            return web.Response(status=503, text=text)
        return web.Response(text="ok")

    async def _tasks(self, _request: web.Request) -> web.Response:
        view = self._ledger.view
        workers: dict[str, list[str]] = {}
        for grant in view.grants.values():
            workers.setdefault(grant.key, []).extend(grant.workers)
        return _json_response(
            {
                "items": [
                    {
                        "key": key,
                        **parse_task_key(key)._asdict(),
                        "uid": task.uid,
                        "version": task.version,
                        "workers": sorted(workers.get(key, [])),
                    }
                    for key, task in view.task_versions.items()
                ]
            }
        )

    async def _workers(self, _request: web.Request) -> web.Response:
        try:
            rows = await self._ledger.workers()
        except Unavailable as error:
            return web.Response(status=503, text=str(error))
        return _json_response({"items": [_worker_json(row) for row in rows]})

    async def _link_state(self, _request: web.Request) -> web.Response:
        return _json_response(self._link.state)

    async def _metrics_text(self, _request: web.Request) -> web.Response:
        metrics, ledger = self._metrics, self._ledger
        metrics.tasks.set(len(ledger.view.task_versions))
        metrics.ledger_bytes.set(ledger.used_bytes)
        metrics.ledger_limit_bytes.set(ledger.max_bytes)
        metrics.ledgers_set_aside.set(ledger.set_aside)
        try:
            metrics.unacked.set(await ledger.count_unacked())
        except Unavailable:
            metrics.unacked.set(float("nan"))
        text = generate_latest(metrics.registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _worker_json(row: WorkerRow) -> dict[str, Any]:
    worker = row.worker
    return {
        "task": row.key,
        "uid": row.uid,
        "name": row.name,
        "attempt": worker.attempt,
        "status": worker.status,
        "reason": worker.reason,
        "phase": worker.phase,
        "taskInfo": {**worker.numbers, **worker.totals},
        "details": worker.details,
        "acknowledged": row.is_acked,
    }


def _json_response(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
