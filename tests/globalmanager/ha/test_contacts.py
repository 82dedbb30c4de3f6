"""Claims of all replicas joined: which nodes have a session, which session is the newest."""

from datetime import UTC, datetime, timedelta

import pytest

from common import clock
from edgeai.ids import NodeName
from globalmanager.contract import Contact
from globalmanager.ha.claims import NO_CLAIMS, Claim
from globalmanager.ha.contacts import Contacts, ContactSubscriber

A, B = NodeName("a"), NodeName("b")
START = datetime(2026, 3, 4, tzinfo=UTC)
OTHER = "other"


class WallClock(clock.Clock):
    """A wall clock, and the monotonic clock beside it. `set_back` changes the wall clock alone."""

    def __init__(self) -> None:
        self.now = START
        self._ahead = timedelta(0)

    def utcnow(self) -> datetime:
        return self.now

    def elapsed(self) -> float:
        return (self.now + self._ahead - START).total_seconds()

    def set_back(self, by: timedelta) -> None:
        self.now -= by
        self._ahead += by


class ContactNews(ContactSubscriber):
    """Contacts, and the news of them."""

    def __init__(self) -> None:
        self.clock = WallClock()
        self.contacts = Contacts(self.clock)
        self.news: list[tuple[str, NodeName]] = []
        self.own_changes = 0
        self.contacts.subscribe(self)

    def contact_changed(self, node: NodeName) -> None:
        self.news.append(("contact", node))

    def newer_claim(self, node: NodeName, claim: Claim) -> None:
        self.news.append(("newer", node))

    def clash(self, node: NodeName) -> None:
        self.news.append(("clash", node))

    def own_claims_changed(self) -> None:
        self.own_changes += 1

    def take_news(self) -> list[tuple[str, NodeName]]:
        news, self.news = self.news, []
        return news


@pytest.fixture
def world() -> ContactNews:
    return ContactNews()


def claim(order: int = 1, *, clashes: int = 0) -> Claim:
    return Claim(order=order, since=0, ledger="ledger", clashes=clashes)


def test_an_own_session_is_a_contact_until_it_ends(world: ContactNews) -> None:
    world.contacts.claim(A, ledger="ledger")
    assert world.contacts.by_node() == {A: Contact(True, START)}
    world.clock.now += timedelta(seconds=5)
    world.contacts.release(A)
    assert world.contacts.by_node() == {A: Contact(False, world.clock.now)}
    assert world.news == [("contact", A), ("contact", A)]
    assert world.own_changes == 2


def test_a_session_that_moves_between_replicas_is_one_contact(world: ContactNews) -> None:
    world.contacts.claim(A, ledger="ledger")
    world.take_news()
    world.contacts.put_other(OTHER, {A: claim(2)})
    world.contacts.release(A)
    assert world.contacts.by_node() == {A: Contact(True, START)}
    assert world.take_news() == [("newer", A)]


def test_nodes_without_a_session_anywhere(world: ContactNews) -> None:
    contacts = world.contacts
    assert contacts.without_session([A, B]) == {A, B}
    contacts.claim(A, ledger="l")
    assert contacts.without_session([A, B]) == {B}
    contacts.put_other(OTHER, {A: claim(2), B: claim(1)})
    contacts.release(A)
    assert contacts.without_session([A, B]) == set()
    contacts.drop_other(OTHER)
    assert contacts.without_session([A, B]) == {A, B}
    assert contacts.without_session([]) == set()


def test_each_new_session_is_newer_than_all_that_are_known(world: ContactNews) -> None:
    world.contacts.put_other(OTHER, {A: claim(5)})
    world.contacts.claim(A, ledger="ledger")
    assert world.contacts.own_claims[A].order == 6
    world.contacts.claim(A, ledger="ledger")
    assert world.contacts.own_claims[A].order == 7


def test_sessions_that_opened_unknown_to_each_other_stand_side_by_side(world: ContactNews) -> None:
    world.contacts.claim(A, ledger="ledger")
    world.contacts.put_other(OTHER, {A: claim(1)})
    assert ("newer", A) not in world.news


def test_the_newest_claim_of_the_others_is_the_one_elsewhere(world: ContactNews) -> None:
    world.contacts.put_other("one", {A: claim(3)})
    world.contacts.put_other("two", {A: claim(7), B: claim(1)})
    assert world.contacts.elsewhere(A) == claim(7)
    world.contacts.drop_other("two")
    assert (world.contacts.elsewhere(A), world.contacts.elsewhere(B)) == (claim(3), None)


def test_contacts_of_a_silent_replica_end_when_it_was_last_heard(world: ContactNews) -> None:
    world.contacts.put_other(OTHER, {A: claim()})
    last_heard = START - timedelta(seconds=9)
    world.contacts.put_other(OTHER, NO_CLAIMS, ago_s=9)
    assert world.contacts.by_node() == {A: Contact(False, last_heard)}


def test_a_wall_clock_that_is_set_changes_no_age(world: ContactNews) -> None:
    world.contacts.claim(A, ledger="ledger")
    world.contacts.release(A)
    contacts = world.contacts.by_node()
    world.clock.now += timedelta(seconds=50)
    assert contacts[A] == Contact(False, START)
    for by in (timedelta(hours=1), timedelta(days=-1)):
        world.clock.set_back(by)
        assert world.clock.now - contacts[A].since == timedelta(seconds=50)
    world.clock.set_back(timedelta(days=1) - timedelta(hours=1, milliseconds=300))
    assert contacts[A] == Contact(False, START), "an unsteady clock makes no new value"


def test_news_is_of_changed_claims_only(world: ContactNews) -> None:
    world.contacts.put_other(OTHER, {A: claim()})
    world.take_news()
    world.contacts.put_other(OTHER, {A: claim(), B: claim()})
    assert world.take_news() == [("contact", B)]
    world.contacts.put_other(OTHER, {A: claim(), B: claim()})
    assert world.take_news() == []


def test_each_clash_is_told_once(world: ContactNews) -> None:
    world.contacts.put_other(OTHER, {A: claim(clashes=1)})
    world.contacts.put_other(OTHER, {A: claim(2, clashes=1)})
    world.contacts.put_other(OTHER, NO_CLAIMS)  # silent
    world.contacts.put_other(OTHER, {A: claim(2, clashes=1)})
    assert world.take_news().count(("clash", A)) == 1
    world.contacts.put_other(OTHER, {A: claim(2, clashes=2)})
    assert world.take_news() == [("clash", A)]


def test_a_clash_before_the_session_is_open_is_in_its_claim(world: ContactNews) -> None:
    world.contacts.clash(A)
    world.contacts.claim(A, ledger="ledger")
    assert world.contacts.own_claims[A].clashes == 1
    world.contacts.clash(A)
    assert world.contacts.own_claims[A].clashes == 2
