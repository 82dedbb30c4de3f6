"""A GlobalManager that is killed at any step of a scaling ends with exactly the right pods.

Each case is driven once without a fault. Then the case is driven again and again from each of its
steps: each time the plan of this step is cut after one of its actions, before the status is
written, and the GlobalManager forgets all results of commands.
"""

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.globalmanager.kinds.elastic.world import ElasticWorld, example, training, worker
from tests.support.world import at

SCRIPT: dict[str, Any] = {"script": "/scale.sh"}


class Case(NamedTuple):
    begin: Callable[[ElasticWorld], ElasticWorld]
    workers: list[int]
    """The indices of the workers at the end."""
    phases: dict[str, str]
    """Scaler -> its phase at the end."""
    starts: bool = True
    """Whether new pods start."""
    terminates: bool = False
    """Whether deleted pods need a moment."""
    stay: tuple[int, ...] = ()
    """The indices of the workers whose pods never go."""


def replicas(world: ElasticWorld, number: int) -> ElasticWorld:
    world.change(example(worker={"replicas": number})["spec"])
    return world


CASES = {
    "scale out": Case(lambda w: w.scale_out(2), [0, 1, 2, 3, 4], {"out": "ScaleSucceeded"}),
    "scale out with a script": Case(
        lambda w: w.scale_out(1, **SCRIPT), [0, 1, 2, 3], {"out": "ScaleSucceeded"}
    ),
    "scale out in vain": Case(
        lambda w: w.scale_out(2, timeout=30), [0, 1, 2], {"out": "ScaleFailed"}, starts=False
    ),
    "scale out beyond the limit": Case(
        lambda w: w.scale_out(90), [0, 1, 2], {"out": "ScaleFailed"}
    ),
    "scale in by name": Case(lambda w: w.scale_in(worker(1)), [0, 2], {"in": "ScaleSucceeded"}),
    "scale in by count": Case(
        lambda w: w.scale_in(count=2), [0], {"in": "ScaleSucceeded"}, terminates=True
    ),
    "scale in with a script": Case(
        lambda w: w.scale_in(worker(0), **SCRIPT), [1, 2], {"in": "ScaleSucceeded"}
    ),
    "scale in of nobody": Case(lambda w: w.scale_in("nobody"), [0, 1, 2], {"in": "ScaleFailed"}),
    "out and in": Case(
        lambda w: w.scale_out(1, age=9).scale_in(worker(0)),
        [1, 2, 3],
        {"out": "ScaleSucceeded", "in": "ScaleSucceeded"},
        terminates=True,
    ),
    "in, whose pod stays, and out": Case(
        lambda w: w.scale_in(worker(1), timeout=20, age=9).scale_out(1),
        [0, 2, 3],
        {"in": "ScaleSucceeded", "out": "ScaleSucceeded"},
        terminates=True,
        stay=(1,),
    ),
    "out in vain, whose pods stay": Case(
        lambda w: w.scale_out(2, timeout=30),
        [0, 1, 2],
        {"out": "ScaleFailed"},
        starts=False,
        terminates=True,
        stay=(3, 4),
    ),
    "kubectl scale up": Case(lambda w: replicas(w, 5), [0, 1, 2, 3, 4], {}),
    "kubectl scale down": Case(lambda w: replicas(w, 1), [0], {}),
}


class Point(NamedTuple):
    """Before a step."""

    world: ElasticWorld
    now: float = 0.0
    quiet: int = 0
    """Steps since something happened last."""


@functools.cache
def three_workers() -> ElasticWorld:
    return training(example(worker={"replicas": 3}))


def copy_of(world: ElasticWorld) -> ElasticWorld:
    """Worlds replace objects, and change only the collections that hold them."""
    made = copy.copy(world)
    vars(made).update({k: v.copy() for k, v in vars(made).items() if isinstance(v, dict | list)})
    return made


def step(case: Case, before: Point, cut: int | None = None) -> Point:
    """Args: cut: after so many actions of the plan the GlobalManager is killed"""
    world, now, quiet = copy_of(before.world), before.now, before.quiet
    plan = world.plan(at(now))
    if cut is not None:
        return Point(world.apply(plan, actions=cut).crash(), now, quiet)
    world.apply(plan)
    if plan.actions or plan.status is not None:
        return Point(world, now)
    world.end_deleted(*(worker(index) for index in case.stay)).end(exit_code=0)
    if case.starts:
        world.pods_become("Running")
    return Point(world, now + 11, quiet + 1)


def drive(case: Case, begin: Point) -> list[Point]:
    """Until nothing happens any more."""
    points = [begin]
    while points[-1].quiet <= 20:
        assert len(points) < 300, "does not come to rest"
        points.append(step(case, points[-1]))
    return points


def cuts_of(points: list[Point]) -> Iterator[tuple[Point, int]]:
    """Each step and each number of actions after which its plan can be cut."""
    for point in points[:-1]:
        plan = copy_of(point.world).plan(at(point.now))
        yield from ((point, number) for number in range(len(plan.actions) + 1))


def check(case: Case, world: ElasticWorld, cut: str = "") -> None:
    assert world.workers() == sorted([*case.workers, *case.stay]), cut
    hosts = [worker(index) for index in case.workers]
    assert world.status["targetWorkers"] == hosts, cut
    assert sorted(world.hosts()) == sorted(hosts), cut
    assert world.status["currentWorkers"] == world.hosts(), cut
    assert world.status["phase"] == "Running", cut
    assert world.status.get("currentScaler") is None, cut
    phases = {name: world.state(name)["phase"] for name in case.phases}
    assert phases == case.phases, cut
    assert len(world.scalers) == max(len(case.phases), 1), cut
    services = [name for name in world.names() if name.startswith("Service/")]
    assert services == sorted(f"Service/{host}" for host in hosts), cut


@pytest.mark.parametrize("name", CASES)
def test_a_plan_that_is_cut_after_any_action_ends_with_the_right_pods(name: str) -> None:
    case = CASES[name]
    world = case.begin(copy_of(three_workers()))
    world.terminates = case.terminates
    points = drive(case, Point(world))
    check(case, points[-1].world)
    cuts = list(cuts_of(points))
    assert len(cuts) > 10
    for before, number in cuts:
        end = drive(case, step(case, before, number))[-1]
        check(case, end.world, f"cut at {before.now} s after {number} actions")
