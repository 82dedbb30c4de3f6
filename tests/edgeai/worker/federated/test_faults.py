"""What goes wrong around a federation: kills, stragglers, and participants that send nonsense."""

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from edgeai.worker.deadline import Deadline
from edgeai.worker.environment import Address
from edgeai.worker.errors import FederationError, WeightsError
from edgeai.worker.federated import protocol
from edgeai.worker.federated.client import AggregatorClient
from edgeai.worker.federated.layout import Layout, TensorLayout
from edgeai.worker.federated.learning import FederatedLearning
from edgeai.worker.federated.protocol import Commit, Join
from edgeai.worker.http_exchange import HTTPPeer, Request, Response
from tests.edgeai.worker.federated.conftest import (
    SECRET,
    Federation,
    MakeFederation,
    Workers,
    kill,
    own,
    running,
    sender_of,
)
from tests.edgeai.worker.federated.conftest import headers as headers_of
from tests.edgeai.worker.federated.mean import Mean
from tests.edgeai.worker.federated.test_federation import DATA, MEAN_OF_ALL, settings, trainer
from tests.edgeai.worker.peers import LOOPBACK
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, eventually

ONE = Layout((TensorLayout("mean", (3,), "float32"),), is_named=True)


# ---- participants that come, go and dawdle ------------------------------------------------------


def test_a_trainer_waits_for_its_aggregator(
    federation: MakeFederation, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    estimator = Mean()
    environment = Federation.trainer_of(Address(LOOPBACK, port), "a")
    with running(lambda: FederatedLearning(estimator, environment=environment).train([3.0])):
        eventually("a trainer that waits", lambda: "waiting for the aggregator" in caplog.text)
        federation(port=port, settings=settings(1))
    assert estimator.weights["mean"].tolist() == [3.0] * 3


def test_who_has_no_samples_takes_part_and_weighs_nothing(federation: MakeFederation) -> None:
    aggregator = federation(settings=settings(2, min_participants=1))
    full, empty = Mean(), Mean()
    work = (trainer(aggregator, "full", full, [3.0]), trainer(aggregator, "empty", empty, []))
    with running(*work) as results:
        pass
    assert [type(result) for result in results] == [dict, dict]
    assert empty.trained == 0
    assert empty.weights["mean"].tolist() == [3.0] * 3


class Dawdler(Mean):
    def __init__(self) -> None:
        super().__init__()
        self.is_training, self.go = threading.Event(), threading.Event()

    def train(self, **data: Any) -> Any:
        self.is_training.set()
        self.go.wait(PATIENCE_S)
        return super().train(**data)


def test_a_straggler_is_left_behind_and_still_gets_the_result(federation: MakeFederation) -> None:
    aggregator = federation(
        settings=settings(2, min_participants=1, rounds=1, deadline_s=0.5), linger_s=PATIENCE_S
    )
    slow, quick = Dawdler(), Mean()
    work = (trainer(aggregator, "slow", slow, [9.0]), trainer(aggregator, "quick", quick, [3.0]))
    with running(*work) as results:
        eventually("the end of the quick one", lambda: results[1] is not None)
        slow.go.set()
    assert [type(result) for result in results] == [dict, dict]
    assert slow.weights["mean"].tolist() == [3.0] * 3


def test_who_joins_later_takes_part_from_then_on(federation: MakeFederation) -> None:
    aggregator = federation(settings=settings(1, rounds=2))
    first, late = Dawdler(), Mean()
    work = trainer(aggregator, "late", late, [3.0, 3.0, 3.0])
    with running(trainer(aggregator, "first", first, [0.0])), running(work):
        eventually("the late one's training", lambda: late.trained == 1)
        first.go.set()
    assert late.trained == 2
    assert late.weights["mean"] == pytest.approx([2.25] * 3)


# ---- participants that send nonsense ------------------------------------------------------------


class NotANumber(Mean):
    def train(self, **data: Any) -> Any:
        super().train(**data)
        self.weights["mean"][1] = np.nan


def test_a_model_that_diverged_is_not_sent(federation: MakeFederation) -> None:
    aggregator = federation(settings=settings(2, min_participants=1))
    good = Mean()
    work = (
        trainer(aggregator, "bad", NotANumber(), [1.0]),
        trainer(aggregator, "good", good, [3.0]),
    )
    with running(*work, may_raise=WeightsError) as results:
        pass
    assert isinstance(results[0], WeightsError)
    assert "tensor mean holds a number that is not finite" in str(results[0])
    assert good.weights["mean"].tolist() == [3.0] * 3


@pytest.fixture
def client(federation: MakeFederation) -> Iterator[AggregatorClient]:
    """A participant of a federation in its first round, beside one that behaves."""
    aggregator = federation(settings=settings(2, min_participants=1, rounds=1), linger_s=0.5)
    made = AggregatorClient(aggregator.server.address, name="bad", secret=own("bad"))
    good = Mean()
    with running(trainer(aggregator, "good", good, [3.0])):
        eventually("the good one's training", lambda: good.trained == 1)
        made.join(ONE)
        try:
            yield made
        finally:
            made.close()
    assert good.weights["mean"].tolist() == [3.0] * 3
    assert aggregator.join() is True


def test_numbers_that_are_none_are_refused_by_name(client: AggregatorClient) -> None:
    vector = np.array([1, np.nan, 2], dtype=np.float32)
    with pytest.raises(FederationError, match=r"tensor mean \[3\] float32 holds nan at 1"):
        client.send(1, vector, commit=Commit("", 5))


def test_another_shape_is_refused_by_name(client: AggregatorClient) -> None:
    other = Layout((TensorLayout("mean", (4,), "float32"),), is_named=True)
    with pytest.raises(FederationError, match=r"tensor mean \[4\] float32, expected mean \[3\]"):
        client.join(other)


def test_another_type_is_refused_by_name(client: AggregatorClient) -> None:
    other = Layout((TensorLayout("mean", (3,), "float64"),), is_named=True)
    with pytest.raises(FederationError, match=r"tensor mean \[3\] float64, expected mean \[3\]"):
        client.join(other)


@pytest.fixture
def peer(federation: MakeFederation) -> Iterator[Callable[..., Response]]:
    """Requests of somebody who knows the secret, joined as "bad", in the first round."""
    aggregator = federation(settings=settings(2), linger_s=0.1)
    made = HTTPPeer(aggregator.server.address, max_response_bytes=1 << 20)

    def ask(method: str, path: str, body: bytes = b"", **headers: str) -> Response:
        sent = {**headers_of(sender_of(path)), **headers}
        request = Request(method=method, path=path, body=body, headers=sent)
        return made.exchange(request, Deadline(PATIENCE_S))

    assert ask("POST", "/v1/participants/bad", protocol.encode(Join(ONE, "x"))).status == 200
    yield ask
    made.close()


PIECE = protocol.packed(b"\0" * 12, protocol.Encoding())
OFFER = protocol.encode(protocol.offer_of([b"\0" * 12]))
LONG = ".".join(["n" * 60] * 4)
UPDATE = "/v1/rounds/0/updates/bad"
NONSENSE: list[tuple[str, str, bytes, int, str]] = [
    ("PUT", f"{UPDATE}/0", PIECE[:-3], 400, "a piece of 9 bytes, expected 12: it was cut"),
    ("PUT", f"{UPDATE}/0", PIECE[:-1] + b"\1", 400, "checksum is another one"),
    ("PUT", f"{UPDATE}/7", PIECE, 400, "the update has no piece 7"),
    ("PUT", f"{UPDATE}/0", b"", 400, "a piece of 0 bytes"),
    ("POST", f"{UPDATE}/commit", b"\xc1", 400, "malformed Commit"),
    ("POST", f"{UPDATE}/commit", protocol.encode(Commit("other", 1)), 400, "make an offer first"),
    ("POST", "/v1/rounds/3/updates/bad", OFFER, 409, "round 3 is over"),
    ("POST", "/v1/rounds/0/updates/spy", OFFER, 404, "spy has not joined"),
    ("POST", "/v1/participants/..", protocol.encode(Join(ONE, "x")), 400, "a name is like"),
    ("POST", "/v1/participants/bad", b"{}", 400, "malformed Join"),
    ("POST", "/v1/participants/b2", protocol.encode(Join(Layout(()), "x")), 422, "0 numbers"),
    ("GET", "/v1/rounds/0/model/0", b"", 404, "no piece 0"),
    ("GET", "/v1/round?participant=bad&after=x", b"", 400, "after='x' is no number"),
    ("GET", "/v2", b"", 404, "no such path: GET /v2"),
    ("POST", f"/v1/participants/{LONG}", protocol.encode(Join(ONE, "x")), 422, "240 characters"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "says"), NONSENSE)
def test_nonsense_is_refused_in_words(
    peer: Any, method: str, path: str, body: bytes, status: int, says: str
) -> None:
    assert peer("POST", UPDATE, OFFER).status == 200
    answer = peer(method, path, body)
    assert (answer.status, says) == (answer.status, says if says in answer.body.decode() else "")
    assert answer.status == status


BESIDE_A_GOOD_ONE: dict[str, tuple[str, str, bytes, str, int]] = {
    "a piece that was cut": ("PUT", "/v1/rounds/1/updates/bad/0", PIECE[:-3], SECRET, 400),
    "another job's participant": ("POST", "/v1/participants/spy", b"", "of another job", 401),
}


@pytest.mark.parametrize("case", BESIDE_A_GOOD_ONE)
def test_the_round_goes_on_with_those_who_behave(federation: MakeFederation, case: str) -> None:
    method, path, body, secret, status = BESIDE_A_GOOD_ONE[case]
    aggregator = federation(settings=settings(2, min_participants=1, rounds=1), linger_s=0.5)
    peer = HTTPPeer(aggregator.server.address, max_response_bytes=1 << 20)

    def ask(method: str, path: str, body: bytes, secret: str = SECRET) -> int:
        headers = headers_of(sender_of(path), secret=secret)
        request = Request(method=method, path=path, body=body, headers=headers)
        return peer.exchange(request, Deadline(PATIENCE_S)).status

    good = Mean()
    with running(trainer(aggregator, "good", good, [3.0])):
        eventually("the good one's training", lambda: good.trained == 1)
        assert ask("POST", "/v1/participants/bad", protocol.encode(Join(ONE, "x"))) == 200
        assert ask("POST", "/v1/rounds/1/updates/bad", OFFER) == 200
        assert ask(method, path, body, secret) == status
        assert ask("DELETE", "/v1/participants/bad", b"") == 200
    peer.close()
    assert good.weights["mean"].tolist() == [3.0] * 3
    assert aggregator.join() is True


def test_without_the_secret_no_body_is_read(peer: Any) -> None:
    answer = peer("POST", "/v1/participants/bad", b"x" * 1000, Authorization="Bearer other")
    assert answer.status == 401
    assert "JOB_SECRET" in answer.body.decode()


# ---- processes that are killed ------------------------------------------------------------------


def test_a_killed_aggregator_goes_on_with_the_round(workers: Workers) -> None:
    aggregator = workers.start("aggregator", "aggregator", 2, 3, 3)
    trainers = [
        workers.start(name, "trainer", seconds, *DATA[name])
        for name, seconds in (("a", 0), ("b", 0), ("c", 1.5))
    ]
    workers.says("aggregator", "update received: name=a round=1")
    workers.says("aggregator", "update received: name=b round=1")
    kill(aggregator)
    aggregator = workers.start("aggregator", "aggregator", 2, 3, 3)
    assert [process.wait(PATIENCE_S) for process in (*trainers, aggregator)] == [0] * 4
    assert workers.final() == pytest.approx([MEAN_OF_ALL] * 3)
    assert workers.log("aggregator").read_text().count("update received: name=a round=1") == 1
    assert "'trained': 2.0" in workers.log("aggregator").read_text()  # by each, in two rounds


def test_a_killed_trainer_that_comes_again_takes_part_again(workers: Workers) -> None:
    aggregator = workers.start("aggregator", "aggregator", 2, 3, 3)
    others = [workers.start(name, "trainer", 0, *DATA[name]) for name in ("a", "b")]
    killed = workers.start("c", "trainer", 60, *DATA["c"])
    workers.says("aggregator", "participant joined: name=c")
    workers.says("aggregator", "update received: name=b round=1")
    kill(killed)
    again = workers.start("c", "trainer", 0, *DATA["c"])
    assert [process.wait(PATIENCE_S) for process in (*others, again, aggregator)] == [0] * 4
    assert workers.final() == pytest.approx([MEAN_OF_ALL] * 3)


def test_a_trainer_that_does_not_come_again_is_not_waited_for_for_ever(workers: Workers) -> None:
    aggregator = workers.start("aggregator", "aggregator", 2, 3, 2)
    trainers = [workers.start(name, "trainer", 0, *DATA[name]) for name in ("a", "b")]
    lost = workers.start("c", "trainer", 60, *DATA["c"])
    workers.says("aggregator", "participant joined: name=c")
    kill(lost)
    assert [process.wait(PATIENCE_S) for process in (*trainers, aggregator)] == [0] * 3
    assert workers.final() == pytest.approx([(10 + 80) / 30] * 3)


def test_a_full_disk_is_told_and_nothing_is_lost(workers: Workers) -> None:
    aggregator = workers.start("aggregator", "aggregator", 1, 1, 1, 8)  # no file beyond 8 bytes
    trainer_ = workers.start("a", "trainer", 0, 3.0)
    workers.says("a", "the aggregator cannot keep it: File too large")
    assert trainer_.poll() is None
    kill(aggregator)
    aggregator = workers.start("aggregator", "aggregator", 1, 1, 1)
    assert [process.wait(PATIENCE_S) for process in (trainer_, aggregator)] == [0, 0]
    assert workers.final().tolist() == [3.0] * 3


def test_sigterm_ends_the_aggregator_but_not_the_work(workers: Workers) -> None:
    """An exit status of 0 would be a success, and its pod not run again."""
    aggregator = workers.start("aggregator", "aggregator", 1, 1, 1)
    workers.says("aggregator", "aggregator listens")
    aggregator.terminate()
    assert aggregator.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert "stopping before the end: reason=SIGTERM" in workers.log("aggregator").read_text()
