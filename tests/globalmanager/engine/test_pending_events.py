"""Events that wait: bounded, coalesced per object and reason, the last word on each object kept."""

from hypothesis import given
from hypothesis import strategies as st

from globalmanager.contract import Event, Severity
from globalmanager.engine import pending_events
from globalmanager.engine.events import event_ref
from globalmanager.engine.pending_events import PendingEvent, PendingEvents, Subject
from tests.globalmanager.objects import make

EVENTS_PER_S = 10  # as the Recorder sends them


def pending(name: str, reason: str, message: str = "") -> PendingEvent:
    about, event = make(name, namespace="default"), Event(Severity.NORMAL, reason, message)
    return PendingEvent(Subject.of(about), event, event_ref(about, event))


def words(one: PendingEvent) -> tuple[str, str, str]:
    return one.subject.name, one.event.reason, one.event.message


def drained(events: PendingEvents) -> list[PendingEvent]:
    return [events.pop() for _ in range(len(events))]


def filled(count: int) -> PendingEvents:
    """So many objects, of which each has one Event."""
    events = PendingEvents()
    assert sum(events.add(pending(f"quiet{n}", "Ready")) for n in range(count)) == 0
    return events


def test_while_there_is_room_every_event_waits() -> None:
    events = PendingEvents()
    for number in range(pending_events.MAX_WAITING):
        assert events.add(pending("a", "Created", f"pod {number}")) == 0
    assert len(drained(events)) == pending_events.MAX_WAITING


def test_equal_events_are_counted() -> None:
    events = PendingEvents()
    for _ in range(3):
        events.add(pending("a", "Created", "pod"))
    (one,) = drained(events)
    assert one.times == 3


def test_without_room_the_newest_of_a_reason_counts_for_the_older_ones() -> None:
    events = filled(pending_events.MAX_WAITING)
    assert [events.add(pending("busy", "Created", f"pod {n}")) for n in range(5)] == [0] * 5
    told = [one for one in drained(events) if one.subject.name == "busy"]
    assert [words(one) for one in told] == [("busy", "Created", "pod 4")]
    assert told[0].times == 5


def test_without_room_another_reason_is_dropped_and_the_last_word_stays() -> None:
    events = filled(pending_events.MAX_WAITING)
    reasons = ["Starting", "Broken", "Running"]
    assert [events.add(pending("busy", reason)) for reason in reasons] == [0, 1, 1]
    told = [one.event.reason for one in drained(events) if one.subject.name == "busy"]
    assert told == ["Running"]


def test_an_object_with_many_events_gives_way_to_objects_with_one() -> None:
    events = PendingEvents()
    for number in range(pending_events.MAX_WAITING):
        events.add(pending("busy", "Created", f"pod {number}"))
    assert [events.add(pending(f"quiet{n}", "Ready")) for n in range(900)] == [0] * 900
    names = [one.subject.name for one in drained(events)]
    assert len(names) == pending_events.MAX_WAITING
    assert {f"quiet{n}" for n in range(900)} < {*names}


def test_objects_take_turns() -> None:
    events = PendingEvents()
    for name in ("a", "a", "a", "b", "b", "c"):
        events.add(pending(name, "Created", str(len(events))))
    order = [one.subject.name for one in drained(events)]
    assert order == ["a", "b", "c", "a", "b", "a"]


def test_an_event_that_was_not_sent_is_older_than_those_recorded_meanwhile() -> None:
    events = PendingEvents()
    events.add(pending("a", "Created", "first"))
    first = events.pop()
    events.add(pending("a", "Created", "second"))
    assert events.put_back(first) == 0
    assert [one.event.message for one in drained(events)] == ["first", "second"]


def test_an_event_that_was_not_sent_and_came_again_is_counted() -> None:
    events = PendingEvents()
    events.add(pending("a", "Created", "first"))
    first = events.pop()
    events.add(pending("a", "Created", "first"))
    events.put_back(first)
    (one,) = drained(events)
    assert one.times == 2


def test_so_many_objects_wait_and_no_more() -> None:
    events = filled(pending_events.MAX_OBJECTS)
    assert [events.add(pending(name, "Ready")) for name in ("one", "two")] == [1, 1]
    assert len(events) == pending_events.MAX_OBJECTS
    assert [words(one)[0] for one in drained(events)][-2:] == ["one", "two"]


def test_two_jobs_a_second_for_25_minutes_lose_no_last_word() -> None:
    """Each job has six Events: four objects created, one that waits, one that all is well."""
    events, told = PendingEvents(), {}
    dropped = 0

    def send(most: int) -> None:
        for _ in range(min(most, len(events))):
            one = events.pop()
            told[one.subject.name] = one.event.reason

    for second in range(25 * 60):
        for job in (f"job{second}a", f"job{second}b"):
            for child in ("Service", "Deployment cloud", "Deployment edge", "Secret"):
                dropped += events.add(pending(job, "Created", child))
            dropped += events.add(pending(job, "ImagePullBackOff", "the image"))
            dropped += events.add(pending(job, "WorkersAvailable", "both run"))
        send(EVENTS_PER_S)
    send(len(events))
    assert {*told.values()} == {"WorkersAvailable"}
    assert len(told) == 2 * 25 * 60
    assert dropped == 0


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abcde"), st.sampled_from(["R", "S"]), st.integers(0, 9)),
        st.sampled_from(["pop", "put back"]),
    ),
    max_size=200,
)


@given(steps, st.integers(1, 12))
def test_the_last_word_on_an_object_is_told_last_and_the_number_is_bounded(
    steps: list[tuple[str, str, int] | str], most: int
) -> None:
    """Whatever is recorded, sent and sent again: with room for fewer Events than there are."""
    events = PendingEvents(max_waiting=most)
    last: dict[str, tuple[str, str, str]] = {}
    told: dict[str, tuple[str, str, str]] = {}
    sent = None
    for step in steps:
        if step == "pop" and len(events):
            sent = events.pop()
            told[sent.subject.name] = words(sent)
        elif step == "put back" and sent is not None:
            events.put_back(sent)
            sent = None
        elif isinstance(step, tuple):
            name, reason, number = step
            events.add(pending(name, reason, str(number)))
            last[name] = (name, reason, str(number))
        assert len(events) <= max(most, len(last))
    for one in drained(events):
        told[one.subject.name] = words(one)
    assert told == last
