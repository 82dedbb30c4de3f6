"""Fixtures: a scripted Kubernetes API, or a cluster with a running engine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edgeai.kube.client import KubeClient
from edgeai.kube.sender import ClientSettings
from tests.globalmanager.cluster import LocalApi, Manager, User, run_manager
from tests.globalmanager.scripted_api import ScriptedApi, serve_scripted
from tests.support.kubeconfig import write_kubeconfig


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedApi]:
    async with serve_scripted() as api:
        yield api


@pytest.fixture
async def scripted_client(scripted: ScriptedApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    settings = ClientSettings(deadline_s=30, list_deadline_s=30, page_size=2)
    async with await KubeClient.from_kubeconfig(path, settings) as client:
        yield client


@pytest.fixture
async def impatient_client(scripted: ScriptedApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """A client with short deadlines, for tests of silence: such a test ends soon."""
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    settings = ClientSettings(deadline_s=0.3, list_deadline_s=0.3, page_size=2)
    async with await KubeClient.from_kubeconfig(path, settings) as client:
        yield client


@pytest.fixture
async def bare_cluster(tmp_path: Path) -> AsyncIterator[LocalApi]:
    """Without the CRDs."""
    async with LocalApi(tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def kube(bare_cluster: LocalApi) -> AsyncIterator[KubeClient]:
    async with await KubeClient.from_kubeconfig(bare_cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def user(kube: KubeClient) -> User:
    return User(kube)


@pytest.fixture
async def cluster(bare_cluster: LocalApi, user: User) -> LocalApi:
    await user.install_crds()
    return bare_cluster


@pytest.fixture
async def manager(cluster: LocalApi) -> AsyncIterator[Manager]:
    async with run_manager(cluster.kubeconfig) as manager:
        yield manager
