"""The thread that says "I am still here": in which rhythm, until when, whatever goes wrong."""

import time
from collections.abc import Callable, Iterator

import pytest

from edgeai.worker.federated.client import Heartbeat
from tests.edgeai.worker.federated.conftest import is_waiting
from tests.support.waiting import PATIENCE_S, eventually

NEVER_S = 3600.0
MakeHeartbeat = Callable[[Callable[[], None]], Heartbeat]


@pytest.fixture
def heartbeat() -> Iterator[MakeHeartbeat]:
    made: list[Heartbeat] = []

    def make(beat: Callable[[], None]) -> Heartbeat:
        made.append(Heartbeat(beat))
        return made[-1]

    yield make
    for each in made:
        each.close(PATIENCE_S)


def wait_until_it_waits(heartbeat: Heartbeat) -> None:
    thread = heartbeat._thread
    assert thread is not None
    eventually("a thread that waits for the next beat", lambda: is_waiting(thread))


def test_a_beat_that_fails_is_told_and_does_not_end_the_others(
    heartbeat: MakeHeartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    beats: list[None] = []

    def beat() -> None:
        beats.append(None)
        raise RuntimeError("no more threads")

    heartbeat(beat).set_period(0.01)
    eventually("three beats", lambda: len(beats) > 2)
    assert "a beat failed" in caplog.text
    assert "RuntimeError: no more threads" in caplog.text


def test_another_period_counts_from_when_it_is_told(heartbeat: MakeHeartbeat) -> None:
    beats: list[None] = []
    made = heartbeat(lambda: beats.append(None))
    made.set_period(NEVER_S)
    wait_until_it_waits(made)
    made.set_period(NEVER_S)
    wait_until_it_waits(made)
    assert beats == []
    made.set_period(0.01)
    eventually("two beats", lambda: len(beats) > 1)


def test_it_is_closed_at_once_between_two_beats(heartbeat: MakeHeartbeat) -> None:
    beats: list[None] = []
    made = heartbeat(lambda: beats.append(None))
    made.set_period(NEVER_S)
    wait_until_it_waits(made)
    before_s = time.monotonic()
    made.close(PATIENCE_S)
    assert time.monotonic() - before_s < PATIENCE_S / 2
    assert beats == []
