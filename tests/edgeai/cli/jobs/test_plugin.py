"""`kubectl edgeai`: the file of krew and the script of the package, each called as kubectl does."""

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from common.version import VERSION
from edgeai.api.model import ModelSpec
from edgeai.client import AsyncClient, Model
from tests.edgeai.cli.command import CHECKOUT
from tests.globalmanager.cluster import LocalApi

BIN: Final = Path(sys.executable).parent
DIRECTORIES: Final = {"krew": CHECKOUT / "deploy" / "krew", "pip": BIN}


def kubectl(path: str, kubeconfig: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the file on the PATH that has the most of the leading words in its name. It gets the
    other words, and the environment.
    """
    names = [*itertools.takewhile(lambda word: not word.startswith("-"), words)]
    for count in range(len(names), 0, -1):
        file = shutil.which("-".join(["kubectl", *names[:count]]), path=path)
        if file is not None:
            environment = {"PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": path}
            command = [file, *words[count:]]
            return subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=60, check=False
            )
    raise FileNotFoundError(f"kubectl has no command {words[0]}")


@pytest.mark.parametrize("source", DIRECTORIES)
async def test_kubectl_runs_the_command(
    source: str, cluster: LocalApi, client: AsyncClient
) -> None:
    await client.apply(Model.of("dog", ModelSpec(url="/a")))
    path = os.pathsep.join(map(str, (DIRECTORIES[source], BIN, "/usr/bin", "/bin")))
    lines = {
        "edgeai get model -n default -o name": (0, "model.edgeai.io/dog\n"),
        "edgeai -n default get model -o name": (0, "model.edgeai.io/dog\n"),
        "edgeai get model none": (1, ""),
        "edgeai version": (0, f"edgeai {VERSION}\n"),
        "edgeai get model --tail": (2, ""),
    }
    for line, answer in lines.items():
        done = await asyncio.to_thread(kubectl, path, cluster.kubeconfig, *line.split())
        assert (done.returncode, done.stdout) == answer, done.stderr
