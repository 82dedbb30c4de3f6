"""The pod watch as a client: what it requests, faults of the cluster's API, its token."""

import asyncio
import json
from pathlib import Path

import pytest

from edgeai.backoff import Backoff
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.builders import UID, WORKER, worker_message
from tests.localcontroller.workers.cluster_api import (
    RUNNING,
    ClusterApi,
    pod,
    until_state,
    watching,
)
from tests.support.waiting import async_eventually

# ---- faults of the API ---------------------------------------------------------------------------


async def test_only_worker_pods_of_this_node_are_requested(tasks: Ledger, api: ClusterApi) -> None:
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    async with watching(tasks, api.url):
        await api.until_watched()
    for query in api.requests:
        assert query["fieldSelector"] == "spec.nodeName=edge-1"
        assert query["labelSelector"] == "edgeai.io/uid,edgeai.io/worker"
    assert api.requests[1]["resourceVersion"] == "7"


async def test_a_list_of_many_pages_is_read_to_its_end(tasks: Ledger, api: ClusterApi) -> None:
    api.page_size = 2
    for n in range(4):
        api.pods[str(n)] = pod(f"pod-{n}", worker=f"nobody-{n}")
    api.pods["last"] = pod(phase="Failed")
    async with watching(tasks, api.url):
        await until_state(tasks, "failed")


@pytest.mark.parametrize("status", [401, 403, 404, 410, 500, 503])
async def test_an_api_that_refuses_changes_nothing_and_is_asked_again(
    status: int, tasks: Ledger, api: ClusterApi
) -> None:
    await tasks.record(UID, WORKER, [worker_message(3)])
    revision = tasks.view.revision
    api.status = status
    async with watching(tasks, api.url):
        await async_eventually("a second list", lambda: api.lists >= 2)
        assert tasks.view.revision == revision
        api.status = 200
        await api.until_watched()


async def test_an_api_that_is_down_changes_nothing(tasks: Ledger, api: ClusterApi) -> None:
    await tasks.record(UID, WORKER, [worker_message(3)])
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    backoff = Backoff(base_s=0.01, max_s=0.02)
    async with watching(tasks, api.url, min_round_s=0.01, backoff=backoff):
        await api.until_watched()
        revision = tasks.view.revision
        await api.stop()
        await async_eventually("three failures", lambda: backoff.failures >= 3)
        assert tasks.view.revision == revision
        await api.start()
        await api.until_watched()
    assert await until_state(tasks, "running") == ""


BROKEN_EVENTS = {
    "no JSON": b"<html>\n",
    "expired": b'{"type": "ERROR", "object": {"kind": "Status", "code": 410}}\n',
    "another object": b'{"type": "ADDED", "object": {"metadata": 5}}\n',
    "unknown type": b'{"type": "MOVED", "object": {}}\n',
}


@pytest.mark.parametrize("case", BROKEN_EVENTS)
async def test_a_broken_watch_begins_again(case: str, tasks: Ledger, api: ClusterApi) -> None:
    async with watching(tasks, api.url):
        await api.until_watched()
        api.pods["a"] = pod(phase="Failed")  # the watch misses this pod
        api.send(BROKEN_EVENTS[case])
        await until_state(tasks, "failed")


async def test_an_event_in_pieces_is_read_and_bookmarks_are_passed_over(
    tasks: Ledger, api: ClusterApi
) -> None:
    event = json.dumps({"type": "MODIFIED", "object": pod(phase="Failed")}).encode()
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send(b'{"type": "BOOKMARK", "object": {"metadata": {}}}\n\n' + event[:40])
        api.send(event[40:])
        api.send(b"\n")
        await until_state(tasks, "failed")
    assert api.lists == 1


async def test_an_oversized_pod_in_the_watch_hides_no_other(tasks: Ledger, api: ClusterApi) -> None:
    async with watching(tasks, api.url, max_bytes=10_000):
        await api.until_watched()
        huge = pod(name="huge", phase="Running", message="x" * 20_000)
        api.send(b'{"type": "ADDED", "object": ' + json.dumps(huge).encode()[:9_000])
        api.send(json.dumps(huge).encode()[9_000:] + b"}\n")
        api.send_event("MODIFIED", pod(phase="Failed"))
        await until_state(tasks, "failed")
    assert api.lists == 1


async def test_an_oversized_pod_in_the_list_hides_no_other(tasks: Ledger, api: ClusterApi) -> None:
    for number in range(5):
        api.pods[f"a{number}"] = pod(name=f"a{number}", phase="Pending")
    api.pods["huge"] = pod(name="huge", phase="Running", message="x" * 20_000)
    api.pods["a"] = pod(phase="Failed")
    async with watching(tasks, api.url, max_bytes=10_000):
        await until_state(tasks, "failed")
        await api.until_watched()


async def test_a_pod_that_has_grown_too_large_is_not_gone(tasks: Ledger, api: ClusterApi) -> None:
    api.pods["a"] = pod(phase="Running")
    other = pod(name="b", worker="other", phase="Running")
    async with watching(tasks, api.url, max_bytes=10_000, min_round_s=0.0):
        await api.until_watched()
        api.pods["a"] = pod(phase="Running", message="x" * 20_000)
        api.pods["b"] = other
        before = api.lists
        await api.until_watched()
        api.end_watches()
        await async_eventually("a second list", lambda: api.lists > before)
        await api.until_watched()
        assert await tasks.workers() == [], "nobody is said to be lost"


async def test_an_api_that_cannot_watch_is_polled_slowly(tasks: Ledger, api: ClusterApi) -> None:
    api.can_watch = False
    async with watching(tasks, api.url, min_round_s=0.1):
        await async_eventually("the first list", lambda: api.lists == 1)
        api.pods["a"] = pod(phase="Failed")
        began_s = asyncio.get_running_loop().time()
        await until_state(tasks, "failed")
        assert api.lists <= 2 + (asyncio.get_running_loop().time() - began_s) / 0.1


# ---- token ---------------------------------------------------------------------------------------


async def test_a_rotated_token_is_used(tasks: Ledger, api: ClusterApi, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    async with watching(tasks, api.url, file):
        await api.until_watched()
        file.write_text("new\n")
        api.status = 401
        api.send(b"?\n")
        await async_eventually("the new token", lambda: "Bearer new" in api.tokens)
    assert api.tokens[0] == "Bearer old"


BAD_TOKENS = {
    "none": None,
    "empty": b"",
    "two lines": b"hush-hush\nX-Other: 1",
    "no ASCII": b"hush-hush\xff",
    "control character": b"hush-hush\x00",
}


@pytest.mark.parametrize("case", BAD_TOKENS)
async def test_a_bad_token_file_is_named_not_quoted_and_read_again(
    case: str,
    tasks: Ledger,
    api: ClusterApi,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "token"
    content = BAD_TOKENS[case]
    if content is not None:
        file.write_bytes(content)

    async with watching(tasks, api.url, file):
        logged = ""

        def is_named() -> bool:
            nonlocal logged
            logged += capsys.readouterr().out + caplog.text
            return str(file) in logged

        await async_eventually("a log line with the name of the file", is_named)
        assert api.requests == []
        file.write_bytes(b"good")
        await api.until_watched()
    assert "hush-hush" not in logged
