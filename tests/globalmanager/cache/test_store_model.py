"""The store against a model of the API: a gone object stays gone, however late its events are."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import data, sampled_from

from edgeai.api.resources import Object, ObjectRef
from globalmanager.cache.store import Store, uid_of
from tests.globalmanager.objects import GADGETS, make

NAMES = sampled_from("ab")


class Event(NamedTuple):
    version: int
    object: Object | None  # None: the deletion of `last`
    last: Object


class Answer(NamedTuple):
    """The answer to a GET."""

    ref: ObjectRef
    expected: str  # uid that the store knew when the GET was sent
    object: Object | None


class Listing(NamedTuple):
    asked: int
    objects: list[Object]
    version: int


def ref_to(name: str) -> ObjectRef:
    return ObjectRef(GADGETS, "ns", name)


class LateStore(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store(GADGETS)
        self.version = 0
        self.truth: dict[str, Object] = {}
        self.events: list[Event] = []  # the watch has not delivered them yet
        self.answers: list[Answer] = []  # on their way to the store
        self.asked: int | None = None  # for a requested list that the API has not made yet
        self.listing: Listing | None = None  # a list on its way to the store
        self.gone: set[str] = set()  # uids whose absence the store has recorded

    # ---- actions of users -----------------------------------------------------------------------

    @rule(name=NAMES)
    def write(self, name: str) -> None:
        """Create or change an object."""
        self.version += 1
        old = self.truth.get(name)
        uid = uid_of(old) if old else f"uid-{self.version}"
        self.truth[name] = make(name, version=self.version, uid=uid)
        self.events.append(Event(self.version, self.truth[name], self.truth[name]))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        old = self.truth.pop(name, None)
        if old is not None:
            self.version += 1
            last = make(name, version=self.version, uid=uid_of(old))
            self.events.append(Event(self.version, None, last))

    # ---- requests, answers and events -----------------------------------------------------------

    @rule(name=NAMES)
    def ask(self, name: str) -> None:
        known = self.store.get(ref_to(name))
        expected = uid_of(known) if known else ""
        self.answers.append(Answer(ref_to(name), expected, self.truth.get(name)))

    @precondition(lambda self: self.answers)
    @rule(data=data())
    def hear_answer(self, data: object) -> None:
        number = data.draw(sampled_from(range(len(self.answers))))  # type: ignore[attr-defined]
        self._hear(self.answers.pop(number))

    def _hear(self, answer: Answer) -> None:
        if answer.object is not None:
            self.store.observe(answer.object)
            found = uid_of(answer.object)
        else:
            found = ""
        if answer.expected and answer.expected != found:
            self.store.observe_gone(answer.ref, answer.expected)
            self.gone.add(answer.expected)

    @precondition(lambda self: self.events and self.asked is None and self.listing is None)
    @rule()
    def hear_event(self) -> None:
        event = self.events.pop(0)
        if event.object is None:
            self.store.remove(event.last)
        else:
            self.store.upsert(event.object)

    @precondition(lambda self: self.asked is None and self.listing is None)
    @rule()
    def ask_for_list(self) -> None:
        self.asked = self.store.absences

    @precondition(lambda self: self.asked is not None)
    @rule()
    def make_list(self) -> None:
        assert self.asked is not None
        self.listing = Listing(self.asked, list(self.truth.values()), self.version)
        self.asked = None

    @precondition(lambda self: self.listing is not None)
    @rule()
    def hear_list(self) -> None:
        assert self.listing is not None
        asked, objects, version = self.listing
        self.listing = None
        self.store.replace(objects, str(version), absences=asked, rewound=False)
        self.events = [event for event in self.events if event.version > version]

    # ---- invariants -----------------------------------------------------------------------------

    @invariant()
    def the_gone_stay_gone(self) -> None:
        assert self.gone.isdisjoint(uid_of(object_) for object_ in self.store.list())

    def teardown(self) -> None:
        while self.answers:
            self._hear(self.answers.pop())
        if self.asked is not None:
            self.make_list()
        if self.listing is not None:
            self.hear_list()
        while self.events:
            self.hear_event()
        assert {o["metadata"]["name"]: o for o in self.store.list()} == self.truth


TestLateStore = LateStore.TestCase
TestLateStore.settings = settings(max_examples=100, stateful_step_count=40)
