"""The programs of docs/client.md run as they stand, and the API takes the job of docs/gpus.md."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import yaml

import edgeai.client
from edgeai.client import AsyncClient, Client, PyTorchJob, resource
from tests.globalmanager.cluster import LocalApi

PAGE: Final = Path(__file__).parents[2] / "docs" / "client.md"
GPUS: Final = PAGE.with_name("gpus.md")
PROGRAMS: Final = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalApi]:
    async with LocalApi(tmp_path, is_installed=True) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("program", "shown"),
    [*zip(PROGRAMS, ("no GlobalManager has written", "ADDED small"), strict=True)],
)
async def test_a_program_runs(cluster: LocalApi, program: str, shown: str) -> None:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", "-c", program),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    output = (await process.communicate())[0].decode()
    assert process.returncode == 0, output
    assert re.search(shown, output), output


def test_the_page_names_every_method() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_")} & {*vars(AsyncClient)}
    text = PAGE.read_text()
    assert [each for each in methods - {"close", "namespace"} if f"`{each}(" not in text] == []


def test_the_page_names_everything_that_is_public() -> None:
    text = PAGE.read_text()
    unnamed = [each for each in edgeai.client.__all__ if not re.search(rf"\b{each}\b", text)]
    assert unnamed == []


async def test_the_manifest_with_gpus_is_accepted(cluster: LocalApi) -> None:
    (manifest,) = re.findall(r"^```yaml\n(.*?)^```$", GPUS.read_text(), re.M | re.S)
    async with await AsyncClient.open(cluster.kubeconfig) as client:
        made = await client.apply_document(yaml.safe_load(manifest))
        job = resource(made)
        assert isinstance(job, PyTorchJob)
        assert job.spec.nproc_per_node == "2"
