"""Who is to have the result: it is known to the directory, whoever restarts there."""

from typing import Any

from edgeai.worker.federated.aggregations import FedAvg
from edgeai.worker.federated.aggregator import Aggregator
from edgeai.worker.federated.protocol import Join
from edgeai.worker.federated.store import RoundStore
from tests.edgeai.worker.federated.conftest import Slow, running
from tests.edgeai.worker.federated.test_aggregator import LAYOUT, WEIGHTS, goes_on, joined, send
from tests.edgeai.worker.federated.test_federation import settings
from tests.edgeai.worker.federated.test_store import seeded, vector
from tests.edgeai.worker.federated.test_store import send as store_update
from tests.support.waiting import PATIENCE_S

NEVER_S = 3 * PATIENCE_S  # a test that waits for this fails


# ---- the directory ------------------------------------------------------------------------------


def finished(store: RoundStore, *recipients: str) -> RoundStore:
    seeded(store)
    store_update(store, "a", vector(1), samples=1)
    store.aggregate(FedAvg(), is_last=True, recipients=recipients)
    return store


def test_the_last_rounds_takers_are_kept(opened: Any) -> None:
    assert finished(opened(), "a", "b").state.recipients == ("a", "b")
    assert opened().state.recipients == ("a", "b")


def test_another_rounds_takers_are_not(opened: Any) -> None:
    store = seeded(opened())
    store_update(store, "a", vector(1), samples=1)
    store.aggregate(FedAvg(), is_last=False, recipients=["a"])
    store.add_recipient("b")
    assert store.state.recipients == opened().state.recipients == ()


def test_a_taker_more_is_kept_once_beside_the_others(opened: Any) -> None:
    store = finished(opened(), "a", "b")
    for _ in range(2):
        store.add_recipient("c")
    assert store.state.recipients == opened().state.recipients == ("a", "b", "c")


def test_who_has_the_result_is_a_taker_no_more(opened: Any) -> None:
    store = finished(opened(), "a", "b", "c")
    store.remove_recipient("b")
    store.remove_recipient("nobody")
    assert store.state.recipients == opened().state.recipients == ("a", "c")


# ---- who becomes one ----------------------------------------------------------------------------


def ended(store: RoundStore, *names: str) -> Aggregator:
    """After its only round, with these participants."""
    aggregator = joined(store, *names, rounds=1)
    for name in names:
        send(aggregator, name)
    aggregator.close_round(goes_on)
    return aggregator


def test_all_who_are_present_at_the_end_are_to_have_the_result(opened: Any) -> None:
    ended(opened(), "a", "b")
    assert opened().state.recipients == ("a", "b")


def test_who_joins_after_the_end_is_to_have_it_too(opened: Any) -> None:
    ended(opened(), "a").join("late", Join(LAYOUT, "late"))
    assert opened().state.recipients == ("a", "late")


def test_who_joins_while_the_last_updates_are_joined_is_to_have_it_too(opened: Any) -> None:
    slow = Slow()
    aggregator = Aggregator(opened(), slow, settings(1, rounds=1))
    aggregator.seed(WEIGHTS)
    aggregator.join("a", Join(LAYOUT, "a"))
    send(aggregator, "a")
    with running(lambda: aggregator.close_round(goes_on)):
        assert slow.begins.wait(PATIENCE_S)
        try:
            aggregator.join("late", Join(LAYOUT, "late"))
        finally:
            slow.go.set()
    assert opened().state.recipients == ("a", "late")


def test_who_leaves_has_it(opened: Any) -> None:
    aggregator = ended(opened(), "a", "b")
    aggregator.leave("a")
    assert opened().state.recipients == ("b",)
    assert not aggregator.wait_until_all_left(0.0)
    aggregator.leave("b")
    assert opened().state.recipients == ()
    assert aggregator.wait_until_all_left(0.0)


def test_an_aggregator_made_anew_waits_for_the_takers_and_nobody_else(opened: Any) -> None:
    ended(opened(), "a", "b").leave("a")
    again = Aggregator(opened(), FedAvg(), settings(2, rounds=1, gone_after_s=NEVER_S))
    assert not again.wait_until_all_left(0.0)
    again.join("b", Join(LAYOUT, "another process"))
    assert not again.wait_until_all_left(0.0)
    again.leave("b")
    assert again.wait_until_all_left(0.0)
