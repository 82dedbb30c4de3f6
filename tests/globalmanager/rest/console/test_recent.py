"""Curves of jobs in memory: from the first look at a job, and bounded."""

from datetime import UTC, datetime

import pytest

from edgeai.api.resources import Object
from edgeai.faults.summary import CURVES
from globalmanager.cache.store import uid_of
from globalmanager.rest.console import recent
from globalmanager.rest.console.recent import POINTS, SAMPLE_S, Recent
from tests.globalmanager.rest.cluster import TYPES, JobCache, object_of
from tests.support.clock import Clock


@pytest.fixture
def cluster() -> JobCache:
    return JobCache()


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def curves(cluster: JobCache, clock: Clock) -> Recent:
    return Recent(cluster, TYPES, clock=clock)


def job(name: str, namespace: str = "a", phase: str = "Running", /, **numbers: float) -> Object:
    metrics = [{"key": key, "value": str(value)} for key, value in numbers.items()]
    made = object_of(name, namespace=namespace)
    made["metadata"]["uid"] = f"{namespace}/{name}"
    return {**made, "status": {"phase": phase, "metrics": metrics}}


async def test_a_metric_that_comes_later_has_a_gap_before(
    curves: Recent, cluster: JobCache, clock: Clock
) -> None:
    for numbers in ({"loss": 2.0}, {"loss": 1.0, "accuracy": 0.5}, {"accuracy": 0.75}):
        cluster.objects = [job("digits", **numbers)]
        await curves.sample()
        clock.now_s += SAMPLE_S
    curve = curves.curve(cluster.objects[0])
    assert curve.times == [0.0, SAMPLE_S, 2 * SAMPLE_S]
    assert curve.series == {"loss": [2.0, 1.0, None], "accuracy": [None, 0.5, 0.75]}


async def test_a_long_curve_keeps_its_beginning_and_loses_every_second_point(
    curves: Recent, cluster: JobCache, clock: Clock
) -> None:
    samples = 20 * POINTS
    for number in range(samples):
        cluster.objects = [job("digits", seen=float(number))]
        await curves.sample()
        clock.now_s += SAMPLE_S
    curve = curves.curve(cluster.objects[0])
    assert POINTS / 2 <= len(curve.times) <= POINTS
    assert (curve.times[0], curve.series["seen"][0]) == (0.0, 0.0)
    assert curve.times[-1] > 0.9 * samples * SAMPLE_S
    assert curve.series["seen"] == [moment / SAMPLE_S for moment in curve.times]


async def test_a_curve_ends_with_its_job(curves: Recent, cluster: JobCache, clock: Clock) -> None:
    phases = ["Running"] * POINTS + ["Succeeded"] * 5 * POINTS
    for number, phase in enumerate(phases):
        cluster.objects = [job("digits", "a", phase, seen=float(min(number, POINTS)))]
        await curves.sample()
        clock.now_s += SAMPLE_S
    curve = curves.curve(cluster.objects[0])
    assert (curve.times[0], curve.times[-1]) == (0.0, POINTS * SAMPLE_S)
    assert len(curve.times) >= POINTS / 2
    assert curve.series["seen"][-1] == POINTS  # how it ended
    cluster.objects = [job("earlier", "a", "Succeeded", seen=1.0)]
    await curves.sample()
    assert curves.curve(cluster.objects[0]).times == []


async def test_a_curve_goes_on_when_the_time_of_day_is_set_back(
    curves: Recent, cluster: JobCache, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "utcnow", lambda: datetime.fromtimestamp(-clock.now_s, UTC))
    cluster.objects = [job("digits", loss=1.0)]
    for _ in range(3):
        await curves.sample()
        clock.now_s += SAMPLE_S
    assert curves.curve(cluster.objects[0]).times == [0.0, SAMPLE_S, 2 * SAMPLE_S]


async def test_the_newest_metrics_take_the_place_of_those_that_are_gone(
    curves: Recent, cluster: JobCache, clock: Clock
) -> None:
    for numbers in ({f"a{number}": 1.0 for number in range(1000)}, {"loss": 2.0}):
        cluster.objects = [job("digits", **numbers)]
        await curves.sample()
        clock.now_s += SAMPLE_S
    series = curves.curve(cluster.objects[0]).series
    assert (series["loss"], len(series)) == ([None, 2.0], CURVES)


async def test_a_namespace_with_many_jobs_takes_no_room_from_others(
    curves: Recent, cluster: JobCache, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "JOBS", 10)

    async def points_after_samples() -> dict[str, int]:
        for _ in range(3):
            await curves.sample()
            clock.now_s += SAMPLE_S
        points = {uid_of(each): len(curves.curve(each).times) for each in cluster.objects}
        return {uid: number for uid, number in points.items() if number}

    many = [job(f"j{number}", "a", loss=1.0) for number in range(50)]
    small = [job(f"small{number}", "b", loss=1.0) for number in range(2)]
    cluster.objects = many
    assert await points_after_samples() == {f"a/j{number}": 3 for number in range(10)}
    cluster.objects = [*small, *many]
    earlier = {f"a/j{number}": 6 for number in range(2, 10)}
    assert await points_after_samples() == {"b/small0": 3, "b/small1": 3, **earlier}
    many[5] = job("j5", "a", "Succeeded", loss=1.0)
    cluster.objects = [*small, *many]  # the ended job makes room for one of its namespace
    points = await points_after_samples()
    assert ("a/j5" in points, points["b/small0"], points["a/j9"], len(points)) == (False, 6, 9, 10)
    cluster.objects = small[:1]
    assert await points_after_samples() == {"b/small0": 9}
    assert len(curves._traces) == 1
