"""The resources that the pods of a gang request together."""

from typing import Any

import pytest

from edgeai.api.training import RestartPolicy
from globalmanager.kinds.training.framework import Replicas
from globalmanager.kinds.training.gangs import requests_of


def replicas(type_: str, count: int, *resources: Any) -> Replicas:
    containers = [{"name": str(n), "resources": one} for n, one in enumerate(resources)]
    return of_pods({"containers": containers}, type_, count)


def of_pods(spec: Any, type_: str = "Worker", count: int = 1) -> Replicas:
    return Replicas(
        type=type_,
        count=count,
        policy=RestartPolicy.NEVER,
        template={"spec": spec},
        template_bytes=0,
    )


def main(**requests: str) -> Any:
    return {"name": "main", "resources": {"requests": requests}}


def sidecar(**requests: str) -> Any:
    return {**main(**requests), "restartPolicy": "Always"}


MASTER = replicas("Master", 1, {"requests": {"cpu": "500m", "memory": "1Gi"}})
WORKERS = replicas("Worker", 2, {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 2}}, {})

SUMS = [
    (3, {"cpu": "2500m", "memory": "1073741824", "nvidia.com/gpu": "4"}),
    (2, {"cpu": "1500m", "memory": "1073741824", "nvidia.com/gpu": "2"}),
    (1, {"cpu": "500m", "memory": "1073741824"}),
    (0, {}),
    (9, {"cpu": "2500m", "memory": "1073741824", "nvidia.com/gpu": "4"}),
]


@pytest.mark.parametrize(("count", "expected"), SUMS)
def test_the_first_pods_of_the_gang_count(count: int, expected: dict[str, str]) -> None:
    assert requests_of([MASTER, WORKERS], count) == expected


def test_a_request_goes_before_a_limit_and_containers_add_up() -> None:
    both = {"requests": {"cpu": 1}, "limits": {"cpu": 4}}
    assert requests_of([replicas("Worker", 1, both, both)], 1) == {"cpu": "2"}


@pytest.mark.parametrize("junk", [None, 5, "x", [], {"requests": 5}, {"limits": ["a"]}])
def test_junk_requests_nothing(junk: Any) -> None:
    assert requests_of([replicas("Worker", 2, junk)], 2) == {}


PODS: list[tuple[str, Any, dict[str, str]]] = [
    (
        "the greatest init container counts when it needs more than the containers together",
        {"initContainers": [main(cpu="2"), main(cpu="4")], "containers": [main(cpu="1")] * 2},
        {"cpu": "4"},
    ),
    (
        "each resource has its own maximum",
        {"initContainers": [main(cpu="2")], "containers": [main(cpu="1", memory="1")]},
        {"cpu": "2", "memory": "1"},
    ),
    (
        "a sidecar runs beside the containers",
        {"initContainers": [sidecar(cpu="1")], "containers": [main(cpu="2")]},
        {"cpu": "3"},
    ),
    (
        "an init container runs beside the sidecars before it",
        {"initContainers": [sidecar(cpu="1"), main(cpu="5")], "containers": [main(cpu="2")]},
        {"cpu": "6"},
    ),
    (
        "an init container does not run beside a sidecar after it",
        {"initContainers": [main(cpu="5"), sidecar(cpu="1")], "containers": [main(cpu="2")]},
        {"cpu": "5"},
    ),
    (
        "sidecars add up in their order",
        {
            "initContainers": [sidecar(cpu="1"), main(cpu="3"), sidecar(cpu="2"), main(cpu="4")],
            "containers": [main(cpu="1")],
        },
        {"cpu": "7"},
    ),
    (
        "overhead comes on top",
        {
            "overhead": {"cpu": "250m", "memory": "1Ki"},
            "initContainers": [main(cpu="4")],
            "containers": [main(cpu="1")],
        },
        {"cpu": "4250m", "memory": "1024"},
    ),
    (
        "a request of the pod replaces the sum, and overhead comes on top",
        {
            "resources": {"requests": {"cpu": "5"}},
            "overhead": {"cpu": "1"},
            "containers": [main(cpu="1", memory="1")] * 2,
        },
        {"cpu": "6", "memory": "2"},
    ),
    (
        "a limit of the pod counts where no container requests",
        {"resources": {"limits": {"cpu": "5", "memory": "7"}}, "containers": [main(cpu="1")]},
        {"cpu": "1", "memory": "7"},
    ),
    (
        "a limit of huge pages is a request",
        {
            "resources": {"limits": {"hugepages-2Mi": "8"}},
            "containers": [main(**{"hugepages-2Mi": "4"})],
        },
        {"hugepages-2Mi": "8"},
    ),
    (
        "a pod requests no extended resources",
        {"resources": {"requests": {"nvidia.com/gpu": "8"}}, "containers": [main()]},
        {},
    ),
    (
        "a device by the name of an extended resource counts, a claim does not",
        {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
            "containers": [main(**{"example.com/gpu": "2"})],
        },
        {"example.com/gpu": "2"},
    ),
]


@pytest.mark.parametrize(
    ("spec", "expected"), [pytest.param(*case, id=claim) for claim, *case in PODS]
)
def test_a_pod_counts_as_the_scheduler_counts_it(spec: Any, expected: dict[str, str]) -> None:
    assert requests_of([of_pods(spec)], 1) == expected
