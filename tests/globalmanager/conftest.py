"""Fixtures for whoever speaks to a Kubernetes API."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from globalmanager.kube.client import ClientSettings, KubeClient
from tests.globalmanager.scripted_api import ScriptedApi, serve_scripted, write_kubeconfig


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedApi]:
    async with serve_scripted() as api:
        yield api


@pytest.fixture
async def scripted_client(scripted: ScriptedApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """A client with short deadlines, so that a test of one ends soon."""
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    settings = ClientSettings(deadline_s=0.3, list_deadline_s=0.3, page_size=2)
    async with await KubeClient.from_kubeconfig(path, settings) as client:
        yield client
