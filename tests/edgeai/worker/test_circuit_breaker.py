"""When the cloud is asked again, on a clock that the test owns."""

import pytest

from edgeai.backoff import Backoff
from edgeai.worker.circuit_breaker import CircuitBreaker, Ticket
from tests.support.clock import Clock


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    """Without jitter: each pause is the cap of the moment, 1, 2, 4, 4, … seconds."""
    return CircuitBreaker(Backoff(base_s=1, max_s=4, uniform=lambda _low, high: high), clock)


def admitted(breaker: CircuitBreaker) -> Ticket:
    ticket = breaker.admit()
    assert ticket is not None
    return ticket


def test_closed_admits_everyone(breaker: CircuitBreaker) -> None:
    assert breaker.admit() is not None
    assert breaker.admit() is not None


def test_failure_opens_until_the_pause_is_over(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.failed(admitted(breaker), cost_s=0)
    clock.now_s += 0.99
    assert breaker.admit() is None
    clock.now_s += 0.01
    assert breaker.admit() is not None


def test_one_probe_alone_is_let_through(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.failed(admitted(breaker), cost_s=0)
    clock.now_s += 1
    probe = admitted(breaker)
    assert breaker.admit() is None
    breaker.succeeded(probe)
    assert breaker.admit() is not None


def pauses(breaker: CircuitBreaker, clock: Clock, *, failures: int, cost_s: float) -> list[float]:
    """How long each of `failures` in a row keeps the circuit open; the last probe succeeds."""
    found = []
    ticket = admitted(breaker)
    for _ in range(failures):
        breaker.failed(ticket, cost_s=cost_s)
        opened_s = clock.now_s
        while (probe := breaker.admit()) is None:
            clock.now_s += 0.5
        ticket = probe
        found.append(clock.now_s - opened_s)
    breaker.succeeded(ticket)
    return found


def test_pause_grows_and_is_bounded(breaker: CircuitBreaker, clock: Clock) -> None:
    assert pauses(breaker, clock, failures=5, cost_s=0) == [1, 2, 4, 4, 4]


def test_calls_that_hang_become_rare(breaker: CircuitBreaker, clock: Clock) -> None:
    found = pauses(breaker, clock, failures=15, cost_s=2)
    assert found[0] == 1, "one timeout alone must not cost a long pause"
    assert found[-1] == 4 + 9 * 2, "nine parts of ten of the time are free of it"


def test_success_forgets_the_failures(breaker: CircuitBreaker, clock: Clock) -> None:
    pauses(breaker, clock, failures=5, cost_s=0)
    assert pauses(breaker, clock, failures=1, cost_s=0) == [1]


def test_calls_that_were_under_way_count_as_one_failure(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    tickets = [admitted(breaker) for _ in range(8)]
    for ticket in tickets:
        breaker.failed(ticket, cost_s=0)
    clock.now_s += 1
    assert breaker.admit() is not None


def test_late_success_of_a_past_era_does_not_close(breaker: CircuitBreaker) -> None:
    late, ticket = admitted(breaker), admitted(breaker)
    breaker.failed(ticket, cost_s=0)
    breaker.succeeded(late)
    assert breaker.admit() is None


def test_retry_after_is_honoured(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.failed(admitted(breaker), cost_s=0, retry_after_s=30)
    clock.now_s += 29
    assert breaker.admit() is None
