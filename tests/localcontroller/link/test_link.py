"""The link against a real WebSocket server that runs the cloud's end of the session."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from common import wire
from common.session import Timing
from edgeai.backoff import Backoff
from edgeai.ids import WorkerName
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.outbox import ReportAcked
from localcontroller.link.conversation import Conversation, SessionEnded
from localcontroller.link.credentials import Credentials
from localcontroller.link.endpoint import Addresses, Endpoint
from localcontroller.link.link import (
    FILES_S,
    MAX_RETRY_AFTER_S,
    Delays,
    Link,
    LinkState,
    default_delays,
)
from localcontroller.metrics import Metrics
from tests.localcontroller.builders import (
    TIMING,
    UID,
    WORKER,
    body,
    desired,
    key,
    report_of,
    worker_message,
)
from tests.localcontroller.cloud import Cloud, running_cloud
from tests.localcontroller.full_disk import full_disk
from tests.support.tasks import beside
from tests.support.waiting import PATIENCE_S, async_eventually


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    async with running_cloud() as cloud:
        yield cloud


def quick_delays() -> Delays:
    """Reconnects at once, except after failures that only a person can repair."""
    quick = Backoff(base_s=0.01, max_s=0.05)
    return Delays(usual=quick, rival=Backoff(base_s=60, max_s=60, floor_s=30), credential_s=30)


@contextlib.asynccontextmanager
async def linked(ledger: Ledger, cloud: Cloud, **fields: Any) -> AsyncIterator[Link]:
    delays = fields.pop("delays", None) or quick_delays()
    timing = fields.pop("timing", TIMING)
    limits = {name: fields.pop(name) for name in ("retry_commit_s",) if name in fields}
    endpoint = Endpoint(
        addresses=Addresses([cloud.url]), node="edge-1", credentials=Credentials(**fields)
    )
    link = Link(endpoint, ledger, Metrics(), timing=timing, delays=delays, **limits)
    async with beside(link.run(), "link") as task:
        yield link
        assert not task.done()  # the link survived


async def test_the_desired_set_is_held_and_acknowledged(ledger: Ledger, cloud: Cloud) -> None:
    cloud.desired = {key(f"t{n}"): desired(uid=f"uid-{n}") for n in range(200)}
    async with linked(ledger, cloud):
        await cloud.until_synced()
    assert set(ledger.view.task_versions) == set(cloud.desired)
    assert len(cloud.held) == 200


async def test_a_task_of_megabytes_arrives(ledger: Ledger, cloud: Cloud) -> None:
    big = body(spec={"x": "y" * 2_000_000})
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await cloud.desire(key(), desired(body_=big))
        await async_eventually("the task", lambda: ledger.view.task_versions)


async def test_changes_arrive_during_the_session(ledger: Ledger, cloud: Cloud) -> None:
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await cloud.desire(key(), desired())
        await async_eventually(
            "version 1 of the task",
            lambda: ledger.view.task_versions == {key(): wire.TaskVersion(UID, 1)},
        )
        await cloud.desire(key(), desired(version=2))
        await async_eventually(
            "version 2 of the task",
            lambda: ledger.view.task_versions == {key(): wire.TaskVersion(UID, 2)},
        )
        await cloud.desire(key(), None)
        await async_eventually("the withdrawal", lambda: ledger.view.task_versions == {})


async def test_changes_during_a_lost_connection_arrive_with_the_next_session(
    ledger: Ledger, cloud: Cloud
) -> None:
    cloud.desired = {key("a"): desired(uid="a"), key("b"): desired(uid="b")}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await cloud.stop()
        cloud.desired = {key("b"): desired(uid="b2"), key("c"): desired(uid="c")}
        await cloud.start()
        await cloud.until_synced(2)
    assert ledger.view.task_versions == {
        key("b"): wire.TaskVersion("b2", 1),
        key("c"): wire.TaskVersion("c", 1),
    }
    assert [hello.tasks.keys() for hello in cloud.hellos] == [set(), {key("a"), key("b")}]


async def until_acknowledged(ledger: Ledger) -> None:
    """Wait until the cloud has acknowledged every report."""

    async def is_empty() -> bool:
        return await ledger.count_unacked() == 0

    await async_eventually("an empty outbox", is_empty)


async def test_an_acknowledged_report_leaves_the_outbox(ledger: Ledger, cloud: Cloud) -> None:
    cloud.desired = {key(): desired()}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await ledger.record(UID, WORKER, [worker_message(7, status="completed")])
        await cloud.until_reported(WORKER, status="completed", seen=7)
        await until_acknowledged(ledger)


async def test_while_the_cloud_is_down_the_newest_report_of_each_worker_waits(
    ledger: Ledger, cloud: Cloud
) -> None:
    cloud.desired = {key(): desired(body_=body("w1", "w2"))}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await cloud.stop()
        for n in range(1, 6):
            await ledger.record(UID, "w1", [worker_message(n)])  # type: ignore[arg-type]
        await ledger.record(UID, "w2", [worker_message(1, status="failed")])  # type: ignore[arg-type]
        await cloud.start()
        await cloud.until_reported("w2", status="failed")
        await cloud.until_reported("w1", seen=5)
    assert [report_of(r.body).task_info["seen"] for r in cloud.reports] == [5, 1]


async def test_a_report_that_was_not_acknowledged_is_sent_again(
    ledger: Ledger, cloud: Cloud
) -> None:
    cloud.desired, cloud.acknowledges = {key(): desired()}, False
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await ledger.record(UID, WORKER, [worker_message(3)])
        await cloud.until_reported(WORKER, seen=3)
        cloud.acknowledges = True
        cloud.cut()
        await async_eventually("the second report", lambda: len(cloud.reports) == 2)
        await until_acknowledged(ledger)


async def test_a_refused_report_leaves_the_outbox_and_other_reports_arrive(
    ledger: Ledger, cloud: Cloud
) -> None:
    cloud.desired = {key(): desired(body_=body("bad", "good"))}
    cloud.refuse = {"bad": "no such worker"}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await ledger.record(UID, "bad", [worker_message(1)])  # type: ignore[arg-type]
        await ledger.record(UID, "good", [worker_message(2)])  # type: ignore[arg-type]
        await cloud.until_reported("good", seen=2)
        await until_acknowledged(ledger)


async def test_a_refused_task_is_answered_with_the_reason(ledger: Ledger, cloud: Cloud) -> None:
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await cloud.desire(key(), desired(body_=b"\x81\xa4name\xa1\xff"))
        await async_eventually("the answer to the task", lambda: cloud.held)
    assert "utf-8" in cloud.held[0].refusal
    assert ledger.view.task_versions == {}


async def test_a_cloud_of_an_older_epoch_is_refused(ledger: Ledger, cloud: Cloud) -> None:
    cloud.epoch = 7
    async with linked(ledger, cloud) as link:
        await cloud.until_synced()
        cloud.epoch, cloud.desired = 6, {key(): desired()}
        cloud.cut()
        await async_eventually(
            "the refusal of the older epoch",
            lambda: "epoch 6 is older than 7" in link.state.last_error,
        )
    assert (ledger.view.epoch, ledger.view.task_versions) == (7, {})


GREETINGS: dict[str, bytes | str] = {
    "noise": b"\xc1\xff\x00",
    "half a frame": wire.encode(wire.Welcome(1, 1, "s"))[0][:-2],
    "an unexpected frame": wire.encode(wire.Synced(1, []))[0],
    "a version that was not offered": wire.encode(wire.Welcome(99, 1, "s"))[0],
    "text": "hello",
    "a frame that is too long": bytes(wire.MAX_FRAME_BYTES + 1),
    "nothing": "",
}


@pytest.mark.parametrize("case", GREETINGS)
async def test_invalid_bytes_from_the_server_end_only_the_session(
    case: str, ledger: Ledger, cloud: Cloud
) -> None:
    cloud.greeting = GREETINGS[case]
    timing = Timing(opening_s=0.3, beat_s=5.0, silence_s=10.0)
    async with linked(ledger, cloud, timing=timing) as link:
        await async_eventually("a second failure", lambda: link.state.failures >= 2)
        cloud.greeting = None
        await cloud.until_synced()
        await async_eventually("a session", lambda: link.state.connected)


async def test_a_cloud_killed_amid_an_assignment_changes_no_held_task(
    ledger: Ledger, cloud: Cloud
) -> None:
    cloud.desired = {key(): desired()}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        chunks = wire.encode(wire.Assign(9, key(), UID, 2, bytes(600_000)))
        await cloud.sockets[-1].send(chunks[0])
        cloud.cut()
        await cloud.until_synced(2)
    assert ledger.view.task_versions == {key(): wire.TaskVersion(UID, 1)}


async def test_a_session_with_a_silent_cloud_is_ended(ledger: Ledger, cloud: Cloud) -> None:
    timing = Timing(opening_s=1.0, beat_s=0.05, silence_s=0.2)
    async with linked(ledger, cloud, timing=timing) as link:
        await async_eventually(
            "the end of the silent session", lambda: "silent" in link.state.last_error
        )


async def refused_state(ledger: Ledger, cloud: Cloud, **fields: Any) -> LinkState:
    async with linked(ledger, cloud, **fields) as link:
        await async_eventually("a failure", lambda: link.state.failures)
        return link.state


@pytest.mark.parametrize("status", [401, 403])
async def test_a_rejected_credential_is_tried_again_slowly(
    status: int, ledger: Ledger, cloud: Cloud
) -> None:
    cloud.answers = [(status, {})]
    state = await refused_state(ledger, cloud)
    assert f"credential of this node with {status}" in state.last_error
    assert state.retry_in_s >= 30


@pytest.mark.parametrize("status", [401, 403])
async def test_a_rejected_token_that_was_rotated_meanwhile_is_tried_again_soon(
    status: int, ledger: Ledger, cloud: Cloud, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("first")

    def rotate() -> None:  # after the token was read, before it is rejected
        token_file.write_text("second")

    cloud.answers, cloud.on_request = [(status, {})], rotate
    async with linked(ledger, cloud, token_file=token_file):
        await cloud.until_synced()
    assert [r["Authorization"] for r in cloud.requests] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("rotated", [False, True], ids=["same credential", "rotated"])
async def test_a_revoked_session_is_opened_again_slowly_but_with_a_new_credential(
    rotated: bool, ledger: Ledger, cloud: Cloud, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("first")
    async with linked(ledger, cloud, token_file=token_file) as link:
        await cloud.until_synced()
        if rotated:
            await asyncio.to_thread(token_file.write_text, "second")
        await cloud.sockets[-1].close(wire.Close.REVOKED, "the credential is no longer good")
        await async_eventually("a failure", lambda: link.state.failures)
        assert (link.state.retry_in_s < 1) == rotated


async def test_retry_after_is_honoured(ledger: Ledger, cloud: Cloud) -> None:
    cloud.answers = [(503, {"Retry-After": "17"})]
    assert (await refused_state(ledger, cloud)).retry_in_s == 17


async def test_a_retry_after_of_days_is_cut(ledger: Ledger, cloud: Cloud) -> None:
    cloud.answers = [(503, {"Retry-After": "604800"})]
    assert (await refused_state(ledger, cloud)).retry_in_s == MAX_RETRY_AFTER_S


@pytest.mark.parametrize("status", [400, 404, 429, 500, 502, 504])
async def test_every_other_status_is_tried_again_soon(
    status: int, ledger: Ledger, cloud: Cloud
) -> None:
    cloud.answers = [(status, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})]
    async with linked(ledger, cloud):
        await cloud.until_synced()


async def test_a_replaced_session_is_opened_again_slowly(ledger: Ledger, cloud: Cloud) -> None:
    async with linked(ledger, cloud) as link:
        await cloud.until_synced()
        await cloud.sockets[-1].close(wire.Close.REPLACED, "another LocalController")
        await async_eventually("a failure", lambda: link.state.failures)
        assert link.state.retry_in_s >= 30
        assert "4001" in link.state.last_error


async def test_the_token_is_read_for_each_connection(
    ledger: Ledger, cloud: Cloud, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("first\n")
    async with linked(ledger, cloud, token_file=token_file):
        await cloud.until_synced()
        await asyncio.to_thread(token_file.write_text, "second")
        cloud.cut()
        await cloud.until_synced(2)
    assert [r["Authorization"] for r in cloud.requests] == ["Bearer first", "Bearer second"]
    assert {request["Edgeai-Node"] for request in cloud.requests} == {"edge-1"}


BAD_TOKENS = {"two words": b"a b", "two lines": b"a\r\nX: y", "empty": b"", "binary": b"\xff\xfe"}


@pytest.mark.parametrize("case", BAD_TOKENS)
async def test_an_invalid_token_file_is_named(
    case: str, ledger: Ledger, cloud: Cloud, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_bytes(BAD_TOKENS[case])
    state = await refused_state(ledger, cloud, token_file=token_file)
    assert str(token_file) in state.last_error
    assert state.retry_in_s == FILES_S
    assert cloud.requests == []


async def test_a_server_that_is_no_global_manager_is_recognised(ledger: Ledger) -> None:
    async with running_cloud() as cloud:
        assert cloud._server is not None
        cloud.answers = [(200, {})]
        state = await refused_state(ledger, cloud)
        assert "200" in state.last_error


async def test_a_new_ledger_gets_a_new_session_at_once(ledger: Ledger, cloud: Cloud) -> None:
    cloud.desired = {key(): desired()}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await asyncio.to_thread(ledger.file.replace_damaged, "for the test")
        with contextlib.suppress(Exception):
            await ledger.count_unacked()
        await cloud.until_synced(2)
        await async_eventually("the task", lambda: ledger.view.task_versions)
    first, second = cloud.hellos
    assert first.instance != second.instance
    assert second.tasks == {}


def growing_delays() -> Delays:
    """Delays without chance: 0.01 s after the first failure, twice as much after each other one."""
    growing = Backoff(base_s=0.01, max_s=60.0, uniform=lambda _low, high: high)
    return Delays(usual=growing, rival=growing, credential_s=30)


async def test_after_a_complete_desired_set_delays_are_short_again(
    ledger: Ledger, cloud: Cloud
) -> None:
    cloud.answers = [(500, {})] * 4
    async with linked(ledger, cloud, delays=growing_delays()) as link:
        await cloud.until_synced()
        assert link.state.failures == 4
        cloud.cut()
        await async_eventually("a fifth failure", lambda: link.state.failures == 5)
        assert link.state.retry_in_s == pytest.approx(0.01)


async def test_a_cloud_that_crashes_after_each_welcome_is_dialled_less_and_less(
    ledger: Ledger, cloud: Cloud
) -> None:
    (cloud.greeting,) = wire.encode(wire.Welcome(wire.VERSIONS[-1], 1, "s"))
    async with linked(ledger, cloud, delays=growing_delays()) as link:
        for failures in range(1, 5):
            await async_eventually("a session", lambda: link.state.connected)
            cloud.cut()
            await async_eventually("its end", lambda: not link.state.connected)
            assert link.state.failures == failures
            assert link.state.retry_in_s == pytest.approx(0.01 * 2 ** (failures - 1))


async def test_delays_spread_and_stay_within_their_bounds() -> None:
    delays = default_delays(min_s=1.0, max_s=60.0)
    usual = [delays.usual.next_s() for _ in range(200)]
    assert min(usual) >= 0.2
    assert max(usual) <= 60
    assert len(set(usual)) > 150
    assert min(delays.rival.next_s() for _ in range(50)) >= 30


class NoListener:
    def on_welcomed(self, welcomed: wire.Welcome) -> None: ...

    def on_synced(self) -> None: ...

    def on_report_settled(self, report: ReportAcked) -> None: ...


async def test_a_cloud_that_stops_reading_is_left_in_bounded_time(
    ledger: Ledger, cloud: Cloud
) -> None:
    """The socket to such a cloud fills up; then neither a send nor a close frame gets through."""
    workers = [WorkerName(f"w{n}") for n in range(64)]
    cloud.desired = {key(): desired(body_=body(*workers))}
    with socket.create_connection(("127.0.0.1", cloud.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ws = await connect(cloud.url, sock=connection, subprotocols=[Subprotocol(wire.SUBPROTOCOL)])
        conversation = Conversation(ws, ledger, NoListener(), timing=TIMING, send_s=0.2)
        running = asyncio.create_task(conversation.run(), name="conversation")
        await cloud.until_synced()
        cloud.sockets[-1].transport.pause_reading()
        for worker in workers:
            await ledger.record(UID, worker, [worker_message(1, details={"log": "x" * 60_000})])
        with pytest.raises(SessionEnded, match=r"nothing could be sent for 0\.2 s"):
            await asyncio.wait_for(running, PATIENCE_S)
        assert ws.transport.is_closing()
        await asyncio.wait_for(conversation.close(), PATIENCE_S)


async def test_without_disk_space_nothing_is_acknowledged_and_then_all_in_order(
    ledger: Ledger,
    cloud: Cloud,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    logged = ""

    def tries() -> int:
        nonlocal logged
        logged += capsys.readouterr().out
        return (logged + caplog.text).count("cannot commit")

    async with linked(ledger, cloud, retry_commit_s=0.01):
        await cloud.until_synced()
        with full_disk():
            for name in ("a", "b"):
                await cloud.desire(key(name), desired(uid=name))
            await async_eventually("a third try", lambda: tries() >= 3)
            assert (cloud.held, ledger.view.task_versions) == ([], {})
        await async_eventually("two acknowledgements", lambda: len(cloud.held) == 2)
    assert [(held.key, held.refusal) for held in cloud.held] == [(key("a"), ""), (key("b"), "")]
    assert set(ledger.view.task_versions) == {key("a"), key("b")}
