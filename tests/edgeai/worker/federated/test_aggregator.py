"""The aggregator's decisions, asked for without a socket."""

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.worker.federated import protocol
from edgeai.worker.federated.aggregations import FedAvg
from edgeai.worker.federated.aggregator import Aggregator, Refused, RoundResult
from edgeai.worker.federated.layout import Layout, TensorLayout, Weights
from edgeai.worker.federated.protocol import Commit, Join
from edgeai.worker.federated.rounds import FIRST, SEED
from edgeai.worker.federated.store import RoundStore
from tests.edgeai.worker.federated.conftest import is_waiting, running
from tests.edgeai.worker.federated.test_federation import settings
from tests.edgeai.worker.federated.test_store import PLAIN, layout, vector
from tests.support.waiting import PATIENCE_S, eventually

NUMBERS = 4
WEIGHTS: Weights = [np.zeros(NUMBERS, dtype=np.float32)]
LAYOUT = Layout((TensorLayout("0", (NUMBERS,), "float32"),))


def joined(store: RoundStore, *names: str, **options: Any) -> Aggregator:
    """In its first round, from zeros, with these participants."""
    made = Aggregator(store, FedAvg(), settings(len(names), **options))
    made.seed(WEIGHTS)
    for name in names:
        made.join(name, Join(LAYOUT, name))
    return made


def send(
    aggregator: Aggregator, name: str, value: float = 1.0, *, round_: int = FIRST, **said: Any
) -> None:
    update = vector(value, NUMBERS)
    offer = protocol.offer_of(protocol.wire_parts(update, PLAIN))
    aggregator.offer(name, round_, offer)
    piece = protocol.packed(protocol.to_wire(update, PLAIN), PLAIN)
    aggregator.receive(name, round_, 0, piece)
    aggregator.commit(name, round_, Commit(offer.checksum, 1, said))


def goes_on(_result: RoundResult) -> bool:
    return False


def refused(status: int, work: Callable[[], Any]) -> str:
    """In which words."""
    with pytest.raises(Refused) as raised:
        work()
    assert raised.value.status == status
    return raised.value.problem


# ---- what is sent and served --------------------------------------------------------------------


def test_only_the_model_of_the_round_is_served(opened: Any) -> None:
    aggregator = joined(opened(), "a")
    assert len(aggregator.model_piece(FIRST, 0)) == protocol.CRC_BYTES + 4 * NUMBERS
    for round_ in (SEED, FIRST + 1):
        says = refused(409, partial(aggregator.model_piece, round_, 0))
        assert says == f"round {round_} is over"


def test_a_number_that_is_none_is_named_in_the_last_piece(opened: Any) -> None:
    first = np.zeros(protocol.PIECE_NUMBERS, dtype=np.float32)
    aggregator = Aggregator(opened(), FedAvg(), settings(1))
    aggregator.seed([first, first[:2]])
    aggregator.join("a", Join(opened().state.layout, "a"))
    last = np.array([0.0, np.nan], dtype=np.float32)
    piece = protocol.packed(protocol.to_wire(last, PLAIN), PLAIN)
    says = refused(422, lambda: aggregator.receive("a", FIRST, 1, piece))
    assert says == "tensor 1 [2] float32 holds nan at 1"


def test_a_metric_of_somebody_without_samples_does_not_end_the_round(opened: Any) -> None:
    aggregator = joined(opened(), "full", "empty", min_participants=1)
    send(aggregator, "full", loss=2.0)
    aggregator.commit("empty", FIRST, Commit("", 0, {"error": 5.0, "loss": 9.0}))
    result = aggregator.close_round(goes_on)
    assert result.samples == {"empty": 0, "full": 1}
    assert result.metrics["loss"] == 2.0


# ---- waiting ------------------------------------------------------------------------------------


def seconds_of(work: Callable[[], Any]) -> float:
    before_s = time.monotonic()
    work()
    return time.monotonic() - before_s


def test_nobody_waits_in_one_request_for_as_long_as_it_likes(
    opened: Any,
) -> None:
    aggregator = Aggregator(opened(), FedAvg(), settings(1), max_wait_s=0.1)
    aggregator.seed(WEIGHTS)
    aggregator.join("a", Join(LAYOUT, "a"))
    waited_s = seconds_of(lambda: aggregator.state_for("a", after=FIRST, wait_s=PATIENCE_S))
    assert 0.1 <= waited_s < PATIENCE_S / 2


def test_who_leaves_is_waited_for_no_longer(opened: Any) -> None:
    aggregator = joined(opened(), "a")

    def wait() -> float:
        return seconds_of(lambda: aggregator.wait_until_all_left(PATIENCE_S))

    before = set(threading.enumerate())
    with running(wait) as results:
        (waiting,) = set(threading.enumerate()) - before
        eventually("somebody who waits for them to leave", lambda: is_waiting(waiting))
        aggregator.leave("a")
    assert results[0] < PATIENCE_S / 2


# ---- the first weights --------------------------------------------------------------------------


def test_a_join_while_the_first_weights_are_taken_up_is_no_failure_of_the_disk(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks who has sent any, as their files are removed."""
    aggregator = Aggregator(opened(), FedAvg(), settings(1))
    aggregator.join("a", Join(layout(NUMBERS), "old"))
    begins, looks, sync, read = threading.Event(), threading.Event(), os.fsync, Path.read_bytes

    def fsync(descriptor: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).name == "model-1.new":
            begins.set()
            looks.wait(PATIENCE_S)
        sync(descriptor)

    def read_bytes(path: Path) -> bytes:
        if begins.is_set() and path.name == "a.commit":
            looks.set()
            time.sleep(0.3)  # a slow disk, in which the file could go
        return read(path)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with running(lambda: send(aggregator, "a", round_=SEED)):
        assert begins.wait(PATIENCE_S)
        try:
            aggregator.join("a", Join(layout(NUMBERS), "new"))
        finally:
            looks.set()
    assert opened().state.round == FIRST
