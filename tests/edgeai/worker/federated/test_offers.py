"""Offers with the CRC-32 of each piece: of a trainer, and on the disk of the aggregator."""

import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeai.worker.federated import protocol
from edgeai.worker.federated.aggregations import FedAvg
from edgeai.worker.federated.client import AggregatorClient
from edgeai.worker.federated.layout import Vector
from edgeai.worker.federated.protocol import Commit, Damaged, Encoding, Offer
from edgeai.worker.federated.store import RoundStore
from tests.edgeai.worker.federated.conftest import Federation, MakeFederation
from tests.edgeai.worker.federated.scripted import ScriptedAggregator
from tests.edgeai.worker.federated.test_client import OFFER
from tests.edgeai.worker.federated.test_federation import settings
from tests.edgeai.worker.federated.test_server import begun, layout
from tests.edgeai.worker.federated.test_store import PLAIN, TWO_PIECES
from tests.edgeai.worker.federated.test_store import layout as store_layout

UPDATE = "/v1/rounds/1/updates/a"
FIRST, SECOND = (np.full(TWO_PIECES, number, dtype=np.float32) for number in (1, 2))


def offer_of(update: Vector, encoding: Encoding = PLAIN) -> Offer:
    return protocol.offer_of(protocol.wire_parts(update, encoding))


# ---- the trainer --------------------------------------------------------------------------------


@pytest.fixture
def client(client: AggregatorClient) -> AggregatorClient:
    """Has joined."""
    client.join(layout(TWO_PIECES))
    return client


def offers(aggregator: ScriptedAggregator) -> list[Offer]:
    asked = [each.body for each in aggregator.asked if each.what == OFFER]
    return [protocol.decode(body, Offer) for body in asked]


def test_an_offer_has_the_checksum_that_each_piece_has(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    client.send(1, FIRST, commit=Commit("", 1))
    (offer,) = offers(aggregator)
    pieces = [each.body for each in aggregator.asked if each.what.startswith("PUT")]
    assert offer.crcs == b"".join(piece[: protocol.CRC_BYTES] for piece in pieces)
    assert offer == offer_of(FIRST)
    commit = next(each.body for each in aggregator.asked if each.what.endswith("/commit"))
    assert protocol.decode(commit, Commit).checksum == offer.checksum


# ---- the aggregator -----------------------------------------------------------------------------


def ask(federation: Federation, offer: Any) -> Any:
    return federation.ask("POST", UPDATE, msgspec.msgpack.encode(offer))


@pytest.mark.parametrize(
    "crcs",
    [b"", b"123", b"12345678", bytes(4 * 8193), [1, 2], 4.5, -1],
    ids=["none", "short", "long", "huge", "list", "float", "negative"],
)
def test_an_offer_with_other_checksums_than_the_update_has_pieces_is_damaged(
    federation: MakeFederation, crcs: Any
) -> None:
    made = begun(federation(settings=settings(2)), "a", "b")
    whole = offer_of(np.ones(3, np.float32))
    checksum = sha256(crcs).hexdigest() if isinstance(crcs, bytes) else "x"
    assert ask(made, {"checksum": checksum, "crcs": crcs}).status == 400
    assert ask(made, {"checksum": "x", "crcs": whole.crcs}).status == 400
    assert ask(made, {"checksum": whole.checksum}).status == 400
    assert ask(made, whole).status == 200


# ---- the disk -----------------------------------------------------------------------------------


@pytest.fixture
def store(opened: Any) -> RoundStore:
    made: RoundStore = opened()
    made.seed(np.zeros(TWO_PIECES, np.float32), store_layout(TWO_PIECES))
    return made


def offer(store: RoundStore, update: Vector, *, round_: int = 1, name: str = "a") -> int:
    """How many of its pieces are there."""
    return store.offer(round_, name, offer_of(update, store.state.encoding))


def write(store: RoundStore, update: Vector, *pieces: int, round_: int = 1) -> None:
    parts = list(protocol.wire_parts(update, store.state.encoding))
    for piece in pieces:
        store.write_piece(round_, "a", piece, parts[piece], protocol.crc(parts[piece]))


def commit(store: RoundStore, update: Vector, *, round_: int = 1) -> None:
    store.commit(round_, "a", Commit(offer_of(update, store.state.encoding).checksum, 1))


def test_an_update_counts_by_the_checksums_of_its_pieces(store: RoundStore, opened: Any) -> None:
    assert offer(store, FIRST) == 0
    write(store, FIRST, 0, 1)
    commit(store, FIRST)
    commit(store, FIRST)
    assert offer(store, FIRST) == 2
    assert list(opened().commits()) == ["a"]
    store.aggregate(FedAvg(), is_last=True)
    np.testing.assert_array_equal(store.model(), FIRST)


def test_a_piece_of_another_update_is_damaged(store: RoundStore) -> None:
    """Which an earlier connection of the participant still brings."""
    offer(store, FIRST)
    write(store, FIRST, 0)
    assert offer(store, SECOND) == 0
    with pytest.raises(Damaged, match="piece 0 is not that of the offer"):
        write(store, FIRST, 0)
    write(store, SECOND, 0, 1)
    commit(store, SECOND)


def test_what_a_killed_aggregator_has_goes_on(store: RoundStore, opened: Any) -> None:
    offer(store, FIRST)
    write(store, FIRST, 0)
    again = opened()
    with pytest.raises(Damaged, match="make an offer first"):
        write(again, FIRST, 1)
    assert offer(again, FIRST) == 1
    write(again, FIRST, 1)
    commit(again, FIRST)


def test_a_piece_that_a_power_cut_tore_is_asked_for_again(
    store: RoundStore, opened: Any, tmp_path: Path
) -> None:
    """And what comes after it."""
    offer(store, FIRST)
    write(store, FIRST, 0, 1)
    with (tmp_path / "state" / "updates-1" / "a.part").open("r+b") as part:
        part.seek(4096)
        part.write(bytes(4096))
    assert offer(opened(), FIRST) == 0


def test_the_file_of_an_update_is_written_over_in_the_next_round(
    store: RoundStore, opened: Any, tmp_path: Path
) -> None:
    """What it has of the round before is no progress, and no update."""
    offer(store, FIRST)
    write(store, FIRST, 0, 1)
    commit(store, FIRST)
    inode = (tmp_path / "state" / "updates-1" / "a.update").stat().st_ino
    store.aggregate(FedAvg(), is_last=False)
    assert store.commits() == {}
    assert offer(store, SECOND, round_=2) == 0
    write(store, SECOND, 0, round_=2)
    with pytest.raises(Damaged, match=r"the update has 1048576 of 1048596 bytes"):
        commit(store, SECOND, round_=2)
    again = opened()
    assert offer(again, SECOND, round_=2) == 1
    write(again, SECOND, 1, round_=2)
    commit(again, SECOND, round_=2)
    assert (tmp_path / "state" / "updates-2" / "a.update").stat().st_ino == inode
    again.aggregate(FedAvg(), is_last=False)
    np.testing.assert_array_equal(again.model(), SECOND)


def test_a_kill_before_the_files_are_passed_on_costs_nothing(
    store: RoundStore, opened: Any, tmp_path: Path
) -> None:
    """The state names the next round; the files of this one are still in their places."""
    offer(store, FIRST)
    write(store, FIRST, 0, 1)
    commit(store, FIRST)
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "state" / "updates-1", before)
    store.aggregate(FedAvg(), is_last=False)
    shutil.rmtree(tmp_path / "state" / "updates-2")
    before.rename(tmp_path / "state" / "updates-1")
    again = opened()
    assert again.commits() == {}
    assert not (tmp_path / "state" / "updates-1").exists()
    assert offer(again, SECOND, round_=2) == 0


def test_the_file_of_a_participant_that_has_gone_is_removed(
    store: RoundStore, tmp_path: Path
) -> None:
    offer(store, FIRST)
    write(store, FIRST, 0, 1)
    commit(store, FIRST)
    store.aggregate(FedAvg(), is_last=False)
    assert (tmp_path / "state" / "updates-2" / "a.part").exists()
    store.keep_model(is_last=False)
    assert not (tmp_path / "state" / "updates-2").exists()
    assert not (tmp_path / "state" / "updates-3").exists()


def test_a_file_that_is_longer_than_the_update_is_cut(
    store: RoundStore, opened: Any, tmp_path: Path
) -> None:
    offer(store, FIRST)
    write(store, FIRST, 0, 1)
    with (tmp_path / "state" / "updates-1" / "a.part").open("ab") as part:
        part.write(b"123")
    again = opened()
    assert offer(again, FIRST) == 2
    commit(again, FIRST)
    assert (tmp_path / "state" / "updates-1" / "a.update").stat().st_size == FIRST.nbytes
