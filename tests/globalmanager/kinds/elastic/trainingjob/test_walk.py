"""Whatever happens to a TrainingJob in whatever order, the job ends up as its status says."""

import random
from collections.abc import Iterator
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgeai.api.resources import Object, ObjectRef
from edgeai.api.specs import InvalidSpec
from globalmanager.kinds.elastic import scalers
from tests.globalmanager.kinds.elastic.walk import ENDS, Walk
from tests.globalmanager.kinds.elastic.world import LAUNCHER


def walked(seed: int, *, sick: bool) -> Walk:
    """A job after 30 events, while the GlobalManager plans now and then and is killed sometimes."""
    walk = Walk(random.Random(seed))
    for _ in range(4):
        walk.settle(walk.clock).healthy()
        walk.now += 1
    walk.sick = sick
    for _ in range(30):
        walk.event()
        for _ in range(walk.random.randint(0, 4)):
            walk.plan_on(cut=walk.random.random() < 0.2)
    return walk


def calm(walk: Walk) -> Walk:
    """Nothing happens any more but what the job does and waits for."""
    for _ in range(4000):
        walk.settle(walk.clock)
        before = str((walk.children, walk.executions))
        walk.healthy()
        if before == str((walk.children, walk.executions)) and walk.step(walk.clock) is None:
            if walk.wait is None:
                return walk
            walk.now += max(walk.wait, 0.01)
    raise AssertionError("the job never comes to rest")


def valid_scalers(walk: Walk) -> Iterator[tuple[ObjectRef, Object]]:
    for ref, scaler in walk.scalers.items():
        try:
            scalers.read(ref.type, scaler)
        except InvalidSpec:
            continue
        yield ref, scaler


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), sick=st.booleans())
def test_a_job_comes_to_rest_with_exactly_the_pods_of_its_status(seed: int, sick: bool) -> None:
    walk = calm(walked(seed, sick=sick))
    status, phase = walk.status, walk.status["phase"]
    true = [one["type"] for one in status["conditions"] if one["status"] == "True"]
    assert sum(one in ("Succeeded", "Failed") for one in true) <= 1
    if phase == "Suspended":
        assert not walk.children
    elif phase == "Running":
        pods = {ref.name for ref in walk.pods_named()} - {LAUNCHER}
        assert pods == set(status["targetWorkers"])
        assert walk.hosts() == status["currentWorkers"]
        assert not status.get("currentScaler")
    else:
        assert phase in ("Succeeded", "Failed") or sick
    if phase in ("Running", "Succeeded", "Failed"):
        for ref, scaler in valid_scalers(walk):
            assert scaler["status"]["phase"] in ENDS, ref
            if ref not in walk.spoiled:
                assert sum(end in walk.history(ref.name) for end in ENDS) == 1


@example(seed=1074, sick=False)  # a suspension that is cut off, and taken back
@example(seed=943, sick=True)  # a suspension that is taken back before its first deletion
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), sick=st.booleans())
def test_no_launcher_sees_a_list_that_stops_horovod(seed: int, sick: bool) -> None:
    for (_, launcher, before), (_, next_launcher, after) in pairwise(walked(seed, sick=sick).lists):
        if launcher == next_launcher and launcher and before:
            assert set(before) & set(after)
            assert set(before) <= set(after) or set(after) <= set(before)
