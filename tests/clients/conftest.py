"""One cluster with a GlobalManager for the whole run, a namespace of its own for each test.

- `pytest tests/clients`: the local cluster
- `pytest tests/clients --cluster=real`: a real control plane
"""

from collections.abc import Iterator

import pytest

from tests.clients.clusters import TrainingCluster, local_training, real_training
from tests.clients.jobs import FRAMEWORKS, Framework
from tests.conformance.clusters import is_real, obtain_programs
from tests.conformance.space import Space
from tests.waiting import eventually


def pytest_collection_finish(session: pytest.Session) -> None:
    obtain_programs(session)


@pytest.fixture(scope="package")
def training(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TrainingCluster]:
    run = real_training if is_real(request.config) else local_training
    with run(tmp_path_factory.mktemp("cluster")) as training:
        yield training


@pytest.fixture
def space(training: TrainingCluster) -> Iterator[Space]:
    """A fresh namespace whose pods run, deleted afterwards."""
    client = training.cluster.client
    made = client("POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}})
    name = made.ok()["metadata"]["name"]
    space = Space(client, name)
    if training.cluster.has_service_accounts:
        eventually("its ServiceAccount", lambda: space.find("serviceaccounts", "default"))
    with training.serving(name):
        yield space
        client("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(params=FRAMEWORKS, ids=lambda framework: framework.kind)
def framework(request: pytest.FixtureRequest) -> Framework:
    found: Framework = request.param
    return found


@pytest.fixture
def with_logs(training: TrainingCluster) -> None:
    if not training.has_logs:
        pytest.skip("no container runs here; make e2e reads logs of containers")
