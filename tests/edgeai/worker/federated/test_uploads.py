"""Updates on their way into the aggregator's directory: twice, half, too long, too late."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.worker.federated import protocol
from edgeai.worker.federated.aggregations import FedAvg
from edgeai.worker.federated.protocol import Commit, Damaged
from edgeai.worker.federated.store import RoundOver
from tests.edgeai.worker.federated.conftest import disk_of, running
from tests.edgeai.worker.federated.test_store import (
    PLAIN,
    TWO_PIECES,
    offer,
    seeded,
    send,
    vector,
    write,
)
from tests.support.waiting import PATIENCE_S

# ---- pieces that come twice, or half, or are too many --------------------------------------------


def test_a_piece_that_comes_twice_counts_once(opened: Any) -> None:
    store = seeded(opened(), numbers=TWO_PIECES)
    update = np.arange(TWO_PIECES, dtype=np.float32)
    checksum, _ = offer(store, "a", update)
    for piece, data in enumerate(protocol.wire_parts(update, PLAIN)):
        write(store, piece, data)
        write(store, piece, data)
    store.commit(1, "a", Commit(checksum, 1))


def test_half_a_piece_that_a_full_disk_left_is_written_over(opened: Any) -> None:
    store = seeded(opened(), numbers=TWO_PIECES)
    update = np.arange(TWO_PIECES, dtype=np.float32)
    first, second = protocol.wire_parts(update, PLAIN)
    checksum, _ = offer(store, "a", update)
    with disk_of(len(first) // 2), pytest.raises(OSError, match="File too large"):
        write(store, 0, first)
    write(store, 0, first)
    write(store, 1, second)
    store.commit(1, "a", Commit(checksum, 1))


@pytest.mark.parametrize("numbers", [1, TWO_PIECES], ids=["a bit", "as much again"])
def test_what_is_longer_than_an_update_is_cut(opened: Any, tmp_path: Path, numbers: int) -> None:
    store = seeded(opened(), numbers=TWO_PIECES)
    update = vector(2, TWO_PIECES)
    offer(store, "a", update)
    for piece, data in enumerate(protocol.wire_parts(update, PLAIN)):
        write(store, piece, data)
    with (tmp_path / "state" / "updates-1" / "a.part").open("ab") as part:
        part.write(vector(3, numbers).tobytes())
    again = opened()
    assert offer(again, "a", update)[1] == 2
    commit = send(again, "a", update, samples=1)
    assert again.commits() == {"a": commit}


# ---- a commit that is said again, and one that comes too late -----------------------------------


class Checking:
    """A disk on which the first check of an update hangs until `go`: it asks for the size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begins, self.go = threading.Event(), threading.Event()
        self._fstat = os.fstat
        monkeypatch.setattr(os, "fstat", self._slow)

    def _slow(self, descriptor: int) -> os.stat_result:
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        if name == "a.part" and not self.begins.is_set():
            self.begins.set()
            self.go.wait(PATIENCE_S)
        return self._fstat(descriptor)


def test_a_commit_that_is_said_again_while_it_is_checked_is_a_success(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large model: the first answer was not waited for. The second one is quicker."""
    store = seeded(opened())
    checksum, _ = offer(store, "a", vector(1))
    write(store, 0, protocol.to_wire(vector(1), PLAIN))
    commit, checking = Commit(checksum, 1), Checking(monkeypatch)
    with running(lambda: store.commit(1, "a", commit)) as results:
        assert checking.begins.wait(PATIENCE_S)
        try:
            store.commit(1, "a", commit)
        finally:
            checking.go.set()
    assert results == [None]
    assert store.commits() == {"a": commit}


def test_an_update_that_is_not_whole_is_told_as_such_to_whoever_commits_it_twice(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = seeded(opened())
    checksum, _ = offer(store, "a", vector(1))
    checking = Checking(monkeypatch)
    commit = Commit(checksum, 1)
    with running(lambda: store.commit(1, "a", commit), may_raise=Damaged) as results:
        assert checking.begins.wait(PATIENCE_S)
        with pytest.raises(Damaged, match="send the rest first"):
            store.commit(1, "a", commit)
        checking.go.set()
    assert "send the rest first" in str(results[0])


def test_after_the_last_round_no_update_is_taken(opened: Any) -> None:
    store = seeded(opened())
    send(store, "a", vector(1), samples=1)
    store.aggregate(FedAvg(), is_last=True)
    for each in (store, opened()):
        with pytest.raises(RoundOver, match="round 2 is over"):
            offer(each, "a", vector(1), round_=2)
