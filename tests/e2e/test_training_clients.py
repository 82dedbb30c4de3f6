"""Tests of tests/clients with real containers: Kubeflow's SDK and kubectl make jobs and read logs.

No other cluster of the tests has both a genuine API server and containers.
"""

import pytest

from tests.clients.clusters import TrainingCluster
from tests.clients.conftest import framework, space, with_logs
from tests.clients.test_kubectl import (
    kubectl,
    test_a_job_is_applied_waited_for_and_deleted,
    test_logs_of_all_replicas,
)
from tests.clients.test_training_client import (
    client,
    sdk,
    test_a_job_from_its_creation_to_its_deletion,
    test_events_come_with_the_logs,
    test_logs_are_read_and_followed,
)
from tests.e2e.containers import ContainerTraining
from tests.support.cluster import Cluster
from tests.support.runtimes import INSTALL_S

pytestmark = pytest.mark.timeout(INSTALL_S)
__all__ = [
    "client",
    "framework",
    "kubectl",
    "sdk",
    "space",
    "test_a_job_from_its_creation_to_its_deletion",
    "test_a_job_is_applied_waited_for_and_deleted",
    "test_events_come_with_the_logs",
    "test_logs_are_read_and_followed",
    "test_logs_of_all_replicas",
    "with_logs",
]


@pytest.fixture(scope="module")
def training(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> TrainingCluster:
    return ContainerTraining(installed, tmp_path_factory.mktemp("clients"))
