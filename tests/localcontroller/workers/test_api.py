"""The worker API over real sockets, with a real ledger behind it."""

import asyncio
import contextlib
import gzip
import json
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from common.logs import MASK, mask_secrets
from edgeai.ids import TaskKey, WorkerName
from localcontroller.content import ContentStore
from localcontroller.hooks.sources import DEFAULT_TIMEOUTS, SourceThreads
from localcontroller.http_server import MAX_BODY_BYTES, HttpServer
from localcontroller.ledger.attempts import MAX_WORKER_PROCESSES
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import WorkerRow
from localcontroller.ledger.writer import LedgerCommit
from localcontroller.metrics import Metrics
from localcontroller.workers.api import WorkerApi
from localcontroller.workers.heartbeats import Heartbeats
from localcontroller.workers.models import ModelApi
from localcontroller.workers.rates import RequestRates
from tests.localcontroller.builders import (
    SECRET,
    UID,
    WORKER,
    assign,
    body,
    secret_hash,
    withdraw,
    worker_message,
)
from tests.localcontroller.full_disk import full_disk
from tests.support.clock import Clock
from tests.support.waiting import PATIENCE_S, async_eventually

FOREIGN_SECRET = "6" * 64
FOREIGN = WorkerName("faces-edge")


class WorkerApiNode:
    """The worker API on a socket, with its ledger and deadlines. Keyword arguments: of WorkerApi"""

    def __init__(self, ledger: Ledger, session: aiohttp.ClientSession, **limits: Any) -> None:
        self.metrics = Metrics()
        self.ledger = ledger
        self.port = 0
        self.commits: list[LedgerCommit] = []
        self.clock = Clock()
        self.heartbeats = Heartbeats(silence_factor=3.0, clock=self.clock)
        self.api = WorkerApi(ledger, self.heartbeats, self.metrics, **limits)
        self._session = session
        ledger.on_commit = self._on_commit

    def _on_commit(self, commit: LedgerCommit) -> None:
        if commit.changes:
            self.commits.append(commit)

    async def post(
        self, path: str, data: Any, *, secret: str = SECRET
    ) -> tuple[int, dict[str, Any]]:
        """Returns: the HTTP status; the JSON of the answer with its HTTP headers as "headers"."""
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        url = f"http://127.0.0.1:{self.port}/w/{secret}/{path}"
        async with self._session.post(url, data=raw) as response:
            answer = await response.json()
            return response.status, {**answer, "headers": dict(response.headers)}

    async def status(
        self, message: Any, *, worker: str = WORKER, secret: str = SECRET
    ) -> tuple[int, dict[str, Any]]:
        return await self.post(f"v1/workers/{worker}/status", message, secret=secret)

    async def sedna(self, message: Any, *, worker: str = WORKER) -> tuple[int, dict[str, Any]]:
        return await self.post(f"sedna/workers/{worker}/info", message)

    async def row(self, worker: str = WORKER) -> WorkerRow:
        return next(row for row in await self.ledger.workers() if row.name == worker)

    async def connect(
        self, source: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))

    def sample(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(name, {"api": "workers"}) or 0.0


def model_api(store: ContentStore) -> ModelApi:
    return ModelApi(store, SourceThreads(4, DEFAULT_TIMEOUTS))


@contextlib.asynccontextmanager
async def running_node(
    ledger: Ledger, *, max_connections: int = 64, idle_s: float = PATIENCE_S, **limits: Any
) -> AsyncIterator[WorkerApiNode]:
    """Args: limits: keyword arguments of WorkerApi"""
    assert await ledger.apply(
        [
            assign(body_=body(WORKER, "digits-cloud")),
            assign("faces", uid="uid-2", body_=body(FOREIGN, secret=FOREIGN_SECRET)),
        ]
    ) == ["", ""]
    async with aiohttp.ClientSession() as session:
        models = model_api(ContentStore(Path("/no/content"), max_bytes=0))
        node = WorkerApiNode(ledger, session, **{"refusal_s": 0.0, "models": models, **limits})
        server = HttpServer(
            node.api.handle,
            node.metrics,
            api="workers",
            idle_s=idle_s,
            linger_s=0.2,
            stop_s=0.2,
            max_connections=max_connections,
        )
        _, node.port = await server.start("127.0.0.1", 0)
        yield node
        await server.stop()


@pytest.fixture
async def node(ledger: Ledger) -> AsyncIterator[WorkerApiNode]:
    async with running_node(ledger) as node:
        yield node


def message(seen: int = 1, **fields: Any) -> dict[str, Any]:
    return {"status": "running", "output": {"taskInfo": {"seen": seen}}, **fields}


def sedna_message(**fields: Any) -> dict[str, Any]:
    """The body that Sedna's library posts, with its wrong owner."""
    return {
        "name": WORKER,
        "namespace": "default",
        "ownerName": "sedna",
        "ownerKind": "default",
        "kind": "inference",
        "results": [],
        "ownerInfo": {
            "startTime": "2026-01-01 10:00:00",
            "updateTime": "2026-01-01 10:00:30",
            "inferenceNumber": 12,
            "hardExampleNumber": 3,
            "uploadCloudRatio": 0.25,
        },
        **fields,
    }


def request_head(secret: str = SECRET, *, headers: str) -> bytes:
    return (
        f"POST /w/{secret}/v1/workers/{WORKER}/status HTTP/1.1\r\nHost: node\r\n{headers}\r\n\r\n"
    ).encode()


# ---- accepted messages ---------------------------------------------------------------------------


async def test_a_status_is_answered_and_waits_for_the_cloud(node: WorkerApiNode) -> None:
    info = {"seen": 7, "hard": 2, "latency": 0.5, "startTime": "2026-01-01T00:00:00Z"}
    sent = {
        "phase": "inference",
        "status": "running",
        "instance": "ab",
        "sequence": 1,
        "heartbeatSeconds": 10,
        "output": {"taskInfo": info},
    }
    status, _ = await node.status(sent)
    row = await node.row()
    report = row.worker.report("")
    assert (status, row.is_acked) == (200, False)
    assert (report.status, report.phase) == ("running", "inference")
    assert report.task_info == {"seen": 7, "hard": 2, "latency": 0.5}
    assert report.details == {"startTime": "2026-01-01T00:00:00Z"}


async def test_counts_add_up_over_processes_and_other_numbers_do_not(
    node: WorkerApiNode,
) -> None:
    for instance, frames in (("p1", 10), ("p2", 3), ("p2", 5)):
        info = {"frames": frames, "seen": frames}
        sent = {"status": "running", "instance": instance}
        output = {"taskInfo": info, "counts": ["frames"]}
        assert (await node.status({**sent, "output": output}))[0] == 200
    assert (await node.row()).worker.report("").task_info == {"seen": 5, "frames": 15}


async def test_counts_beyond_what_a_report_can_carry_are_refused(node: WorkerApiNode) -> None:
    for n in range(4):
        names = {f"{n}-{m}": 1 for m in range(10)}
        sent = {"status": "running", "instance": str(n)}
        status, answer = await node.status(
            {**sent, "output": {"taskInfo": names, "counts": list(names)}}
        )
    assert (status, "output.counts" in json.dumps(answer)) == (400, True)


async def test_a_body_of_sedna_is_accepted_whatever_owner_it_names(node: WorkerApiNode) -> None:
    status, _ = await node.sedna(sedna_message())
    row = await node.row()
    assert (status, row.uid, row.worker.phase) == (200, UID, "inference")
    assert row.worker.totals == {"seen": 12, "hard": 3, "uploaded": 3}


async def test_reports_of_sednas_edge_worker_are_totals_of_one_process(node: WorkerApiNode) -> None:
    """Each report has the start of its own period as startTime."""
    for minute, seen, hard in ((0, 12, 2), (1, 25, 5), (2, 37, 7)):
        info = {
            "startTime": f"2026-01-01 10:0{minute}:00",
            "updateTime": f"2026-01-01 10:0{minute}:30",
            "inferenceNumber": seen,
            "hardExampleNumber": hard,
            "uploadCloudRatio": hard / seen,
        }
        await node.sedna(sedna_message(ownerInfo=info))
    worker = (await node.row()).worker
    assert (worker.attempt, worker.totals) == (1, {"seen": 37, "hard": 7, "uploaded": 7})


async def test_rounds_of_sednas_trainer_are_reported_to_the_cloud(node: WorkerApiNode) -> None:
    for number, status in ((1, "running"), (2, "running"), (3, "completed")):
        info = {
            "currentRound": number,
            "sampleCount": 30,
            "startTime": f"2026-01-01 10:00:0{number}",
            "updateTime": f"2026-01-01 10:00:0{number}",
        }
        metrics = {"loss": [1.0, 1 / number], "accuracy": [0.5, 0.75]}
        results = [{"format": "", "url": "/model/digits", "metrics": metrics}]
        sent = sedna_message(kind="train", status=status, ownerInfo=info, results=results)
        assert (await node.sedna(sent))[0] == 200
    report = (await node.row()).worker.report("")
    assert (report.phase, report.status) == ("train", "completed")
    assert report.task_info == {
        "currentRound": 3,
        "sampleCount": 30,
        "metrics.loss": 1 / 3,
        "metrics.accuracy": 0.75,
    }


async def test_the_reply_comes_after_the_commit(node: WorkerApiNode) -> None:
    """While the writer thread is blocked, the message is queued there and no reply is sent."""
    started, release = threading.Event(), threading.Event()
    replies: list[int] = []

    def hold(_tables: object) -> None:
        started.set()
        release.wait(PATIENCE_S)

    async def send() -> None:
        replies.append((await node.status(message(5)))[0])

    held = asyncio.create_task(node.ledger._writer.submit(hold))
    await async_eventually("a blocked writer thread", started.is_set)
    sending = asyncio.create_task(send())
    await async_eventually("the message in the queue", node.ledger._writer._queue.__len__)
    for _ in range(100):  # time enough for a reply that does not wait for the commit
        await asyncio.sleep(0)
    assert replies == []
    release.set()
    await asyncio.gather(held, sending)
    assert (replies, (await node.row()).worker.totals) == ([200], {"seen": 5})


async def test_counts_of_a_restarted_process_add_up(node: WorkerApiNode) -> None:
    for instance, seen in (("p1", 5), ("p1", 9), ("p2", 1), ("p2", 4)):
        await node.status(message(seen, instance=instance))
    row = await node.row()
    assert (row.worker.totals, row.worker.attempt) == ({"seen": 13}, 2)


async def test_an_older_sequence_is_answered_and_ignored(node: WorkerApiNode) -> None:
    await node.status(message(9, instance="p1", sequence=5))
    for sequence in (4, 5):
        status, _ = await node.status(message(2, instance="p1", sequence=sequence))
        assert status == 200
    assert (await node.row()).worker.totals == {"seen": 9}


async def test_a_late_message_changes_no_deadline(node: WorkerApiNode) -> None:
    await node.status(message(9, instance="p1", sequence=5, heartbeatSeconds=10))
    await node.status(message(2, instance="p1", sequence=4, heartbeatSeconds=0))
    assert node.heartbeats.wait_s() == pytest.approx(30)


async def test_heartbeats_without_change_write_nothing(node: WorkerApiNode) -> None:
    for sequence in range(1, 4):
        sent = message(3, instance="p1", sequence=sequence, heartbeatSeconds=10)
        sent["output"]["taskInfo"]["updateTime"] = f"2026-01-01T00:00:0{sequence}Z"
        assert (await node.status(sent))[0] == 200
    assert len(node.commits) == 1


async def test_a_final_state_stays(node: WorkerApiNode) -> None:
    await node.status(message(2, instance="p1", heartbeatSeconds=10))
    await node.status(message(3, instance="p1", status="completed", heartbeatSeconds=10))
    await node.status(message(4, instance="p1", status="running", heartbeatSeconds=10))
    assert (await node.row()).worker.status == "completed"
    assert node.heartbeats.wait_s() > 100  # a finished worker has no deadline


async def test_many_messages_at_once_cost_few_commits(ledger: Ledger) -> None:
    async with running_node(ledger, early_commits_per_s=1e-6) as node:
        replies = await asyncio.gather(
            *(node.status(message(n, instance="p1", sequence=n)) for n in range(1, 61))
        )
        assert {status for status, _ in replies} == {200}
        assert (await node.row()).worker.totals == {"seen": 60}
        assert len(node.commits) <= 4


# ---- rights --------------------------------------------------------------------------------------

STRANGERS = {
    "wrong secret": (FOREIGN_SECRET[:-1] + "0", WORKER),
    "hash of the secret": (secret_hash(SECRET), WORKER),
    "secret of another task": (FOREIGN_SECRET, WORKER),
    "worker that the secret does not cover": (SECRET, FOREIGN),
    "unknown worker": (SECRET, "ghost"),
}


@pytest.mark.parametrize("case", STRANGERS)
async def test_a_message_without_the_right_is_refused(case: str, node: WorkerApiNode) -> None:
    secret, worker = STRANGERS[case]
    status, answer = await node.status(message(), worker=worker, secret=secret)
    assert status == 403
    assert answer["message"] == "this URL does not allow reports as that worker on this node"
    assert await node.ledger.workers() == []


async def test_a_secret_is_refused_once_its_task_is_withdrawn(node: WorkerApiNode) -> None:
    await node.ledger.apply([withdraw()])
    assert (await node.status(message()))[0] == 403


async def test_nothing_can_be_read(node: WorkerApiNode) -> None:
    url = f"http://127.0.0.1:{node.port}/w/{SECRET}/v1/workers/{WORKER}/status"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 405


# ---- refused messages ----------------------------------------------------------------------------

INVALID: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "body"),
    "empty": (b"", "body"),
    "no UTF-8": (b'{"status": "running", "phase": "\xff"}', "body"),
    "deeply nested": (b'{"status": "running", "x": ' + b"[" * 60_000, "body"),
    "a list": ([], "object"),
    "no status": ({}, "status"),
    "unknown status": (message(status="done"), "status"),
    "phase is a number": (message(phase=3), "phase"),
    "phase is too long": (message(phase="x" * 254), "phase"),
    "instance is null": (message(instance=None), "instance"),
    "sequence is text": (message(sequence="1"), "sequence"),
    "sequence is negative": (message(sequence=-1), "sequence"),
    "sequence is no SQL integer": (message(sequence=2**63), "sequence"),
    "heartbeat is negative": (message(heartbeatSeconds=-1), "heartbeatSeconds"),
    "heartbeat of days": (message(heartbeatSeconds=10**6), "heartbeatSeconds"),
    "heartbeat is infinite": (b'{"status":"running","heartbeatSeconds":1e999}', "body"),
    "output is a list": (message(output=[]), "output"),
    "task info is text": (message(output={"taskInfo": "x"}), "taskInfo"),
    "seen is text": (message("7"), "seen"),  # type: ignore[arg-type]
    "seen is negative": (message(-1), "seen"),
    "seen is a fraction": (message(1.5), "seen"),  # type: ignore[arg-type]
    "a count that JSON cannot carry": (message(2**60), "taskInfo"),
    "a value is a list": (message(output={"taskInfo": {"labels": []}}), "taskInfo"),
}


@pytest.mark.parametrize("case", INVALID)
async def test_an_invalid_message_is_refused_with_the_field(case: str, node: WorkerApiNode) -> None:
    sent, field = INVALID[case]
    status, answer = await node.status(sent)
    assert (status, field in answer["message"]) == (400, True), answer
    assert node.commits == []


INVALID_SEDNA: dict[str, tuple[Any, str]] = {
    "another worker's name": (sedna_message(name="other"), "name"),
    "no name": ({"kind": "inference"}, "name"),
    "unknown status": (sedna_message(status="ok"), "status"),
    "owner info is a list": (sedna_message(ownerInfo=[1]), "ownerInfo"),
    "a count is text": (sedna_message(ownerInfo={"inferenceNumber": "9"}), "inferenceNumber"),
}


@pytest.mark.parametrize("case", INVALID_SEDNA)
async def test_an_invalid_body_of_sedna_is_refused_with_the_field(
    case: str, node: WorkerApiNode
) -> None:
    sent, field = INVALID_SEDNA[case]
    status, answer = await node.sedna(sent)
    assert (status, field in answer["message"]) == (400, True), answer
    assert node.commits == []


async def test_a_huge_body_is_refused(node: WorkerApiNode) -> None:
    status, _ = await node.status(b" " * (MAX_BODY_BYTES + 1))
    assert status == 413


async def test_a_body_without_end_is_refused(node: WorkerApiNode) -> None:
    reader, writer = await node.connect()
    writer.write(request_head(headers="Transfer-Encoding: chunked"))
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    with contextlib.suppress(ConnectionError):
        for _ in range(8):
            writer.write(chunk)
            await writer.drain()
    assert b" 413 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
    writer.close()


async def test_a_compressed_body_is_not_unpacked(node: WorkerApiNode) -> None:
    """So a small body cannot become a large one; the packed bytes are refused as invalid JSON."""
    packed = gzip.compress(json.dumps(message()).encode())
    reader, writer = await node.connect()
    headers = f"Content-Encoding: gzip\r\nContent-Length: {len(packed)}"
    writer.write(request_head(headers=headers) + packed)
    assert b" 400 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
    writer.close()


async def test_a_slow_body_is_cut(ledger: Ledger) -> None:
    async with running_node(ledger, read_s=0.05) as node:
        reader, writer = await node.connect()
        writer.write(request_head(headers="Content-Length: 100") + b"{")
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)  # to the end of the connection
        assert b" 408 " in answer.splitlines()[0]
        writer.close()


@pytest.mark.parametrize("start", [b"", b"POST /w/"], ids=["silence", "half a head"])
async def test_a_connection_without_a_request_is_cut(start: bytes, ledger: Ledger) -> None:
    async with running_node(ledger, idle_s=0.2) as node:
        reader, writer = await node.connect()
        writer.write(start)
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"], ids=["same", "another"])
async def test_idle_connections_are_bounded_and_keep_no_worker_out(
    source: str, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_node(ledger, max_connections=4) as node:
        idle = [await node.connect(source) for _ in range(12)]
        await async_eventually(
            "connections that were cut",
            lambda: node.sample("localcontroller_http_connections_cut_total") == 8,
        )
        assert node.sample("localcontroller_http_connections") == 4
        assert (await node.status(message()))[0] == 200
        assert node.sample("localcontroller_http_connections") <= 4
        for _, writer in idle:
            writer.transport.abort()
    assert "too many connections" in capsys.readouterr().out


async def test_a_client_that_leaves_amid_the_body_causes_no_warning(
    node: WorkerApiNode, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await node.connect()
    writer.write(request_head(headers="Content-Length: 100") + b"{")
    await async_eventually("a request that waits for its body", lambda: node.api._shares.used)
    writer.close()
    await async_eventually("the end of the request", lambda: not node.api._shares.used)
    assert (await node.status(message()))[0] == 200
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_broken_chunk_is_refused(node: WorkerApiNode) -> None:
    reader, writer = await node.connect()
    writer.write(request_head(headers="Transfer-Encoding: chunked") + b"zz\r\n")
    assert b" 400 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
    writer.close()


# ---- without a durable ledger --------------------------------------------------------------------


async def test_on_a_full_disk_a_worker_is_told_to_retry(node: WorkerApiNode) -> None:
    with full_disk():
        status, answer = await node.status(message())
    assert status == 503
    assert int(answer["headers"]["Retry-After"]) >= 1
    assert "full" in answer["message"]


async def test_on_a_full_disk_a_message_still_renews_the_deadline(node: WorkerApiNode) -> None:
    sent = message(instance="p1", heartbeatSeconds=10)
    await node.status(sent)
    node.clock.now_s += 29
    with full_disk():
        status, _ = await node.status({**sent, "output": {"taskInfo": {"seen": 2}}})
    assert status == 503
    assert node.heartbeats.wait_s() == pytest.approx(30)


async def test_with_a_closed_ledger_a_worker_is_told_to_retry(node: WorkerApiNode) -> None:
    await node.ledger.close()
    status, answer = await node.status(message())
    assert (status, int(answer["headers"]["Retry-After"]) >= 1) == (503, True)


async def test_too_many_processes_of_one_worker_are_told_to_retry(ledger: Ledger) -> None:
    async with running_node(ledger, early_commits_per_s=1e-6) as node:
        for first in ("first", "early"):  # so the next messages wait for a shared commit
            await node.status(message(instance=first))
        replies = await asyncio.gather(*(node.status(message(instance=f"p{n}")) for n in range(40)))
        refused = [answer for status, answer in replies if status == 503]
        assert {status for status, _ in replies} == {200, 503}
        assert all(int(answer["headers"]["Retry-After"]) >= 1 for answer in refused)


async def begin_slow_body(node: WorkerApiNode, *, secret: str, worker: str) -> asyncio.StreamWriter:
    """Send the head of a request, and a part of its body."""
    _, writer = await node.connect()
    head = request_head(secret, headers="Content-Length: 100").replace(
        WORKER.encode(), worker.encode()
    )
    writer.write(head + b"{")
    return writer


async def test_slow_bodies_of_one_worker_leave_room_for_the_others(ledger: Ledger) -> None:
    async with running_node(ledger, max_requests=16) as node:
        writers = [await begin_slow_body(node, secret=SECRET, worker=WORKER) for _ in range(20)]
        await async_eventually("the share of the worker", lambda: node.api._shares.used == 4)
        status, answer = await node.status(message())
        assert (status, int(answer["headers"]["Retry-After"]) >= 1) == (503, True)
        assert "share" in answer["message"]
        status, _ = await node.status(message(), worker=FOREIGN, secret=FOREIGN_SECRET)
        assert status == 200
        for writer in writers:
            writer.close()
        await async_eventually("room for the worker again", lambda: not node.api._shares.used)
        assert (await node.status(message()))[0] == 200


async def test_a_worker_that_does_not_wait_is_refused_late(ledger: Ledger) -> None:
    """So it cannot come again at once, as often as it likes. Few requests wait for a refusal."""
    async with running_node(ledger, max_requests=4, refusal_s=PATIENCE_S) as node:
        first = await begin_slow_body(node, secret=SECRET, worker=WORKER)
        await async_eventually("the share of the worker", lambda: node.api._shares.used == 1)
        late = [asyncio.create_task(node.status(message())) for _ in range(4)]
        await async_eventually("four refusals that wait", lambda: node.api._refusals == 4)
        status, _ = await node.status(message(), worker=FOREIGN, secret=FOREIGN_SECRET)
        assert status == 200
        assert (await node.status(message()))[0] == 503
        assert not any(each.done() for each in late)
        for each in late:
            each.cancel()
        first.close()
    async with running_node(ledger, max_requests=4, refusal_s=0.1) as node:
        first = await begin_slow_body(node, secret=SECRET, worker=WORKER)
        await async_eventually("the share of the worker", lambda: node.api._shares.used == 1)
        assert (await node.status(message()))[0] == 503
        assert node.api._refusals == 0
        first.close()


def answered(node: WorkerApiNode, code: int) -> float:
    registry = node.metrics.registry
    name = "localcontroller_worker_messages_total"
    return registry.get_sample_value(name, {"code": str(code)}) or 0.0


def delayed(node: WorkerApiNode) -> float:
    name = "localcontroller_worker_requests_delayed_total"
    return node.metrics.registry.get_sample_value(name) or 0.0


async def test_a_worker_that_sends_without_pause_waits_and_the_others_do_not(
    ledger: Ledger,
) -> None:
    rates = RequestRates(of_task_per_s=0.2, of_task_burst=3)
    async with running_node(ledger, rates=rates) as node:
        bad = [asyncio.create_task(node.status(b"{")) for _ in range(5)]
        await async_eventually("two requests that wait", lambda: delayed(node) == 2)
        assert answered(node, 400) == 3
        assert node.api._shares.used == 0, "a request that waits takes no part of the share"
        status, _ = await node.status(message(), worker=FOREIGN, secret=FOREIGN_SECRET)
        assert (status, delayed(node)) == (200, 2)
        assert sum(each.done() for each in bad) == 3
        await stopped(bad)


async def test_many_jobs_of_one_tenant_share_a_rate_of_requests(ledger: Ledger) -> None:
    rates = RequestRates(of_namespace_per_s=0.1, of_namespace_burst=2)
    async with running_node(ledger, rates=rates) as node:
        its_key = TaskKey("jointinferenceservices.edgeai.io/other/job")
        other = assign(uid="other", body_=body("w", secret="7" * 64))
        assert await ledger.apply([msgspec.structs.replace(other, key=its_key)]) == [""]
        assert (await node.status(message()))[0] == 200
        assert (await node.status(message(), worker=FOREIGN, secret=FOREIGN_SECRET))[0] == 200
        late = asyncio.create_task(node.status(message()))
        await async_eventually("a request that waits", lambda: delayed(node) == 1)
        assert (await node.status(message(), worker="w", secret="7" * 64))[0] == 200
        assert not late.done()
        await stopped([late])


async def test_a_request_beyond_its_rate_still_renews_the_deadline(ledger: Ledger) -> None:
    rates = RequestRates(of_task_per_s=0.2, of_task_burst=1)
    async with running_node(ledger, rates=rates) as node:
        assert (await node.status(message(heartbeatSeconds=10)))[0] == 200
        node.clock.now_s += 29
        late = asyncio.create_task(node.status(message(heartbeatSeconds=10)))
        await async_eventually("a request that waits", lambda: delayed(node) == 1)
        node.clock.now_s += 29
        assert node.heartbeats.take_missed() == []
        await stopped([late])


async def test_a_stranger_is_refused_at_a_bounded_rate_and_a_worker_is_answered(
    ledger: Ledger,
) -> None:
    """Some requests have a wrong secret, and some go to no place at all."""
    rates = RequestRates(of_stranger_per_s=0.5, of_stranger_burst=4)
    async with running_node(ledger, max_requests=3, rates=rates) as node:
        flood = [
            asyncio.create_task(node.post(path, {}, secret="0" * 64))
            for path in ("v1/workers/w/status", "v2/nothing")
            for _ in range(10)
        ]
        await async_eventually("most are cut", lambda: sum(each.done() for each in flood) == 17)
        assert (answered(node, 403) + answered(node, 404), delayed(node)) == (17, 3)
        replies = await asyncio.gather(
            *(each for each in flood if each.done()), return_exceptions=True
        )
        assert sum(not isinstance(reply, BaseException) for reply in replies) == 4
        assert (await node.status(message()))[0] == 200
        await stopped(flood)


async def stopped(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


OF_THE_NAMESPACE = "the share of this namespace is overloaded, retry after 1 s"


async def test_slow_bodies_of_many_jobs_of_one_tenant_leave_room_for_the_other_tenants(
    ledger: Ledger,
) -> None:
    """Each job stays below the share of one worker; all of them use up that of the tenant."""
    async with running_node(ledger, max_requests=16) as node:
        secrets = [f"{number:064}" for number in range(4)]
        for secret in secrets:
            greedy = assign(uid=secret, body_=body("w", secret=secret))
            its_key = TaskKey(f"jointinferenceservices.edgeai.io/greedy/job-{secret}")
            assert await ledger.apply([msgspec.structs.replace(greedy, key=its_key)]) == [""]
        greedy_bodies = [
            await begin_slow_body(node, secret=secret, worker="w")
            for secret in secrets
            for _ in range(3)
        ]
        refused = 3 * len(secrets) - 8
        await async_eventually("refusals", lambda: answered(node, 503) == refused)
        assert node.api._shares.used == 8
        status, answer = await node.status(message(), worker="w", secret=secrets[3])
        assert (status, answer["message"]) == (503, OF_THE_NAMESPACE)
        others = [
            await begin_slow_body(node, secret=secret, worker=worker)
            for secret, worker in ((SECRET, WORKER), (FOREIGN_SECRET, FOREIGN))
            for _ in range(4)
        ]
        await async_eventually("the other half", lambda: node.api._shares.used == 16)
        for writer in others:
            writer.close()
        await async_eventually("the half of the tenant", lambda: node.api._shares.used == 8)
        assert (await node.status(message()))[0] == 200
        for writer in greedy_bodies:
            writer.close()
        await async_eventually("room for the tenant again", lambda: not node.api._shares._used)
        assert (await node.status(message(), worker="w", secret=secrets[3]))[0] == 200


async def test_a_heartbeat_that_arrives_counts_though_there_is_no_room(ledger: Ledger) -> None:
    async with running_node(ledger, max_requests=1) as node:
        promise = message(heartbeatSeconds=10)
        assert (await node.status(promise, worker=FOREIGN, secret=FOREIGN_SECRET))[0] == 200
        writer = await begin_slow_body(node, secret=SECRET, worker=WORKER)
        await async_eventually("a request that waits for its body", lambda: node.api._shares.used)
        node.clock.now_s += 29
        assert (await node.status(promise, worker=FOREIGN, secret=FOREIGN_SECRET))[0] == 503
        node.clock.now_s += 29
        assert node.heartbeats.take_missed() == []
        node.clock.now_s += 2
        assert [worker for _, worker, _ in node.heartbeats.take_missed()] == [FOREIGN]
        writer.close()


async def test_many_processes_of_one_worker_count_once(node: WorkerApiNode) -> None:
    for round_ in range(1, 6):
        sent = [message(10 * round_, instance=f"p{process}") for process in range(17)]
        answers = await asyncio.gather(*(node.status(each) for each in sent))
        assert {status for status, _ in answers} == {200}
    assert (await node.row()).worker.totals == {"seen": 850}


async def test_one_process_too_many_is_refused_while_the_others_may_still_speak(
    node: WorkerApiNode,
) -> None:
    processes = [worker_message(1, instance=f"p{number}") for number in range(MAX_WORKER_PROCESSES)]
    await node.ledger.record(UID, WORKER, processes)
    status, answer = await node.status(message(1, instance="one more"))
    assert (status, int(answer["headers"]["Retry-After"]) >= 1) == (503, True)
    assert (await node.status(message(7, instance="p0")))[0] == 200
    assert (await node.row()).worker.totals == {"seen": MAX_WORKER_PROCESSES - 1 + 7}


# ---- secrets -------------------------------------------------------------------------------------


async def test_no_answer_holds_a_secret(node: WorkerApiNode) -> None:
    answers = [
        await node.status(message()),
        await node.status(message(), secret=FOREIGN_SECRET),
        await node.status(b"{"),
        await node.post("v2/nothing", {}),
    ]
    text = json.dumps(answers)
    assert SECRET not in text
    assert FOREIGN_SECRET not in text


def test_a_url_of_a_worker_is_logged_without_its_secret() -> None:
    event = mask_secrets(None, "info", {"url": f"http://h:9100/w/{SECRET}/v1"})
    assert event["url"] == f"http://h:9100/w/{MASK}/v1"
