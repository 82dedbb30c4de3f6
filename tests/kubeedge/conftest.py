"""One cluster of KubeEdge for the whole run, on which docs/kubeedge.md is done once."""

from collections.abc import Iterator

import pytest

from tests.cluster.binaries import Unavailable
from tests.e2e.document import install_on_kubeedge
from tests.e2e.images import recipes
from tests.e2e.reports import pytest_runtest_makereport as pytest_runtest_makereport
from tests.e2e.two_jobs import put_files
from tests.kubeedge.cluster import KubeEdge, prepared


@pytest.fixture(scope="session")
def cluster() -> Iterator[KubeEdge]:
    try:
        cluster = prepared(recipes())
    except Unavailable as error:
        pytest.skip(f"there is no KubeEdge here: {error}")
    with cluster.running():
        yield cluster


@pytest.fixture(scope="session")
def installed(cluster: KubeEdge, tmp_path_factory: pytest.TempPathFactory) -> KubeEdge:
    """The cluster after the page, with models and images on its nodes."""
    install_on_kubeedge(cluster, tmp_path_factory.mktemp("page"))
    put_files(cluster, tmp_path_factory.mktemp("files"))
    return cluster
