"""The end of a federation: whoever is killed then, the result is saved and everybody gets it."""

import signal
from subprocess import Popen
from typing import Final

import pytest

from tests.edgeai.worker.federated.conftest import Workers
from tests.edgeai.worker.federated.test_federation import DATA, MEAN_OF_ALL
from tests.support.waiting import PATIENCE_S

RECORD: Final = "state.msgpack"  # all that a federation leaves behind
MEAN_OF_A_AND_B: Final = (10 + 80) / 30
NEVER_S: Final = 3 * PATIENCE_S  # a test that waits for this fails


def exit_codes(*processes: Popen[bytes]) -> list[int]:
    return [process.wait(PATIENCE_S) for process in processes]


def start_aggregator(
    workers: Workers, participants: int = 2, *, gone_after_s: float = NEVER_S
) -> Popen[bytes]:
    given = ("aggregator", 2, participants, participants)
    return workers.start("aggregator", *given, gone_after_s=gone_after_s)


def start_trainer(workers: Workers, name: str, seconds: float = 0.0) -> Popen[bytes]:
    return workers.start(name, "trainer", seconds, *DATA[name])


# ---- the aggregator is killed -------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["set_weights", "save"], ids=["before it saves", "while it saves"]
)
def test_an_aggregator_that_is_killed_saves_again_and_serves_those_who_wait(
    workers: Workers, method: str
) -> None:
    """One trainer cannot come for the result before the kill: it is waited for.

    Who took it from the first, and could not say so, is soon taken for gone.
    """
    given = ("ending-aggregator", method, 2, 3, 3)
    aggregator = workers.start("aggregator", *given, gone_after_s=NEVER_S)
    stopped = start_trainer(workers, "a")
    others = [start_trainer(workers, name, 0.5) for name in ("b", "c")]
    workers.says("aggregator", "update received: name=a round=2")
    stopped.send_signal(signal.SIGSTOP)
    assert exit_codes(aggregator) == [-signal.SIGKILL]
    assert "model-3" in workers.kept()
    workers.log("aggregator").unlink()
    aggregator = start_aggregator(workers, 3, gone_after_s=5.0)
    workers.says("aggregator", "aggregator listens")
    stopped.send_signal(signal.SIGCONT)
    assert exit_codes(stopped, *others, aggregator) == [0] * 4
    assert workers.final() == pytest.approx([MEAN_OF_ALL] * 3)
    assert workers.kept() == {RECORD}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_who_is_ended_before_everybody_has_the_result_is_not_done(
    workers: Workers, number: signal.Signals
) -> None:
    aggregator = start_aggregator(workers)
    others = (
        start_trainer(workers, "a"),
        workers.start("b", "ending-trainer", "save", *DATA["b"]),
    )
    assert exit_codes(*others) == [0, -signal.SIGKILL]
    aggregator.send_signal(number)
    assert exit_codes(aggregator) != [0]
    assert "model-3" in workers.kept()
    aggregator = start_aggregator(workers)
    assert exit_codes(start_trainer(workers, "b"), aggregator) == [0, 0]
    assert workers.final() == pytest.approx([MEAN_OF_A_AND_B] * 3)
    assert workers.kept() == {RECORD}


def federate(workers: Workers) -> None:
    """A whole federation of two."""
    trainers = [start_trainer(workers, name) for name in ("a", "b")]
    assert exit_codes(start_aggregator(workers), *trainers) == [0] * 3


def test_one_that_is_started_again_after_the_end_waits_for_nobody(workers: Workers) -> None:
    """As after a kill between the end and the exit; the result stays as it is."""
    federate(workers)
    before = workers.model("aggregator").stat()
    assert workers.kept() == {RECORD}
    assert exit_codes(start_aggregator(workers)) == [0]
    assert workers.model("aggregator").stat() == before
    workers.says("aggregator", "the federation is over")


def test_one_that_was_killed_as_it_cleaned_up_ends_that_first(workers: Workers) -> None:
    """The record comes before the removal, which may have been cut at any file."""
    federate(workers)
    (workers.state_dir / "model-3").write_bytes(b"not removed yet")
    (workers.state_dir / "updates-3").mkdir()
    assert exit_codes(start_aggregator(workers)) == [0]
    assert workers.kept() == {RECORD}


# ---- a trainer is killed, or fails --------------------------------------------------------------


@pytest.mark.parametrize("end", [("ending-trainer", "save"), ("failing-trainer",)], ids="".join)
def test_a_trainer_that_ends_with_the_result_in_hand_finds_it_again(
    workers: Workers, end: tuple[str, ...]
) -> None:
    aggregator = start_aggregator(workers)
    other, ended = start_trainer(workers, "a"), workers.start("b", *end, *DATA["b"])
    assert exit_codes(other) == [0]
    assert exit_codes(ended) != [0]
    assert aggregator.poll() is None
    assert exit_codes(start_trainer(workers, "b"), aggregator) == [0, 0]


@pytest.mark.parametrize(
    ("gone_after_s", "linger_s"),
    [pytest.param(2.0, NEVER_S, id="it is gone"), pytest.param(NEVER_S, 1.0, id="all linger")],
)
def test_a_trainer_that_does_not_come_for_the_result_is_not_waited_for_for_ever(
    workers: Workers, gone_after_s: float, linger_s: float
) -> None:
    aggregator = workers.start(
        *("aggregator", "aggregator", 2, 2, 2), gone_after_s=gone_after_s, linger_s=linger_s
    )
    others = (
        start_trainer(workers, "a"),
        workers.start("b", "ending-trainer", "save", *DATA["b"]),
    )
    assert exit_codes(*others, aggregator) == [0, -signal.SIGKILL, 0]
    assert workers.final() == pytest.approx([MEAN_OF_A_AND_B] * 3)
    assert workers.kept() == {RECORD}
