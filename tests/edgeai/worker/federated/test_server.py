"""The aggregator over real sockets, as single requests see it: who, when, how many, how long."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest

from edgeai.worker.environment import Address
from edgeai.worker.errors import AggregationError, FederationError, WeightsError
from edgeai.worker.federated import protocol
from edgeai.worker.federated.aggregations import FedAvg, FedAvgM, Slice, TrimmedMean
from edgeai.worker.federated.aggregator import RoundResult
from edgeai.worker.federated.layout import Layout, TensorLayout, Vector
from edgeai.worker.federated.learning import FederatedLearning
from edgeai.worker.federated.protocol import Commit, Encoding, Join, RoundState, Welcome
from edgeai.worker.federated.rounds import FIRST, SEED
from edgeai.worker.federated.server import LIMITS
from edgeai.worker.federated.store import RoundStore
from edgeai.worker.http_exchange import Response
from tests.edgeai.worker.federated.conftest import (
    Federation,
    MakeFederation,
    Slow,
    SlowDisk,
    disk_of,
    head,
    running,
)
from tests.edgeai.worker.federated.mean import Mean
from tests.edgeai.worker.federated.test_federation import settings, trainer
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, eventually

Message = TypeVar("Message")
NUMBERS = 3
PLAIN = Encoding()


def layout(numbers: int = NUMBERS) -> Layout:
    return Layout((TensorLayout("mean", (numbers,), "float32"),), is_named=True)


def vector(value: float, numbers: int = NUMBERS) -> Vector:
    return np.full(numbers, value, dtype=np.float32)


def told(response: Response, type_: type[Message]) -> Message:
    assert response.status == 200, response.body
    return msgspec.msgpack.decode(response.body, type=type_)


def join(federation: Federation, name: str, *, numbers: int = NUMBERS, instance: str = "") -> Any:
    body = protocol.encode(Join(layout(numbers), instance or name))
    return federation.ask("POST", f"/v1/participants/{name}", body)


def state(federation: Federation, name: str, wait_s: float = 0.0) -> RoundState:
    path = f"/v1/round?participant={name}&wait={wait_s}"
    return told(federation.ask("GET", path), RoundState)


def send(
    federation: Federation,
    name: str,
    update: Vector,
    *,
    round_: int = FIRST,
    samples: int = 1,
    encoding: Encoding = PLAIN,
    **metrics: float,
) -> Response:
    """The first answer that is not 200, or that to the commit."""
    path = f"/v1/rounds/{round_}/updates/{name}"
    offer = protocol.offer_of(protocol.wire_parts(update, encoding))
    requests = [("POST", path, protocol.encode(offer))]
    for piece, data in enumerate(protocol.wire_parts(update, encoding)):
        requests.append(("PUT", f"{path}/{piece}", protocol.packed(data, encoding)))
    commit = protocol.encode(Commit(offer.checksum, samples, metrics))
    requests.append(("POST", f"{path}/commit", commit))
    for request in requests:
        response = federation.ask(*request)
        if response.status != 200:
            break
    return response


def begun(federation: Federation, *names: str) -> Federation:
    """In its first round, from zeros, with these participants."""
    for name in names:
        assert join(federation, name).status == 200
    assert send(federation, names[0], vector(0), round_=SEED).status == 200
    return federation


# ---- the first weights --------------------------------------------------------------------------


class Loaded(Mean):
    """A pretrained model, which is a while in coming."""

    def __init__(self, size: int = NUMBERS, value: float = 7.0) -> None:
        super().__init__(value, size)

    def load(self, model_url: str) -> None:
        time.sleep(0.5)  # the loading, in which a trainer could be quicker


class Idle(Mean):
    """Learns nothing: what it is given stays."""

    def train(self, **_: Any) -> Any:
        return {}


def test_a_pretrained_model_is_what_all_start_from(federation: MakeFederation) -> None:
    address, idle = Address("127.0.0.1", free_port()), Idle()
    learning = FederatedLearning(idle, environment=Federation.trainer_of(address, "early"))
    with running(lambda: learning.train([1.0])) as results:
        federation(
            port=address.port,
            estimator=Loaded(),
            pretrained_model_url="given",
            settings=settings(1, rounds=1),
        )
    assert results == [{}]
    assert idle.weights["mean"].tolist() == [7.0] * NUMBERS


def test_a_trainer_of_another_model_than_the_pretrained_is_refused(
    federation: MakeFederation,
) -> None:
    aggregator = federation(
        estimator=Loaded(4), pretrained_model_url="given", settings=settings(1, rounds=1)
    )
    with running(trainer(aggregator, "a", Mean(), [1.0]), may_raise=FederationError) as results:
        pass
    assert isinstance(results[0], FederationError)
    assert "tensor mean [3] float32, expected mean [4] float32" in str(results[0])


def test_a_pretrained_model_that_float16_does_not_hold_is_refused(
    federation: MakeFederation,
) -> None:
    aggregator = federation(
        estimator=Loaded(value=70_000.0), pretrained_model_url="given", encoding=Encoding("float16")
    )
    with pytest.raises(WeightsError, match="let weights travel as float32"):
        aggregator.join()


def test_only_the_first_of_those_present_gives_the_weights(federation: MakeFederation) -> None:
    aggregator = federation(settings=settings(2))
    join(aggregator, "first")
    join(aggregator, "second")
    assert state(aggregator, "first").is_yours
    assert not state(aggregator, "second").is_yours
    refused = send(aggregator, "second", vector(5), round_=SEED)
    assert refused.status == 409
    assert b"another participant gives the first weights" in refused.body


def test_a_seed_that_was_committed_before_a_kill_is_started_from(
    federation: MakeFederation, tmp_path: Path
) -> None:
    store = RoundStore(tmp_path / "state", PLAIN)
    store.set_layout(layout())
    seed = protocol.to_wire(vector(5), PLAIN)
    offer = protocol.offer_of([seed])
    store.offer(SEED, "a", offer)
    store.write_piece(SEED, "a", 0, seed, protocol.crc(seed))
    store.commit(SEED, "a", Commit(offer.checksum, 1))
    idle = Idle()
    with running(trainer(federation(settings=settings(1, rounds=1)), "a", idle, [1.0])):
        pass
    assert idle.weights["mean"].tolist() == [5.0] * NUMBERS


def test_a_seed_for_which_the_disk_was_too_full_is_taken_up_later(
    federation: MakeFederation,
) -> None:
    """The process that sent it has gone, and another one offers other weights."""
    numbers, half = 2 * protocol.PIECE_NUMBERS, Encoding("float16")
    aggregator = federation(settings=settings(1), encoding=half)
    join(aggregator, "a", numbers=numbers)
    with disk_of(3 * numbers):  # enough for it in float16, not for the model in float32
        sent = send(aggregator, "a", vector(5, numbers), round_=SEED, encoding=half)
    assert sent.status == 507
    again = send(aggregator, "a", vector(6, numbers), round_=SEED, encoding=half)
    assert again.status == 409
    assert state(aggregator, "a") == RoundState(FIRST, 2, is_yours=True)


@pytest.mark.parametrize("leaves", [True, False])
def test_the_layout_is_open_until_somebody_else_is_there(
    federation: MakeFederation, *, leaves: bool
) -> None:
    """A trainer of the wrong image does not decide for good."""
    aggregator = federation(settings=settings(2))
    join(aggregator, "wrong", numbers=4)
    if leaves:
        aggregator.ask("DELETE", "/v1/participants/wrong")
    assert join(aggregator, "right").status == (200 if leaves else 422)


# ---- processes of one name ----------------------------------------------------------------------


def test_a_newer_process_displaces_the_older_of_its_name(federation: MakeFederation) -> None:
    aggregator = federation(settings=settings(1))
    assert join(aggregator, "a", instance="old").status == 200
    assert join(aggregator, "a", instance="new").status == 200
    beat = ("POST", "/v1/participants/a/beat")
    older = aggregator.ask(*beat, instance="old")
    assert older.status == 410
    assert b"another process takes part as a: WORKER_NAME is one for each" in older.body
    assert join(aggregator, "a", instance="old").status == 410
    assert aggregator.ask(*beat, instance="new").status == 200
    assert aggregator.ask(*beat).status == 200


def test_a_process_may_join_again(federation: MakeFederation) -> None:
    aggregator = federation(settings=settings(1))
    assert [join(aggregator, "a").status for _ in range(2)] == [200, 200]


def test_a_trainer_whose_name_is_taken_ends(federation: MakeFederation) -> None:
    aggregator = federation(settings=settings(2))
    with running(trainer(aggregator, "a", Mean(), [1.0]), may_raise=FederationError) as results:
        eventually("the first model", (aggregator.environment.state_dir / "model-1").exists)
        assert join(aggregator, "a", instance="new").status == 200
        eventually("the end of the older one", lambda: results[0] is not None)
    assert isinstance(results[0], FederationError)
    assert "another process takes part as a" in str(results[0])


# ---- rounds -------------------------------------------------------------------------------------


def test_a_straggler_is_not_sent_into_a_round_that_is_closed(federation: MakeFederation) -> None:
    slow = Slow()
    aggregator = federation(
        aggregation=slow, settings=settings(2, min_participants=1, deadline_s=0.1)
    )
    begun(aggregator, "quick", "straggler")
    assert state(aggregator, "straggler").is_yours
    send(aggregator, "quick", vector(3))
    assert slow.begins.wait(PATIENCE_S)
    assert not state(aggregator, "straggler").is_yours
    assert send(aggregator, "straggler", vector(9)).status == 409
    slow.go.set()
    assert state(aggregator, "straggler", PATIENCE_S) == RoundState(2, 2, is_yours=True)


def test_an_update_sent_twice_over_is_wanted_once(federation: MakeFederation) -> None:
    """Its answers were lost: 200 again, for each piece and for the commit."""
    aggregator = begun(federation(settings=settings(2)), "a", "b")
    assert send(aggregator, "a", vector(1)).status == 200
    path, offer = "/v1/rounds/1/updates/b", protocol.offer_of(protocol.wire_parts(vector(3), PLAIN))
    piece = protocol.packed(protocol.to_wire(vector(3), PLAIN), PLAIN)
    commit = protocol.encode(Commit(offer.checksum, 1))
    assert aggregator.ask("POST", path, protocol.encode(offer)).status == 200
    assert [aggregator.ask("PUT", f"{path}/0", piece).status for _ in range(5)] == [200] * 5
    assert aggregator.ask("POST", f"{path}/commit", commit).status == 200
    eventually("round 2", lambda: state(aggregator, "a").round == 2)
    model = aggregator.ask("GET", "/v1/rounds/2/model/0").body
    assert protocol.unpacked(model, numbers=NUMBERS, encoding=PLAIN) == vector(2).tobytes()


def test_the_user_sees_means_by_samples_of_metrics_that_are_numbers(
    federation: MakeFederation,
) -> None:
    results: list[RoundResult] = []

    def stop_when(result: RoundResult) -> bool:
        results.append(result)
        return False

    aggregator = federation(settings=settings(2), stop_when=stop_when)
    begun(aggregator, "a", "b")
    send(aggregator, "a", vector(1), samples=1, loss=1.0, broken=float("nan"))
    send(aggregator, "b", vector(1), samples=3, loss=5.0, broken=float("inf"))
    eventually("a result", lambda: results)
    assert results == [RoundResult(FIRST, {"a": 1, "b": 3}, {"loss": 4.0})]


def test_updates_that_join_to_infinity_cost_a_round_not_the_aggregator(
    federation: MakeFederation, caplog: pytest.LogCaptureFixture
) -> None:
    aggregation = FedAvgM(momentum=0.0, rate=2.0)
    aggregator = federation(aggregation=aggregation, settings=settings(2))
    begun(aggregator, "good", "huge")
    send(aggregator, "good", vector(1))
    send(aggregator, "huge", vector(3.4e38), samples=9)
    eventually("round 2", lambda: state(aggregator, "good").round == 2)
    assert "round keeps its model: round=1" in caplog.text
    assert "largest numbers from huge (3.4e+38), good (1)" in caplog.text
    send(aggregator, "good", vector(1), round_=2)
    send(aggregator, "huge", vector(1), round_=2)
    eventually("the end", lambda: state(aggregator, "good").is_finished)
    for name in ("good", "huge"):
        aggregator.ask("DELETE", f"/v1/participants/{name}")
    assert aggregator.join() is True
    assert np.load(aggregator.environment.model_url)["mean"].tolist() == [2.0] * NUMBERS


class Diverging(FedAvg):
    def combine(self, slice_: Slice) -> tuple[Vector, Vector]:
        return slice_.model * np.float32("nan"), slice_.memory


def test_who_never_gave_a_model_has_no_result(federation: MakeFederation) -> None:
    aggregator = federation(aggregation=Diverging(), settings=settings(1, rounds=2))
    begun(aggregator, "a")
    send(aggregator, "a", vector(1))
    eventually("round 2", lambda: state(aggregator, "a").round == 2)
    send(aggregator, "a", vector(1), round_=2)
    with pytest.raises(AggregationError, match="gave what is not finite"):
        aggregator.join()
    assert not Path(aggregator.environment.model_url).exists()


def test_one_round_that_gave_a_model_is_enough(federation: MakeFederation) -> None:
    aggregation = FedAvgM(momentum=0.0, rate=2.0)
    aggregator = federation(aggregation=aggregation, settings=settings(1, rounds=3))
    begun(aggregator, "a")
    send(aggregator, "a", vector(1))
    for round_ in (2, 3):
        assert state(aggregator, "a", PATIENCE_S).round == round_
        send(aggregator, "a", vector(3.4e38), round_=round_)
    eventually("the end", lambda: state(aggregator, "a").is_finished)
    aggregator.ask("DELETE", "/v1/participants/a")
    assert aggregator.join() is True
    assert np.load(aggregator.environment.model_url)["mean"].tolist() == [2.0] * NUMBERS


def test_an_aggregation_sets_how_many_must_send(federation: MakeFederation) -> None:
    aggregator = federation(
        aggregation="TrimmedMean", settings=settings(3, min_participants=1, deadline_s=0.1)
    )
    begun(aggregator, "a", "b", "c")
    send(aggregator, "a", vector(1))
    send(aggregator, "b", vector(1))
    assert state(aggregator, "a", wait_s=0.5).round == FIRST
    send(aggregator, "c", vector(1))
    assert state(aggregator, "a", PATIENCE_S).round == 2


def test_an_aggregation_that_needs_more_than_are_expected_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AggregationError, match="'TrimmedMean': needs 3 participants, and 2 are"):
        Federation(tmp_path, aggregation=TrimmedMean(), settings=settings(2))


def test_a_round_that_cannot_close_is_told(
    federation: MakeFederation, caplog: pytest.LogCaptureFixture
) -> None:
    aggregator = begun(federation(settings=settings(2), warn_period_s=0.1), "a")
    send(aggregator, "a", vector(1))
    eventually("a warning", lambda: "the round cannot close" in caplog.text)


# ---- beats and connections ----------------------------------------------------------------------


def test_a_participant_is_asked_for_three_beats_before_it_counts_as_gone(
    federation: MakeFederation,
) -> None:
    aggregator = federation(settings=settings(1, gone_after_s=6.0))
    assert told(join(aggregator, "a"), Welcome).beat_s == 2.0


@pytest.mark.parametrize("file", ["quick.part", "quick.commit.new"])
def test_beats_do_not_wait_for_a_slow_disk(
    federation: MakeFederation, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    aggregator = begun(federation(settings=settings(2)), "slow", "quick")
    disk = SlowDisk(monkeypatch, file)
    with running(lambda: send(aggregator, "quick", vector(1)).status) as results:
        assert disk.begins.wait(PATIENCE_S)
        try:
            beat = aggregator.ask("POST", "/v1/participants/slow/beat", timeout_s=PATIENCE_S / 2)
        finally:
            disk.go.set()
    assert (beat.status, results) == (200, [200])


@contextmanager
def connections(address: Address, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(address)) for _ in range(count)]


def test_all_participants_may_wait_at_once(federation: MakeFederation) -> None:
    aggregator = begun(federation(settings=settings(1, rounds=1)), "a")
    path = "/v1/round?participant=a&after=5&wait=20"
    request = f"GET {path} HTTP/1.1\r\nHost: a\r\n{head('a')}\r\n"
    with connections(aggregator.server.address, 300) as waiting:
        for connection in waiting:
            connection.sendall(request.encode())
        assert aggregator.ask("POST", "/v1/participants/a/beat").status == 200
        assert send(aggregator, "a", vector(1)).status == 200
        for connection in waiting:
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_strangers_do_not_keep_others_out(federation: MakeFederation) -> None:
    limits = msgspec.structs.replace(LIMITS, max_connections=3, authentication_timeout_s=0.5)
    aggregator = federation(settings=settings(1), limits=limits)
    with connections(aggregator.server.address, 3) as (silent, *slow):
        for connection in slow:
            connection.sendall(b"GET /v1/round HTTP/1.1\r\n")
        with running(trainer(aggregator, "a", Mean(), [1.0])) as results:
            pass
        assert results == [{"error": 0.0}]
        assert silent.recv(1) == b""


def test_a_known_connection_has_its_time(federation: MakeFederation) -> None:
    authentication_timeout_s = 0.5  # what a busy machine may take for the first head
    limits = msgspec.structs.replace(LIMITS, authentication_timeout_s=authentication_timeout_s)
    aggregator = federation(settings=settings(1), limits=limits)
    request = f"GET /v2 HTTP/1.1\r\nHost: a\r\n{head('a')}\r\n".encode()
    with connections(aggregator.server.address, 1) as (known,):
        for _ in range(2):
            known.sendall(request)
            assert known.recv(1 << 16).startswith(b"HTTP/1.1 404")
            time.sleep(authentication_timeout_s + 0.1)  # the silence is the test


def test_a_path_that_is_none_is_refused(federation: MakeFederation) -> None:
    request = f"GET http://[ HTTP/1.1\r\nHost: a\r\n{head('a')}\r\n".encode()
    aggregator = federation(settings=settings(1))
    with connections(aggregator.server.address, 1) as (connection,):
        connection.sendall(request)
        answer = connection.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 400")


# ---- a full disk --------------------------------------------------------------------------------


def test_an_update_that_a_full_disk_cut_in_a_piece_goes_on(
    federation: MakeFederation, caplog: pytest.LogCaptureFixture
) -> None:
    size = 2 * protocol.PIECE_NUMBERS
    aggregator = federation(settings=settings(1, rounds=1))
    learned = Mean(size=size)
    with running(trainer(aggregator, "a", learned, [3.0])) as results:
        with disk_of(5 * protocol.PIECE_NUMBERS):  # a piece, and a part of the next
            eventually(
                "five failures of the disk",
                lambda: caplog.text.count("directory cannot be used") >= 5,
            )
        assert "the aggregator cannot keep it: File too large" in caplog.text
        assert results == [None]
    assert learned.weights["mean"].tolist() == [3.0] * size
