"""Events: one for the same words, with a count; never in the way, never without bound."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from edgeai.api.resources import Object
from edgeai.kube.client import KubeClient
from globalmanager.contract import Event, Severity
from globalmanager.engine.events import (
    COUNTED_S,
    EVENTS,
    MAX_COUNTS,
    Recorder,
    SentCounts,
    event_ref,
)
from globalmanager.engine.metrics import EngineMetrics
from tests.globalmanager.cluster import LocalApi
from tests.globalmanager.objects import make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.clock import Clock
from tests.support.waiting import async_eventually

ABOUT = make("a", namespace="default")
READY = Event(Severity.NORMAL, "Ready", "the gadget is ready")
BROKEN = Event(Severity.WARNING, "Broken", "the gadget is broken")


@asynccontextmanager
async def running(
    client: KubeClient, metrics: EngineMetrics | None = None
) -> AsyncIterator[Recorder]:
    recorder = Recorder(client, metrics=metrics, qps=1000, burst=1000, retry_s=0.01)
    task = asyncio.create_task(recorder.run(), name="events")
    yield recorder
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def dropped(metrics: EngineMetrics) -> float:
    (family,) = metrics.events_dropped.collect()
    return next(each.value for each in family.samples if each.name.endswith("_total"))


async def recorded(client: KubeClient) -> list[Object]:
    return (await client.list(EVENTS, namespace="default")).items


async def until_count(client: KubeClient, event: Event, count: int) -> Object:
    name = event_ref(ABOUT, event).name

    async def find() -> Object | None:
        events = {each["metadata"]["name"]: each for each in await recorded(client)}
        found = events.get(name)
        return found if found is not None and found["count"] == count else None

    return await async_eventually(f"event {name} with count {count}", find)


async def test_an_event_says_what_happened_to_whom(kube: KubeClient, cluster: LocalApi) -> None:
    async with running(kube) as recorder:
        recorder.record(ABOUT, BROKEN)
        event = await until_count(kube, BROKEN, 1)
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "Broken",
        "the gadget is broken",
    )
    involved = event["involvedObject"]
    assert (involved["kind"], involved["name"], involved["uid"]) == ("Gadget", "a", "uid-a")


async def test_an_event_has_no_control_characters(kube: KubeClient, cluster: LocalApi) -> None:
    message = "container main: \x1b]0;owned\x07\u202e ended\nwith 1"
    async with running(kube) as recorder:
        recorder.record(ABOUT, msgspec.structs.replace(BROKEN, message=message))

        async def find() -> Object | None:
            return next(iter(await recorded(kube)), None)

        event = await async_eventually("the event", find)
    assert event["message"] == "container main: ]0;owned ended with 1"


async def test_repeats_are_counted_not_multiplied(kube: KubeClient, cluster: LocalApi) -> None:
    async with running(kube) as recorder:
        for _ in range(3):
            recorder.record(ABOUT, READY)
        await until_count(kube, READY, 3)
        recorder.record(ABOUT, READY)
        await until_count(kube, READY, 4)
        assert len(await recorded(kube)) == 1


async def test_the_count_goes_on_after_a_restart(kube: KubeClient, cluster: LocalApi) -> None:
    for count in (1, 2):
        async with running(kube) as recorder:
            recorder.record(ABOUT, READY)
            await until_count(kube, READY, count)


async def test_an_event_that_the_api_forgot_is_made_anew(
    kube: KubeClient, cluster: LocalApi
) -> None:
    async with running(kube) as recorder:
        recorder.record(ABOUT, READY)
        await until_count(kube, READY, 1)
        await kube.delete(event_ref(ABOUT, READY))
        recorder.record(ABOUT, READY)
        await until_count(kube, READY, 1)


async def test_other_words_are_another_event(kube: KubeClient, cluster: LocalApi) -> None:
    async with running(kube) as recorder:
        recorder.record(ABOUT, READY)
        recorder.record(ABOUT, BROKEN)
        await until_count(kube, READY, 1)
        await until_count(kube, BROKEN, 1)


async def test_a_refused_event_is_dropped_and_the_next_one_sent(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    metrics = EngineMetrics(CollectorRegistry())
    scripted.others = [
        scripted.failure(403, "Forbidden"),
        scripted.text("<html>"),
        scripted.json({}, 201),
    ]
    async with running(scripted_client, metrics) as recorder:
        for word in "abc":
            recorder.record(ABOUT, Event(Severity.NORMAL, "R", word))
        await scripted.wait_for("other", 3)
    assert dropped(metrics) == 2


async def test_an_event_is_sent_again_once_the_api_is_available(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    metrics = EngineMetrics(CollectorRegistry())
    scripted.others = [scripted.failure(503, "ServiceUnavailable"), scripted.json({}, 201)]
    async with running(scripted_client, metrics) as recorder:
        recorder.record(ABOUT, READY)
        await scripted.wait_for("other", 2)
    first, second = map(msgspec.json.decode, scripted.bodies)
    assert first["metadata"]["name"] == second["metadata"]["name"] == event_ref(ABOUT, READY).name
    assert dropped(metrics) == 0


async def test_events_that_find_no_room_are_counted(kube: KubeClient, cluster: LocalApi) -> None:
    """A newer Event of the same reason counts for them; of other reasons the oldest go."""
    metrics = EngineMetrics(CollectorRegistry())
    recorder = Recorder(kube, metrics=metrics)
    for number in range(1005):
        recorder.record(ABOUT, Event(Severity.NORMAL, "R", str(number)))
    assert dropped(metrics) == 0
    for number in range(1005):
        recorder.record(ABOUT, Event(Severity.NORMAL, f"R{number}", ""))
    assert dropped(metrics) == 6


@pytest.mark.parametrize("length", [1, 253])
def test_the_name_of_an_event_is_a_valid_one(length: int) -> None:
    ref = event_ref(make("n" * length), READY)
    assert len(ref.name) <= 253
    assert ref == event_ref(make("n" * length), READY)


def test_the_counts_of_past_events_are_forgotten() -> None:
    """Jobs that come and go have Events of their own, ten in a second here."""
    clock = Clock()
    counts = SentCounts(clock)
    events = [event_ref(ABOUT, msgspec.structs.replace(READY, message=str(n))) for n in range(5000)]
    for number, event in enumerate(events):
        clock.now_s = number / 10
        counts.put(event, 1)
    assert len(counts) == 10 * COUNTED_S + 1
    clock.now_s = 600.0
    for event in events:
        counts.put(event, 1)
    assert len(counts) == MAX_COUNTS


def test_the_count_of_an_event_that_comes_again_stays() -> None:
    clock = Clock()
    counts = SentCounts(clock)
    again = event_ref(ABOUT, BROKEN)
    for number in range(100):
        clock.now_s = number * 0.9 * COUNTED_S
        assert counts.get(again) == (number or None)
        counts.put(again, number + 1)
        counts.put(event_ref(ABOUT, READY), 1)
