"""The thread that says "I am still here": in which rhythm, until when, whatever goes wrong."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.workersdk.federated.conftest import PATIENCE_S, eventually
from workersdk.federated.heartbeat import Heartbeat

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


def a_while() -> None:
    """In which the thread comes to wait, and a beat would come that is not due."""
    threading.Event().wait(0.1)


def test_a_beat_that_fails_is_told_and_does_not_end_the_others(
    heartbeat: MakeHeartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    beats: list[None] = []

    def beat() -> None:
        beats.append(None)
        raise RuntimeError("no more threads")

    heartbeat(beat).keep(0.01)
    eventually(lambda: len(beats) > 2)
    assert "a beat failed" in caplog.text
    assert "RuntimeError: no more threads" in caplog.text


def test_another_period_counts_from_when_it_is_told(heartbeat: MakeHeartbeat) -> None:
    beats: list[None] = []
    made = heartbeat(lambda: beats.append(None))
    made.keep(NEVER_S)
    a_while()
    made.keep(NEVER_S)
    a_while()
    assert beats == []
    made.keep(0.01)
    eventually(lambda: len(beats) > 1)


def test_it_is_closed_at_once_between_two_beats(heartbeat: MakeHeartbeat) -> None:
    beats: list[None] = []
    made = heartbeat(lambda: beats.append(None))
    made.keep(NEVER_S)
    a_while()
    before_s = time.monotonic()
    made.close(PATIENCE_S)
    assert time.monotonic() - before_s < PATIENCE_S / 2
    assert beats == []
