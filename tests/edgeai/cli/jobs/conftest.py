"""The API of the client's tests, and the command run against it."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from edgeai.cli.main import app
from edgeai.client import AsyncClient
from edgeai.errors import EdgeAIError
from tests.edgeai.client.conftest import client, cluster
from tests.globalmanager.cluster import LocalApi

__all__ = ["Run", "client", "cluster", "run"]


class Answer(msgspec.Struct, frozen=True):
    code: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Coroutine[Any, Any, Answer]]


@pytest.fixture
def run(cluster: LocalApi, client: AsyncClient, tmp_path: Path) -> Run:
    """Runs the command in a thread, with the kubeconfig of the cluster."""

    async def run(*words: str, text: str = "") -> Answer:
        return await asyncio.to_thread(_run, words, cluster.kubeconfig, tmp_path, text)

    return run


def _run(words: tuple[str, ...], kubeconfig: Path, directory: Path, text: str) -> Answer:
    options = ["--state-dir", str(directory / "none"), "--kubeconfig", str(kubeconfig)]
    result = CliRunner().invoke(app, [*words, *options], input=text)
    error = result.stderr
    if isinstance(result.exception, EdgeAIError):  # `main` prints it
        error += str(result.exception)
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, error)
