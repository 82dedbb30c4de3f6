"""Fixtures of engine tests: a cluster of their own, a user, a running engine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from globalmanager.kube.client import KubeClient
from tests.globalmanager.engine.cluster import Cluster, Manager, User, run_manager


@pytest.fixture
async def bare_cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Without the CRDs."""
    cluster = Cluster(tmp_path)
    await cluster.start()
    yield cluster
    await cluster.close()


@pytest.fixture
async def kube(bare_cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with await KubeClient.from_kubeconfig(bare_cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def user(kube: KubeClient) -> User:
    return User(kube)


@pytest.fixture
async def cluster(bare_cluster: Cluster, user: User) -> Cluster:
    await user.install_crds()
    return bare_cluster


@pytest.fixture
async def manager(cluster: Cluster) -> AsyncIterator[Manager]:
    async with run_manager(cluster.kubeconfig) as manager:
        yield manager
