"""The resources that the pods of a gang request together."""

from typing import Any

import pytest

from edgeai.api.training import RestartPolicy
from globalmanager.kinds.training.framework import Replicas
from globalmanager.kinds.training.gangs import requests_of


def replicas(type_: str, count: int, *resources: Any) -> Replicas:
    containers = [{"name": str(n), "resources": one} for n, one in enumerate(resources)]
    template = {"spec": {"containers": containers}}
    return Replicas(
        type=type_, count=count, policy=RestartPolicy.NEVER, template=template, template_bytes=0
    )


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
