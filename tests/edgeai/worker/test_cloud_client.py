"""What a hard sample costs and gets, against clouds that misbehave on real sockets."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

import numpy as np
import pytest

from edgeai.backoff import Backoff
from edgeai.worker.circuit_breaker import CircuitBreaker, Ticket
from edgeai.worker.cloud_client import MAX_REQUEST_BYTES, CloudAnswer, CloudClient
from edgeai.worker.environment import Address
from edgeai.worker.errors import TensorError
from edgeai.worker.results import Reason
from tests.edgeai.worker import peers
from tests.edgeai.worker.peers import LOOPBACK, Behaviour, ScriptedCloud
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

TIMEOUT_S = 0.3  # where the deadline is the test; elsewhere a busy machine has PATIENCE_S
SOON_S = PATIENCE_S / 4  # a peer that hangs does so for PATIENCE_S


class MakeClient(Protocol):
    def __call__(
        self,
        address: Address,
        *,
        pause_s: float = 0.0,
        timeout_s: float = PATIENCE_S,
        max_request_bytes: int = MAX_REQUEST_BYTES,
    ) -> CloudClient: ...


@pytest.fixture
def client() -> Iterator[MakeClient]:
    """Clients that pause for exactly `pause_s` after a failure; 0: they ask every time."""
    with contextlib.ExitStack() as stack:

        def make(
            address: Address,
            *,
            pause_s: float = 0.0,
            timeout_s: float = PATIENCE_S,
            max_request_bytes: int = MAX_REQUEST_BYTES,
        ) -> CloudClient:
            backoff = Backoff(base_s=pause_s, max_s=pause_s, uniform=lambda _low, high: high)
            made = CloudClient(
                address,
                timeout_s=timeout_s,
                max_request_bytes=max_request_bytes,
                breaker=FreeBreaker(backoff),
            )
            stack.callback(made.close)
            return made

        yield make


class FreeBreaker(CircuitBreaker):
    """Charges nothing for calls that hang, so that a test knows the pause."""

    def failed(self, ticket: Ticket, *, cost_s: float, retry_after_s: float = 0.0) -> None:
        super().failed(ticket, cost_s=0.0, retry_after_s=retry_after_s)


def reasons(answers: list[CloudAnswer]) -> list[Reason]:
    return [answer.reason for answer in answers]


def test_answers_come_in_the_order_of_the_samples(client: MakeClient) -> None:
    batch = np.arange(5.0).reshape(5, 1)
    with ScriptedCloud(peers.answer) as cloud:
        answers = client(cloud.address).ask(batch)
    assert [answer.answer.tolist() for answer in answers] == [[0.0], [2.0], [4.0], [6.0], [8.0]]
    assert all(answer.is_sent for answer in answers)
    assert len(cloud.requests) == 1, "one batch is one request"


@pytest.mark.parametrize("behaviour", [peers.hang, peers.trickle, peers.trickle_head])
def test_dawdling_is_a_timeout_within_the_deadline(
    behaviour: Behaviour, client: MakeClient
) -> None:
    with ScriptedCloud(behaviour) as cloud:
        started_s = time.monotonic()
        answers = client(cloud.address, timeout_s=TIMEOUT_S).ask(peers.samples(3))
        took_s = time.monotonic() - started_s
    assert reasons(answers) == [Reason.CLOUD_TIMEOUT] * 3
    assert all(answer.is_sent for answer in answers)
    assert took_s < SOON_S


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (peers.close_unanswered, Reason.CLOUD_UNREACHABLE),
        (peers.reset_in_body, Reason.CLOUD_UNREACHABLE),
        (peers.cut_body, Reason.CLOUD_UNREACHABLE),
        (peers.speak_garbage, Reason.CLOUD_ERROR),
        (peers.answer_garbage, Reason.CLOUD_ERROR),
        (peers.answer_too_few, Reason.CLOUD_ERROR),
        (peers.announce_too_much, Reason.CLOUD_ERROR),
        (peers.fail, Reason.CLOUD_ERROR),
        (peers.be_busy, Reason.CLOUD_ERROR),
    ],
)
def test_misbehaviour_gives_a_reason_at_once(
    behaviour: Behaviour, reason: Reason, client: MakeClient
) -> None:
    with ScriptedCloud(behaviour) as cloud:
        started_s = time.monotonic()
        answers = client(cloud.address).ask(peers.samples(3))
        took_s = time.monotonic() - started_s
    assert reasons(answers) == [reason] * 3
    assert all(answer.is_sent for answer in answers)
    assert took_s < SOON_S


def test_dead_port_is_unreachable_and_nothing_was_sent(client: MakeClient) -> None:
    answers = client(Address(LOOPBACK, free_port())).ask(peers.samples(2))
    assert reasons(answers) == [Reason.CLOUD_UNREACHABLE] * 2
    assert not any(answer.is_sent for answer in answers)


def test_half_open_peer_is_a_timeout(client: MakeClient) -> None:
    with peers.silent_listener() as address:
        answers = client(address, timeout_s=TIMEOUT_S).ask(peers.samples(1))
    assert reasons(answers) == [Reason.CLOUD_TIMEOUT]


def test_request_that_the_peer_never_takes_in_full_was_not_sent(client: MakeClient) -> None:
    big = np.zeros((1, 12_000_000), dtype=np.uint8)  # beyond any socket buffer
    with peers.silent_listener() as address:
        answers = client(address, timeout_s=TIMEOUT_S).ask(big)
    assert reasons(answers) == [Reason.CLOUD_TIMEOUT]
    assert not answers[0].is_sent


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".invalid"])
def test_name_that_does_not_resolve_is_unreachable(host: str, client: MakeClient) -> None:
    answers = client(Address(host, 5000), timeout_s=5).ask(peers.samples(1))
    assert answers[0].reason in (Reason.CLOUD_UNREACHABLE, Reason.CLOUD_TIMEOUT)


def test_connection_is_kept(client: MakeClient) -> None:
    with ScriptedCloud(peers.answer) as cloud:
        asking = client(cloud.address)
        for _ in range(5):
            asking.ask(peers.samples(1))
        asking.close()
    assert cloud.connections == 1


def test_dead_kept_connection_is_replaced_within_the_same_call(client: MakeClient) -> None:
    with ScriptedCloud(peers.answer_then_close_quietly) as cloud:
        asking = client(cloud.address)
        found = [reasons(asking.ask(peers.samples(1))) for _ in range(4)]
    assert found == [[Reason.HARD]] * 4


def test_request_is_not_repeated_once_a_byte_of_the_answer_came(client: MakeClient) -> None:
    def answer_once_then_cut(exchange: peers.Exchange) -> bool | None:
        behaviour: Behaviour = peers.answer if len(cloud.requests) == 1 else peers.cut_body
        return behaviour(exchange)

    with ScriptedCloud(answer_once_then_cut) as cloud:
        asking = client(cloud.address)
        assert reasons(asking.ask(peers.samples(1))) == [Reason.HARD]
        assert reasons(asking.ask(peers.samples(1))) == [Reason.CLOUD_UNREACHABLE]
        assert len(cloud.requests) == 2


def test_request_is_not_repeated_on_a_new_connection(client: MakeClient) -> None:
    with ScriptedCloud(peers.close_unanswered) as cloud:
        client(cloud.address).ask(peers.samples(1))
        assert len(cloud.requests) == 1


def test_large_batch_takes_several_requests_under_one_deadline(client: MakeClient) -> None:
    batch = np.arange(10, dtype=np.uint8).repeat(100).reshape(10, 100)
    with ScriptedCloud(peers.answer) as cloud:
        asking = client(cloud.address, max_request_bytes=256 + 300)
        answers = asking.ask(batch)
        assert [len(request) for request in cloud.requests] == [3, 3, 3, 1]
    assert [answer.answer[0] for answer in answers] == [2 * value for value in range(10)]


def test_parts_of_a_batch_share_the_deadline(client: MakeClient) -> None:
    with ScriptedCloud(peers.hang) as cloud:
        asking = client(cloud.address, timeout_s=TIMEOUT_S, max_request_bytes=256 + 4)
        started_s = time.monotonic()
        answers = asking.ask(peers.samples(20))
    assert time.monotonic() - started_s < SOON_S
    assert [answer.is_sent for answer in answers] == [True] + [False] * 19


def test_sample_beyond_the_limit_is_not_sent(client: MakeClient) -> None:
    with ScriptedCloud(peers.answer) as cloud:
        asking = client(cloud.address, max_request_bytes=512)
        answers = asking.ask(np.zeros((2, 1000), dtype=np.uint8))
    assert reasons(answers) == [Reason.SAMPLE_TOO_LARGE] * 2
    assert cloud.requests == []


def test_dtype_that_cannot_travel_is_the_callers_error(client: MakeClient) -> None:
    with pytest.raises(TensorError, match="complex"):
        client(Address(LOOPBACK, 1)).ask(np.zeros(1, dtype=np.complex128))


@pytest.mark.parametrize("behaviour", [peers.close_unanswered, peers.be_busy, peers.hang])
def test_failing_cloud_is_left_alone(behaviour: Behaviour, client: MakeClient) -> None:
    with ScriptedCloud(behaviour) as cloud:
        timeout_s = TIMEOUT_S if behaviour is peers.hang else PATIENCE_S
        asking = client(cloud.address, pause_s=3600, timeout_s=timeout_s)
        asking.ask(peers.samples(1))
        later = [asking.ask(peers.samples(1))[0] for _ in range(100)]
        assert len(cloud.requests) == 1
    assert {answer.reason for answer in later} == {Reason.CLOUD_BACKING_OFF}
    assert not any(answer.is_sent for answer in later)


@pytest.mark.parametrize("behaviour", [peers.fail, peers.answer_garbage, peers.answer_too_few])
def test_error_of_one_sample_does_not_bar_the_next(
    behaviour: Behaviour, client: MakeClient
) -> None:
    with ScriptedCloud(behaviour) as cloud:
        asking = client(cloud.address, pause_s=3600)
        asking.ask(peers.samples(1))
        cloud.behaviour = peers.answer
        assert reasons(asking.ask(peers.samples(1))) == [Reason.HARD]


def test_cloud_that_returns_is_used_again(client: MakeClient) -> None:
    port = free_port()
    asking = client(Address(LOOPBACK, port))
    assert reasons(asking.ask(peers.samples(1))) == [Reason.CLOUD_UNREACHABLE]
    with ScriptedCloud(peers.answer, port) as cloud:
        assert asking.ask(peers.samples(1))[0].reason is Reason.HARD
        assert len(cloud.requests) == 1


class Interrupted(BaseException):
    """What Ctrl-C is to a worker, without pytest's own handling of that."""


@pytest.fixture
def interrupt_main_thread() -> Iterator[Callable[[], None]]:
    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_cloud_is_asked_again_after_an_interrupted_probe(
    client: MakeClient, interrupt_main_thread: Callable[[], None]
) -> None:
    def interrupt_and_hang(exchange: peers.Exchange) -> None:
        interrupt_main_thread()
        exchange.hang()

    with ScriptedCloud(peers.close_unanswered) as cloud:
        asking = client(cloud.address)
        assert reasons(asking.ask(peers.samples(1))) == [Reason.CLOUD_UNREACHABLE]
        cloud.behaviour = interrupt_and_hang
        with pytest.raises(Interrupted):
            asking.ask(peers.samples(1))
        cloud.behaviour = peers.answer
        assert reasons(asking.ask(peers.samples(1))) == [Reason.HARD]


def test_threads_share_one_client(client: MakeClient) -> None:
    found: list[CloudAnswer] = []
    with ScriptedCloud(peers.answer) as cloud:
        asking = client(cloud.address)

        def ask(value: float) -> None:
            for _ in range(10):
                found.extend(asking.ask(peers.samples(1, value)))

        threads = [threading.Thread(target=ask, args=(float(value),)) for value in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = sorted(answer.answer.item() for answer in found)
    assert values == sorted([2.0 * value for value in range(8)] * 10)
