"""One cluster with a GlobalManager for the whole run, a namespace of its own for each test.

- `pytest tests/clients`: the local cluster
- `pytest tests/clients --cluster=real`: a real control plane
"""

from collections.abc import Iterator

import pytest

from tests.clients.clusters import TrainingCluster, local_training, real_training
from tests.clients.jobs import FRAMEWORKS, Framework
from tests.conformance.clusters import is_real, obtain_programs
from tests.conformance.space import Space, fresh_space


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
    with fresh_space(training.cluster) as space, training.serving(space.name):
        yield space


@pytest.fixture(params=FRAMEWORKS, ids=lambda framework: framework.kind)
def framework(request: pytest.FixtureRequest) -> Framework:
    found: Framework = request.param
    return found


@pytest.fixture
def with_logs(training: TrainingCluster) -> None:
    if not training.has_logs:
        pytest.skip("no container runs here; make e2e reads logs of containers")
