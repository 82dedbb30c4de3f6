"""Which processes of a worker may still speak."""

from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.outbox import WorkerKey
from localcontroller.workers.intake import MAX_SPEAKERS, SPEAKS_WITHIN_S, Speakers
from tests.support.clock import Clock

DIGITS = WorkerKey(Uid("u1"), WorkerName("digits"))
FACES = WorkerKey(Uid("u2"), WorkerName("faces"))


def test_after_a_start_every_process_may_speak() -> None:
    clock = Clock()
    speakers = Speakers(clock)
    clock.now_s += SPEAKS_WITHIN_S - 1
    assert speakers.note(DIGITS, ["p1"])("unheard")
    clock.now_s += 2
    assert not speakers.note(DIGITS, ["p1"])("unheard")


def test_a_process_that_was_silent_for_long_does_not_speak_any_more() -> None:
    clock = Clock()
    speakers = Speakers(clock)
    clock.now_s += SPEAKS_WITHIN_S + 1
    speakers.note(DIGITS, ["p1", "p2"])
    clock.now_s += SPEAKS_WITHIN_S - 1
    may_speak = speakers.note(DIGITS, ["p2", "p3"])
    assert [may_speak(name) for name in ("p1", "p2", "p3")] == [True, True, True]
    clock.now_s += 2
    may_speak = speakers.note(DIGITS, ["p3"])
    assert [may_speak(name) for name in ("p1", "p2", "p3")] == [False, True, True]


def test_workers_are_apart_and_silent_ones_are_forgotten() -> None:
    clock = Clock()
    speakers = Speakers(clock)
    clock.now_s += SPEAKS_WITHIN_S + 1
    speakers.note(DIGITS, ["p1"])
    assert not speakers.note(FACES, ["p2"])("p1")
    clock.now_s += SPEAKS_WITHIN_S + 1
    speakers.note(FACES, ["p2"])
    assert list(speakers._last_s) == [FACES]


def test_what_a_worker_can_make_us_remember_is_bounded() -> None:
    speakers = Speakers(Clock())
    for number in range(2 * MAX_SPEAKERS):
        speakers.note(DIGITS, [f"p{number}"])
    assert len(speakers._last_s[DIGITS]) == MAX_SPEAKERS
