"""The aggregator's directory: what is kept, what a kill in between leaves, what is refused."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.worker.errors import AggregationError, WeightsError
from edgeai.worker.federated import protocol
from edgeai.worker.federated.aggregations import Aggregation, FedAvg, FedAvgM, Slice
from edgeai.worker.federated.layout import Layout, TensorLayout, Vector
from edgeai.worker.federated.protocol import Commit, Damaged, Data, Encoding
from edgeai.worker.federated.rounds import SEED
from edgeai.worker.federated.store import NotFinite, RoundOver, RoundStore
from edgeai.worker.federated.vectors import SLICE_BYTES

PLAIN = Encoding()
TWO_PIECES = protocol.PIECE_NUMBERS + 5


def layout(numbers: int) -> Layout:
    return Layout((TensorLayout("w", (numbers,), "float32"),))


def vector(value: float, numbers: int = 4) -> Vector:
    return np.full(numbers, value, dtype=np.float32)


def seeded(store: RoundStore, value: float = 0.0, numbers: int = 4) -> RoundStore:
    store.seed(vector(value, numbers), layout(numbers))
    return store


def offer(store: RoundStore, name: str, update: Vector, round_: int = 1) -> tuple[str, int]:
    made = protocol.offer_of(protocol.wire_parts(update, store.state.encoding))
    return made.checksum, store.offer(round_, name, made)


def write(store: RoundStore, piece: int, data: Data, name: str = "a", *, round_: int = 1) -> None:
    store.write_piece(round_, name, piece, data, protocol.crc(data))


def send(store: RoundStore, name: str, update: Vector, *, samples: int, round_: int = 1) -> Commit:
    checksum, received = offer(store, name, update, round_)
    for piece, data in enumerate(protocol.wire_parts(update, store.state.encoding)):
        if piece >= received:
            write(store, piece, data, name, round_=round_)
    commit = Commit(checksum, samples)
    store.commit(round_, name, commit)
    return commit


def test_a_round_becomes_the_next_model(opened: Any) -> None:
    store = seeded(opened())
    send(store, "a", vector(1), samples=1)
    send(store, "b", vector(5), samples=3)
    store.aggregate(FedAvg(), is_last=False)
    assert store.state.round == 2
    assert store.model().tolist() == [4.0] * 4
    assert store.commits() == {}


def test_all_that_counts_is_there_after_a_restart(opened: Any) -> None:
    store = seeded(opened(), 7.0)
    commit = send(store, "a", vector(1), samples=2)
    again = opened()
    assert (again.state.round, again.state.layout) == (1, layout(4))
    assert again.model().tolist() == [7.0] * 4
    assert again.commits() == {"a": commit}


def test_an_upload_goes_on_where_it_stopped(opened: Any) -> None:
    store = seeded(opened(), numbers=TWO_PIECES)
    update = np.arange(TWO_PIECES, dtype=np.float32)
    first, second = protocol.wire_parts(update, PLAIN)
    assert offer(store, "a", update)[1] == 0
    write(store, 0, first)
    again = opened()
    checksum, received = offer(again, "a", update)
    assert received == 1
    write(again, 1, second)
    again.commit(1, "a", Commit(checksum, 1))
    again.aggregate(FedAvg(), is_last=True)
    np.testing.assert_array_equal(again.model(), update)


def test_half_a_piece_is_cut_off(opened: Any, tmp_path: Path) -> None:
    store = seeded(opened(), numbers=TWO_PIECES)
    update = vector(2, TWO_PIECES)
    offer(store, "a", update)
    write(store, 0, next(protocol.wire_parts(update, PLAIN)))
    with (tmp_path / "state" / "updates-1" / "a.part").open("ab") as part:
        part.write(b"123")
    assert offer(opened(), "a", update)[1] == 1


def test_offers_while_pieces_are_written_cost_no_piece(opened: Any) -> None:
    """A participant that repeats its offer while its earlier connection still brings pieces."""
    store = seeded(opened(), numbers=100 * protocol.PIECE_NUMBERS)
    update = vector(3, 100 * protocol.PIECE_NUMBERS)
    checksum, _ = offer(store, "a", update)
    same = protocol.offer_of(protocol.wire_parts(update, PLAIN))
    is_over = threading.Event()

    def repeat_offer() -> None:
        while not is_over.is_set():
            store.offer(1, "a", same)

    repeating = [threading.Thread(target=repeat_offer) for _ in range(4)]
    for thread in repeating:
        thread.start()
    try:
        for piece, data in enumerate(protocol.wire_parts(update, PLAIN)):
            write(store, piece, data)
    finally:
        is_over.set()
        for thread in repeating:
            thread.join()
    store.commit(1, "a", Commit(checksum, 1))


def test_another_offer_begins_anew(opened: Any) -> None:
    store = seeded(opened(), numbers=TWO_PIECES)
    offer(store, "a", vector(1, TWO_PIECES))
    write(store, 0, next(protocol.wire_parts(vector(1, TWO_PIECES), PLAIN)))
    assert offer(store, "a", vector(2, TWO_PIECES))[1] == 0


def test_a_piece_out_of_order_is_damaged(opened: Any) -> None:
    store = seeded(opened(), numbers=TWO_PIECES)
    with pytest.raises(Damaged, match="not the next one"):
        write(store, 0, b"")
    offer(store, "a", vector(1, TWO_PIECES))
    with pytest.raises(Damaged, match="piece 1 is not the next one"):
        write(store, 1, b"")


def test_what_is_not_whole_does_not_count(opened: Any) -> None:
    store = seeded(opened(), numbers=TWO_PIECES)
    checksum, _ = offer(store, "a", vector(1, TWO_PIECES))
    with pytest.raises(Damaged, match="the update has 0 of"):
        store.commit(1, "a", Commit(checksum, 1))
    assert store.commits() == {}


def test_what_has_another_checksum_does_not_count(opened: Any) -> None:
    store = seeded(opened())
    checksum, _ = offer(store, "a", vector(1))
    with pytest.raises(Damaged, match="piece 0 is not that of the offer"):
        write(store, 0, protocol.to_wire(vector(2), PLAIN))
    with pytest.raises(Damaged, match="the update has 0 of"):
        store.commit(1, "a", Commit(checksum, 1))
    assert offer(store, "a", vector(1))[1] == 0
    assert store.commits() == {}


def test_a_commit_said_twice_counts_once(opened: Any) -> None:
    store = seeded(opened())
    commit = send(store, "a", vector(1), samples=1)
    store.commit(1, "a", commit)
    assert offer(store, "a", vector(1))[1] == 1
    with pytest.raises(RoundOver, match="sent its update of round 1 already"):
        offer(store, "a", vector(2))


def test_a_closed_round_takes_nothing_more(opened: Any) -> None:
    store = seeded(opened())
    send(store, "a", vector(1), samples=1)
    store.close()
    with pytest.raises(RoundOver):
        offer(store, "b", vector(1))
    store.aggregate(FedAvg(), is_last=False)
    offer(store, "b", vector(1), round_=2)


def test_who_has_no_samples_sends_no_update(opened: Any) -> None:
    store = seeded(opened())
    store.commit(1, "a", Commit("", 0))
    send(store, "b", vector(3), samples=2)
    store.aggregate(FedAvg(), is_last=False)
    assert store.model().tolist() == [3.0] * 4


def test_the_first_weights_are_adopted(opened: Any) -> None:
    store = opened()
    store.set_layout(layout(4))
    send(store, "a", vector(9), samples=1, round_=SEED)
    store.adopt_seed("a")
    assert store.state.round == 1
    assert opened().model().tolist() == [9.0] * 4


def test_momentum_outlives_a_restart(opened: Any) -> None:
    store = seeded(opened())
    send(store, "a", vector(2), samples=1)
    store.aggregate(FedAvgM(momentum=0.5), is_last=False)
    again = opened()
    send(again, "a", vector(2), samples=1, round_=2)
    again.aggregate(FedAvgM(momentum=0.5), is_last=False)
    assert again.model().tolist() == [3.0] * 4


class Killed(Aggregation):
    """Ends as a killed process does, after a part of the model was written."""

    name = "Killed"

    def combine(self, slice_: Slice) -> tuple[Vector, Vector]:
        raise KeyboardInterrupt


def test_an_aggregation_that_is_cut_short_is_done_again(opened: Any, tmp_path: Path) -> None:
    store = seeded(opened())
    send(store, "a", vector(1), samples=1)
    with pytest.raises(KeyboardInterrupt):
        store.aggregate(Killed(), is_last=False)
    (tmp_path / "state" / "model-2").write_bytes(b"of a process that died here")
    again = opened()
    assert not (tmp_path / "state" / "model-2").exists()
    again.aggregate(FedAvg(), is_last=False)
    assert again.model().tolist() == [1.0] * 4


class Broken(Aggregation):
    name = "Broken"

    def combine(self, slice_: Slice) -> tuple[Vector, Vector]:
        return slice_.model[1:], slice_.memory


def test_an_aggregation_that_gives_no_model_is_named(opened: Any) -> None:
    store = seeded(opened())
    send(store, "a", vector(1), samples=1)
    with pytest.raises(AggregationError, match="'Broken': gave what is no model"):
        store.aggregate(Broken(), is_last=False)
    assert store.state.round == 1


def test_updates_in_another_precision_are_asked_for_again(opened: Any) -> None:
    store = seeded(opened())
    send(store, "a", vector(1), samples=1)
    half = Encoding(precision="float16")
    again = opened(half)
    assert again.commits() == {}
    commit = send(again, "a", vector(1), samples=1)
    assert opened(half).commits() == {"a": commit}


def test_old_rounds_leave_files_to_write_over_and_nothing_else(opened: Any, tmp_path: Path) -> None:
    store = seeded(opened())
    for round_ in (1, 2, 3):
        send(store, "a", vector(round_), samples=1, round_=round_)
        store.aggregate(FedAvg(), is_last=False)
    state = tmp_path / "state"
    assert {path.name for path in state.iterdir()} == {
        "state.msgpack",
        "model-4",
        "memory-4",
        "updates-4",
    }
    assert [path.name for path in (state / "updates-4").iterdir()] == ["a.part"]


# ---- the directory ------------------------------------------------------------------------------


def test_what_others_keep_in_the_directory_stays(opened: Any, tmp_path: Path) -> None:
    """A home directory, say, that was named by mistake."""
    (tmp_path / "state" / "photos").mkdir(parents=True)
    (tmp_path / "state" / "model.npz").write_bytes(b"precious")
    store = seeded(opened())
    send(store, "a", vector(1), samples=1)
    store.aggregate(FedAvg(), is_last=True)
    store.conclude()
    left = {path.name for path in (tmp_path / "state").iterdir()}
    assert left == {"state.msgpack", "photos", "model.npz"}


def test_files_of_our_names_without_a_state_are_not_taken_for_ours(
    opened: Any, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "model-3").write_bytes(b"precious")
    with pytest.raises(OSError, match=r"belongs to no federation known here: .*model-3"):
        opened()


def test_a_commit_is_durable_before_it_counts(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = seeded(opened())
    synced: list[str] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    send(store, "a", vector(1), samples=1)
    assert synced == ["a.part", "a.commit.new", "updates-1"]


# ---- slices -------------------------------------------------------------------------------------


class Counting(FedAvg):
    def __init__(self) -> None:
        self.slices = 0

    def combine(self, slice_: Slice) -> tuple[Vector, Vector]:
        self.slices += 1
        return super().combine(slice_)


@pytest.mark.parametrize(("slice_bytes", "slices"), [(SLICE_BYTES, 1), (1, 65)])
def test_slices_make_up_the_whole(opened: Any, slice_bytes: int, slices: int) -> None:
    store = seeded(opened(slice_bytes=slice_bytes), numbers=TWO_PIECES)
    update = np.arange(TWO_PIECES, dtype=np.float32)
    send(store, "a", update, samples=1)
    send(store, "b", update * 3, samples=1)
    aggregation = Counting()
    store.aggregate(aggregation, is_last=False)
    np.testing.assert_array_equal(store.model(), update * 2)
    assert aggregation.slices == slices


# ---- numbers beyond what there is ---------------------------------------------------------------


def test_updates_that_join_to_infinity_leave_model_and_memory(opened: Any) -> None:
    store, aggregation = seeded(opened()), FedAvgM(momentum=0.5)
    send(store, "a", vector(2), samples=1)
    store.aggregate(aggregation, is_last=False)
    send(store, "a", vector(2), samples=1, round_=2)
    send(store, "huge", vector(3.4e38), samples=9, round_=2)
    send(store, "idle", vector(0), samples=0, round_=2)
    with pytest.raises(NotFinite, match=r"largest numbers from huge \(3.4e\+38\), a \(2\)"):
        store.aggregate(FedAvgM(momentum=0.5, rate=2.0), is_last=False)
    store.keep_model(is_last=False)
    assert (store.state.round, store.model().tolist()) == (3, [2.0] * 4)
    assert opened().state.has_learned
    send(store, "a", vector(2), samples=1, round_=3)
    store.aggregate(aggregation, is_last=False)
    assert store.model().tolist() == [3.0] * 4  # half of the first step


def test_a_model_beyond_float16_is_none_where_that_travels(opened: Any) -> None:
    store = seeded(opened(Encoding("float16")))
    send(store, "a", vector(60_000), samples=1)
    with pytest.raises(NotFinite):
        store.aggregate(FedAvgM(rate=2.0), is_last=False)
    with pytest.raises(WeightsError, match="beyond those of float16"):
        store.seed(vector(70_000), layout(4))


def test_another_layout_lets_go_of_what_was_sent_in_the_first(opened: Any, tmp_path: Path) -> None:
    store = opened()
    store.set_layout(layout(4))
    offer(store, "a", vector(1), SEED)
    store.set_layout(layout(5))
    assert opened().state.layout == layout(5)
    assert not (tmp_path / "state" / "updates-0").exists()


def test_the_layout_is_that_of_the_first_weights_once_they_have_come(opened: Any) -> None:
    store = opened()
    store.set_layout(layout(4))
    commit = send(store, "a", vector(1), samples=1, round_=SEED)
    store.set_layout(layout(5))
    assert (store.state.layout, store.commits()) == (layout(4), {"a": commit})
    store.adopt_seed("a")
    store.set_layout(layout(5))
    assert opened().state.layout == layout(4)
