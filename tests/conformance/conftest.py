"""One cluster for the whole run, a namespace of its own for each test.

- `pytest tests/conformance`: the local cluster
- `pytest tests/conformance --cluster=real`: etcd, kube-apiserver and the controllers
"""

from collections.abc import Iterator

import pytest

from tests.conformance.clusters import (
    AnyCluster,
    is_real,
    local_cluster,
    obtain_programs,
    real_cluster,
)
from tests.conformance.objects import node, widget_crd
from tests.conformance.space import Space, fresh_space
from tests.support.manifests import definitions
from tests.support.waiting import eventually


def pytest_collection_finish(session: pytest.Session) -> None:
    obtain_programs(session)


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnyCluster]:
    """A running cluster with our CRDs, that of widgets, and a node without a kubelet."""
    run = real_cluster if is_real(request.config) else local_cluster
    with run(tmp_path_factory.mktemp("cluster")) as cluster:
        crds = [widget_crd(), *definitions()]
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for crd in crds:
            cluster.client("POST", path, crd).ok()
        for crd in crds:
            _wait_until_served(cluster, crd)
        cluster.client("POST", "/api/v1/nodes", node()).ok()
        yield cluster


def _wait_until_served(cluster: AnyCluster, crd: dict[str, object]) -> None:
    spec = crd["spec"]
    assert isinstance(spec, dict)
    versions = [version["name"] for version in spec["versions"]]
    paths = [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}" for version in versions]

    def check() -> bool:
        answers = {path: cluster.client("GET", path).status for path in paths}
        assert set(answers.values()) == {200}, f"lists are answered with {answers}"
        return True

    eventually(f"serving {paths[0]}", check)


@pytest.fixture
def space(cluster: AnyCluster) -> Iterator[Space]:
    with fresh_space(cluster) as space:
        yield space


@pytest.fixture
def kubelet(cluster: AnyCluster) -> str:
    """The name of a node whose kubelet runs containers."""
    if not cluster.has_kubelet:
        pytest.skip(f"the {cluster.name} cluster has no node that would run a container")
    return "edge0"
