"""Curves of jobs in memory: from the first look at a job, and bounded."""

import pytest

from edgeai.api.resources import Object
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
    return Recent(cluster, tuple(map(str, TYPES)), clock=clock)


def job(name: str, namespace: str = "a", /, **numbers: float) -> Object:
    metrics = [{"key": key, "value": str(value)} for key, value in numbers.items()]
    made = object_of(name, namespace=namespace)
    made["metadata"]["uid"] = f"{namespace}/{name}"
    return {**made, "status": {"metrics": metrics}}


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


async def test_a_namespace_with_many_jobs_loses_its_own_curves(
    curves: Recent, cluster: JobCache, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "JOBS", 10)
    cluster.objects = [job("small", "b", loss=1.0)]
    cluster.objects += [job(f"j{number}", "a", loss=1.0) for number in range(50)]
    await curves.sample()
    assert len(curves._traces) == 10
    assert curves.curve(cluster.objects[0]).series == {"loss": [1.0]}
    cluster.objects = cluster.objects[:1]
    await curves.sample()
    assert len(curves._traces) == 1
    assert curves.curve(job("j1", "a")).times == []
