"""The link against a real WebSocket server that speaks the cloud's end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from common import wire
from common.backoff import Backoff
from common.session import Timing
from localcontroller.ledger.ledger import Ledger
from localcontroller.link import conversation
from localcontroller.link.credentials import Credentials
from localcontroller.link.link import Delays, Endpoint, Link, LinkState, default_delays
from localcontroller.metrics import Metrics
from tests.localcontroller.builders import (
    TIMING,
    UID,
    WORKER,
    body,
    desired,
    key,
    report_of,
    said,
    until,
)
from tests.localcontroller.cloud import Cloud, running_cloud


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    async with running_cloud() as cloud:
        yield cloud


def quick_delays() -> Delays:
    """Reconnects at once, but for what only a person can help."""
    quick = Backoff(base_s=0.01, max_s=0.05)
    return Delays(usual=quick, replaced=Backoff(base_s=60, max_s=60, floor_s=30), credential_s=30)


@contextlib.asynccontextmanager
async def linked(ledger: Ledger, cloud: Cloud, **fields: Any) -> AsyncIterator[Link]:
    delays = fields.pop("delays", None) or quick_delays()
    timing = fields.pop("timing", TIMING)
    endpoint = Endpoint(url=cloud.url, node="edge-1", credentials=Credentials(**fields))
    link = Link(endpoint, ledger, Metrics(), timing=timing, delays=delays)
    task = asyncio.create_task(link.run(), name="link")
    try:
        yield link
        assert not task.done()  # it never dies
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_what_is_desired_is_held_and_acknowledged(ledger: Ledger, cloud: Cloud) -> None:
    cloud.desired = {key(f"t{n}"): desired(uid=f"uid-{n}") for n in range(200)}
    async with linked(ledger, cloud):
        await cloud.until_synced()
    assert set(ledger.view.held) == set(cloud.desired)
    assert len(cloud.held) == 200


async def test_a_task_of_megabytes_arrives(ledger: Ledger, cloud: Cloud) -> None:
    big = body(spec={"x": "y" * 2_000_000})
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await cloud.desire(key(), desired(body_=big))
        await until(lambda: ledger.view.held)


async def test_changes_come_down_while_the_session_lives(ledger: Ledger, cloud: Cloud) -> None:
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await cloud.desire(key(), desired())
        await until(lambda: ledger.view.held == {key(): wire.Held(UID, 1)})
        await cloud.desire(key(), desired(version=2))
        await until(lambda: ledger.view.held == {key(): wire.Held(UID, 2)})
        await cloud.desire(key(), None)
        await until(lambda: ledger.view.held == {})


async def test_what_changed_while_apart_is_made_up(ledger: Ledger, cloud: Cloud) -> None:
    cloud.desired = {key("a"): desired(uid="a"), key("b"): desired(uid="b")}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await cloud.stop()
        cloud.desired = {key("b"): desired(uid="b2"), key("c"): desired(uid="c")}
        await cloud.start()
        await cloud.until_synced(2)
    assert ledger.view.held == {key("b"): wire.Held("b2", 1), key("c"): wire.Held("c", 1)}
    assert [hello.held.keys() for hello in cloud.hellos] == [set(), {key("a"), key("b")}]


async def until_acknowledged(ledger: Ledger) -> None:
    """Until the cloud has taken every report; the test's own time limit bounds it."""
    while await ledger.unacked():  # noqa: ASYNC110 - the ledger tells only who asks
        await asyncio.sleep(0.005)


async def test_a_report_goes_up_and_leaves_the_outbox(ledger: Ledger, cloud: Cloud) -> None:
    cloud.desired = {key(): desired()}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await ledger.record(UID, WORKER, [said(7, status="completed")])
        await cloud.until_reported(WORKER, status="completed", seen=7)
        await until_acknowledged(ledger)


async def test_reports_wait_while_the_cloud_is_away_newest_per_worker(
    ledger: Ledger, cloud: Cloud
) -> None:
    cloud.desired = {key(): desired(body_=body("w1", "w2"))}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await cloud.stop()
        for n in range(1, 6):
            await ledger.record(UID, "w1", [said(n)])  # type: ignore[arg-type]
        await ledger.record(UID, "w2", [said(1, status="failed")])  # type: ignore[arg-type]
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
        await ledger.record(UID, WORKER, [said(3)])
        await cloud.until_reported(WORKER, seen=3)
        cloud.acknowledges = True
        cloud.cut()
        await until(lambda: len(cloud.reports) == 2)
        await until_acknowledged(ledger)


async def test_a_refused_report_is_given_up_and_harms_no_other(
    ledger: Ledger, cloud: Cloud
) -> None:
    cloud.desired = {key(): desired(body_=body("bad", "good"))}
    cloud.refuse = {"bad": "no such worker"}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await ledger.record(UID, "bad", [said(1)])  # type: ignore[arg-type]
        await ledger.record(UID, "good", [said(2)])  # type: ignore[arg-type]
        await cloud.until_reported("good", seen=2)
        await until_acknowledged(ledger)


async def test_a_refused_task_is_answered_with_the_reason(ledger: Ledger, cloud: Cloud) -> None:
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await cloud.desire(key(), desired(body_=b"\x81\xa4name\xa1\xff"))
        await until(lambda: cloud.held)
    assert "utf-8" in cloud.held[0].refused
    assert ledger.view.held == {}


async def test_the_epoch_is_kept_and_an_older_cloud_is_turned_away(
    ledger: Ledger, cloud: Cloud
) -> None:
    cloud.epoch = 7
    async with linked(ledger, cloud) as link:
        await cloud.until_synced()
        cloud.epoch, cloud.desired = 6, {key(): desired()}
        cloud.cut()
        await until(lambda: "epoch 6 is older than 7" in link.state.last_error)
    assert (ledger.view.epoch, ledger.view.held) == (7, {})


GREETINGS: dict[str, bytes | str] = {
    "noise": b"\xc1\xff\x00",
    "half a frame": wire.encode(wire.Welcome(1, 1, "s"))[0][:-2],
    "a frame of the wrong moment": wire.encode(wire.Synced(1, []))[0],
    "a version that was not offered": wire.encode(wire.Welcome(99, 1, "s"))[0],
    "text": "hello",
    "more than a frame may have": bytes(wire.MAX_FRAME_BYTES + 1),
    "nothing": "",
}


@pytest.mark.parametrize("case", GREETINGS)
async def test_nonsense_from_the_server_ends_the_session_and_no_more(
    case: str, ledger: Ledger, cloud: Cloud
) -> None:
    cloud.greeting = GREETINGS[case]
    timing = Timing(opening_s=0.3, beat_s=5.0, silence_s=10.0)
    async with linked(ledger, cloud, timing=timing) as link:
        await until(lambda: link.state.failures >= 2)
        cloud.greeting = None
        await cloud.until_synced()
        await until(lambda: link.state.connected)


async def test_a_cloud_killed_in_the_middle_of_a_task_leaves_what_was_held(
    ledger: Ledger, cloud: Cloud
) -> None:
    cloud.desired = {key(): desired()}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        chunks = wire.encode(wire.Assign(9, key(), UID, 2, bytes(600_000)))
        await cloud.sockets[-1].send(chunks[0])
        cloud.cut()
        await cloud.until_synced(2)
    assert ledger.view.held == {key(): wire.Held(UID, 1)}


async def test_a_silent_cloud_is_left(ledger: Ledger, cloud: Cloud) -> None:
    timing = Timing(opening_s=1.0, beat_s=0.05, silence_s=0.2)
    async with linked(ledger, cloud, timing=timing) as link:
        await until(lambda: "silent" in link.state.last_error)


async def refused_state(ledger: Ledger, cloud: Cloud, **fields: Any) -> LinkState:
    async with linked(ledger, cloud, **fields) as link:
        await until(lambda: link.state.failures)
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
        await until(lambda: link.state.failures)
        assert (link.state.retry_in_s < 1) == rotated


async def test_retry_after_is_honoured(ledger: Ledger, cloud: Cloud) -> None:
    cloud.answers = [(503, {"Retry-After": "17"})]
    assert (await refused_state(ledger, cloud)).retry_in_s == 17


@pytest.mark.parametrize("status", [400, 404, 429, 500, 502, 504])
async def test_every_other_status_is_tried_again_soon(
    status: int, ledger: Ledger, cloud: Cloud
) -> None:
    cloud.answers = [(status, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})]
    async with linked(ledger, cloud):
        await cloud.until_synced()


async def test_being_replaced_means_to_stay_away_for_long(ledger: Ledger, cloud: Cloud) -> None:
    async with linked(ledger, cloud) as link:
        await cloud.until_synced()
        await cloud.sockets[-1].close(wire.Close.REPLACED, "another LocalController")
        await until(lambda: link.state.failures)
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
async def test_a_token_file_of_nonsense_is_named(
    case: str, ledger: Ledger, cloud: Cloud, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_bytes(BAD_TOKENS[case])
    state = await refused_state(ledger, cloud, token_file=token_file)
    assert str(token_file) in state.last_error
    assert state.retry_in_s >= 30
    assert cloud.requests == []


async def test_a_server_of_another_kind_is_recognised(ledger: Ledger) -> None:
    async with running_cloud() as cloud:
        assert cloud._server is not None
        cloud.answers = [(200, {})]
        state = await refused_state(ledger, cloud)
        assert "200" in state.last_error


async def test_a_new_ledger_is_introduced_at_once(ledger: Ledger, cloud: Cloud) -> None:
    cloud.desired = {key(): desired()}
    async with linked(ledger, cloud):
        await cloud.until_synced()
        await asyncio.to_thread(ledger._file.replace, "for the test")
        with contextlib.suppress(Exception):
            await ledger.unacked()
        await cloud.until_synced(2)
        await until(lambda: ledger.view.held)
    first, second = cloud.hellos
    assert first.instance != second.instance
    assert second.held == {}


async def test_delays_spread_and_stay_within_their_bounds() -> None:
    delays = default_delays(min_s=1.0, max_s=60.0)
    usual = [delays.usual.next_s() for _ in range(200)]
    assert min(usual) >= 0.2
    assert max(usual) <= 60
    assert len(set(usual)) > 150
    assert min(delays.replaced.next_s() for _ in range(50)) >= 30


async def test_a_stalled_cloud_is_cut_in_bounded_time(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that reads nothing fills the socket; only aborting gets away from it."""
    monkeypatch.setattr(conversation, "SEND_S", 0.3)
    names = [f"w{n}" for n in range(60)]

    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    del names, on_client


async def test_commits_are_tried_again_in_order_until_there_is_space(
    ledger: Ledger, cloud: Cloud
) -> None:
    del ledger, cloud
