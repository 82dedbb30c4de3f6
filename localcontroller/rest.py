"""The read-only REST API of a LocalController, for people and probes on the node.

The API listens on loopback only. No answer contains a secret or the hash of a secret. `/healthz`
answers 503 if the process needs a restart because its credential is lost, and else 200. `/readyz`
answers 200 while the ledger takes reports, and 503 also while this node has no credential: the
files are not there yet, have the token of another pod, or are lost and what was read before is
rejected. Both probes work without the cloud.
"""

from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from edgeai.errors import Unavailable
from edgeai.ids import parse_task_key
from localcontroller.http_server import JSON, Answer, Request
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import WorkerRow
from localcontroller.link.link import Link
from localcontroller.metrics import Metrics


class StatusApi:
    def __init__(self, ledger: Ledger, link: Link, metrics: Metrics) -> None:
        self._ledger = ledger
        self._link = link
        self._metrics = metrics

    async def handle(self, request: Request) -> Answer:
        answers = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics_text,
            "/api/v1/tasks": self._tasks,
            "/api/v1/workers": self._workers,
            "/api/v1/link": self._link_state,
        }
        if request.path not in answers:
            return Answer(status=404, body=b"404: Not Found")
        if request.method not in ("GET", "HEAD"):
            headers = {"Allow": "GET,HEAD"}
            return Answer(status=405, body=b"405: Method Not Allowed", headers=headers)
        return await answers[request.path]()

    async def _healthz(self) -> Answer:
        if self._link.loss:
            return _unavailable(self._link.loss)
        return _OK

    async def _readyz(self) -> Answer:
        try:
            await self._ledger.check_space()
        except Unavailable as error:
            return _unavailable(str(error))
        if self._link.without_credential:
            text = f"waiting for the credential of this node: {self._link.without_credential}"
            return _unavailable(text)
        return _OK

    async def _tasks(self) -> Answer:
        view = self._ledger.view
        workers: dict[str, list[str]] = {}
        for grant in view.grants.values():
            workers.setdefault(grant.key, []).extend(grant.workers)
        return _json(
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

    async def _workers(self) -> Answer:
        try:
            rows = await self._ledger.workers()
        except Unavailable as error:
            return _unavailable(str(error))
        return _json({"items": [_worker_json(row) for row in rows]})

    async def _link_state(self) -> Answer:
        return _json(self._link.state)

    async def _metrics_text(self) -> Answer:
        metrics, ledger = self._metrics, self._ledger
        metrics.tasks.set(len(ledger.view.task_versions))
        metrics.ledger_bytes.set(ledger.file.used_bytes)
        metrics.ledger_limit_bytes.set(ledger.file.max_bytes)
        metrics.ledgers_set_aside.set(ledger.file.set_aside)
        try:
            metrics.unacked.set(await ledger.count_unacked())
        except Unavailable:
            metrics.unacked.set(float("nan"))
        return Answer(body=generate_latest(metrics.registry), content_type=CONTENT_TYPE_LATEST)


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


def _json(value: Any) -> Answer:
    return Answer(body=msgspec.json.encode(value), content_type=JSON)


def _unavailable(reason: str) -> Answer:
    return Answer(status=503, body=reason.encode())


_OK: Final = Answer(body=b"ok")
