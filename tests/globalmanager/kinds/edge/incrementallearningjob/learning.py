"""What the workers of an IncrementalLearningJob do, for tests of its plan."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from edgeai.api.resources import DEPLOYMENTS
from edgeai.times import rfc3339
from tests.support.world import NOW, World, merged, report

_attempts = iter(range(1, 10**6))


def pods(world: World) -> list[str]:
    return [name.removeprefix("Pod/") for name in world.names() if name.startswith("Pod/")]


def tell(world: World, stage: str, *urls: str, **numbers: float) -> World:
    """The worker of a stage ends, with models at these URLs; `metrics_1_x` means metrics.1.x."""
    details: dict[str, str] = {}
    for index, url in enumerate(urls):
        details |= {
            f"results.{index}.url": url,
            f"results.{index}.format": url.rpartition(".")[2],
        }
    counts = {
        name.replace("metrics_1_", "metrics.1.").replace("metrics_", "metrics."): value
        for name, value in numbers.items()
    }
    world.receive(
        report(
            worker=f"helmet-{stage}",
            attempt=next(_attempts),
            status="completed",
            counts=counts,
            details=details,
        )
    )
    return world


def directory(world: World) -> str:
    return str(world.status["current"]["directory"])


def train(world: World, *, now: datetime = NOW) -> World:
    """The train worker of the present round ends well."""
    return tell(world, "train", f"{directory(world)}/m.pb").settle(now)


def evaluate(world: World, new: float = 0.9, former: float = 0.5) -> World:
    url = f"{directory(world)}/m.pb"
    return tell(
        world, "eval", url, "/models/x", metrics_precision=new, metrics_1_precision=former
    ).settle()


def roll_out(world: World, **state: Any) -> World:
    """The inference worker runs with its present template."""
    status = {
        "replicas": 1,
        "updatedReplicas": 1,
        "conditions": [{"type": "Available", "status": "True"}],
        **state,
    }
    for ref, child in world.children.items():
        if ref.type == DEPLOYMENTS:
            world.children[ref] = {**child, "status": status}
    return world


def fails(world: World, name: str, **state: Any) -> World:
    """A pod that was made at NOW fails."""
    for ref, child in world.children.items():
        if ref.name == name and ref.type.kind == "Pod":
            change = {
                "metadata": {"creationTimestamp": rfc3339(NOW)},
                "status": {"phase": "Failed", **state},
            }
            world.children[ref] = merged(child, change)
    return world


def condition(world: World) -> Mapping[str, Any]:
    return world.condition("Learning")
