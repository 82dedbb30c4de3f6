"""An aggregator that is started anew waits for those it knew, whatever they had sent by then."""

from collections.abc import Callable

import pytest

from edgeai.worker.federated.client import AggregatorClient
from edgeai.worker.federated.protocol import Encoding
from edgeai.worker.federated.rounds import FIRST, Rounds, RoundSettings
from edgeai.worker.federated.store import RoundStore
from tests.edgeai.worker.federated import test_store
from tests.edgeai.worker.federated.conftest import MakeFederation, own
from tests.edgeai.worker.federated.test_federation import settings
from tests.edgeai.worker.federated.test_server import NUMBERS, join, layout, state, vector
from tests.support.waiting import eventually

SETTINGS = RoundSettings(rounds=3, expected_participants=2, gone_after_s=10.0)


def resumed() -> Rounds:
    """In round 2, started anew at 0, when a and b had sent."""
    rounds = Rounds(SETTINGS, now_s=0.0, number=2)
    rounds.expect_again(("a", "b"), 0.0)
    for name in ("a", "b"):
        rounds.note_update(name, 1, 0.0)
    return rounds


def test_a_round_in_which_all_had_sent_waits_until_they_are_back() -> None:
    rounds = resumed()
    assert not rounds.can_close(0.1)
    rounds.join("a", 1.0)
    assert not rounds.can_close(1.0)
    rounds.join("b", 2.0)
    assert rounds.can_close(2.0)


def test_who_does_not_come_back_is_waited_for_as_long_as_anybody() -> None:
    rounds = resumed()
    rounds.join("a", 9.0)
    assert not rounds.can_close(9.9)
    assert rounds.can_close(10.0)


def test_who_leaves_is_not_waited_for() -> None:
    rounds = resumed()
    rounds.join("a", 1.0)
    rounds.leave("b")
    assert rounds.can_close(1.0)


def test_the_next_round_waits_for_who_is_not_back_yet() -> None:
    rounds = resumed()
    rounds.begin(3, 0.1)
    rounds.join("a", 0.2)
    rounds.note_update("a", 1, 0.3)
    assert not rounds.can_close(0.3)
    rounds.join("b", 0.4)
    rounds.note_update("b", 1, 0.5)
    assert rounds.can_close(0.5)


def test_who_is_not_back_must_join() -> None:
    """So it hears of the encoding, and that nobody else has its name."""
    rounds = resumed()
    assert not rounds.note_beat("a", 0.1)
    rounds.join("a", 0.2)
    assert rounds.note_beat("a", 0.3)


def last_round_sent(store: RoundStore) -> None:
    """By a and b, who are to have the result."""
    store.seed(vector(0), layout())
    for name in ("a", "b"):
        test_store.send(store, name, vector(2), samples=1)


def test_who_had_sent_the_last_update_has_the_result(
    federation: MakeFederation, opened: Callable[..., RoundStore]
) -> None:
    last_round_sent(opened())
    aggregator = federation(settings=settings(2, rounds=1, gone_after_s=30.0))
    names = ("a", "b")
    assert join(aggregator, "a").status == 200
    assert not state(aggregator, "a", wait_s=0.3).is_finished
    assert join(aggregator, "b").status == 200
    eventually("the end", lambda: all(state(aggregator, name).is_finished for name in names))
    for name in names:
        aggregator.ask("DELETE", f"/v1/participants/{name}")
    assert aggregator.join() is True


@pytest.mark.parametrize("path", ["/v1/rounds/1/model/0", "/v1/round?participant=a"])
def test_a_process_that_has_not_joined_again_is_told_to(
    federation: MakeFederation, opened: Callable[..., RoundStore], path: str
) -> None:
    opened().seed(vector(0), layout())
    aggregator = federation(settings=settings(2))
    assert aggregator.ask("GET", path, instance="x").status == 404
    assert join(aggregator, "a", instance="x").status == 200
    assert aggregator.ask("GET", path, instance="x").status == 200


def test_of_two_processes_of_one_name_one_is_left(
    federation: MakeFederation, opened: Callable[..., RoundStore]
) -> None:
    """Though the aggregator that knew which is the older is gone."""
    opened().seed(vector(0), layout())
    aggregator = federation(settings=settings(2))
    beat = ("POST", "/v1/participants/a/beat")
    assert join(aggregator, "a", instance="one").status == 200
    assert aggregator.ask(*beat, instance="other").status == 404
    assert join(aggregator, "a", instance="other").status == 200
    assert aggregator.ask(*beat, instance="one").status == 410
    assert aggregator.ask("DELETE", "/v1/participants/a", instance="one").status == 410
    assert aggregator.ask(*beat, instance="other").status == 200


def test_a_trainer_goes_on_with_an_aggregator_of_another_precision(
    federation: MakeFederation, opened: Callable[..., RoundStore]
) -> None:
    opened().seed(vector(3), layout())
    first = federation(settings=settings(1))
    address = first.server.address
    client = AggregatorClient(address, name="a", secret=own("a"))
    client.join(layout())
    first.stop()
    federation(port=address.port, settings=settings(1), encoding=Encoding("float16"))
    try:
        assert client.fetch(FIRST, NUMBERS).tolist() == [3.0] * NUMBERS
    finally:
        client.close()
