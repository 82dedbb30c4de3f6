"""Traces cost nothing when they are off, and delay nothing when the collector is away."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from common.traces import CLOSE_S, Traces, Version
from edgeai.errors import SettingsError
from edgeai.ids import TaskKey, Uid

PROGRAM: Final = """
import asyncio, sys, time
from common.traces import MAX_SPANS, Traces, Version, now

async def main():
    traces, longest_s = Traces(sys.argv[1], service="s", instance="i"), 0.0
    way = Version("datasets.edgeai.io/default/faces", "uid-1", 3)
    for _ in range(2 * MAX_SPANS):
        began_s = time.perf_counter()
        traces.step("send", way, since=now(), node="edge-1")
        longest_s = max(longest_s, time.perf_counter() - began_s)
    began_s = time.perf_counter()
    await traces.close()
    print(longest_s, time.perf_counter() - began_s)

asyncio.run(main())
"""
WAY: Final = Version(TaskKey("datasets.edgeai.io/default/faces"), Uid("uid-1"), 3)
NOBODY: Final = "http://127.0.0.1:1"


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a collector that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "grpc://collector", "http://", "http://user:key@collector:1"]
)
def test_what_is_no_endpoint_is_refused_without_quoting_it(endpoint: str) -> None:
    with pytest.raises(SettingsError, match="--traces-endpoint") as refusal:
        Traces(endpoint, service="s", instance="i")
    assert "key" not in str(refusal.value)


def test_the_ids_depend_on_task_uid_and_version() -> None:
    others = [
        WAY._replace(key=TaskKey("datasets.edgeai.io/default/other")),
        WAY._replace(uid=Uid("uid-2")),
        WAY._replace(version=4),
    ]
    assert WAY.id(16) == Version(*WAY).id(16)
    assert len({each.id(16) for each in (WAY, *others)}) == 4


@pytest.mark.parametrize("away", ["nobody", "silent"])
def test_a_collector_that_is_away_delays_nothing(away: str, silent: str) -> None:
    """In a process of its own: the threads of the library go on for some seconds."""
    endpoint = silent if away == "silent" else NOBODY
    program = [sys.executable, "-c", PROGRAM, endpoint]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    longest_s, close_s = map(float, done.stdout.split())
    assert longest_s < 1.0  # on a busy machine; a wait for the collector would be SEND_S
    assert close_s < CLOSE_S + 1.0
    assert len(done.stderr.splitlines()) <= 2, done.stderr
