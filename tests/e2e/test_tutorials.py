"""The tutorials that begin with a function run on this cluster, but for the kubeconfig unchanged.

tests/training and tests/system type the same pages on the local cluster.
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.tutorials import missing, script
from tests.e2e import pytorch
from tests.e2e.document import Block, shell_at
from tests.support.cluster import NODES, Cluster
from tests.support.runtimes import INSTALL_S, python_with

pytestmark = pytest.mark.timeout(INSTALL_S)
LOCAL: Final = re.compile(
    r"^(export KUBECONFIG=|export EDGEAI_PYTHON=|edgeai down).*\n", re.MULTILINE
)
"""Lines about the local cluster."""


@pytest.fixture
def files() -> Iterator[Path]:
    """A directory to be made by the page; also those who are not root reach it."""
    with tempfile.TemporaryDirectory(prefix="edgeai-tutorial-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "files"


@pytest.fixture
def image(installed: Cluster) -> None:
    """The one of PyTorch is on every node."""
    installed.load(pytorch.archive(python_with("pytorch")))


def run(page: str, text: str, cluster: Cluster, directory: Path) -> None:
    text = LOCAL.sub("", text)
    assert "edgeai up" not in text
    shell = shell_at(cluster, directory)
    shell.start()
    try:
        assert missing(page, shell.run(Block(1, text))) == []
    finally:
        shell.stop()


def test_a_function_trains(image: None, installed: Cluster, files: Path, tmp_path: Path) -> None:
    page = "your-own-model.md"
    run(page, script(page, files), installed, tmp_path)


def test_a_function_trains_in_elastic_workers(
    image: None, installed: Cluster, files: Path, tmp_path: Path
) -> None:
    page = "your-own-model.md"
    text = script(page, files)
    for old, new in (("workers=3", "workers=3, elastic=(2, 3)"), ('worker="master"', "")):
        assert text.count(old) == 1
        text = text.replace(old, new)
    run(page, text, installed, tmp_path)


def test_functions_answer_and_train(installed: Cluster, files: Path, tmp_path: Path) -> None:
    """The page says that the data must be on the nodes, and the result can be written there."""
    page = "your-own-functions.md"
    unpack = f"mkdir -p {files}/model && tar -x -C {files} && chmod -R a+rwX {files}"
    send = "".join(f"tar -c -C {files} . | ssh {node} '{unpack}'\n" for node in NODES)
    result = f"{files}/model/line.npz"
    fetch = f"mkdir {files}/model\nssh {NODES[-1]} cat {result} > {result}"
    text, times = re.subn(
        rf"^python {files}/line.py$", rf"{send}\g<0>\n{fetch}", script(page, files), flags=re.M
    )
    assert times == 1
    run(page, text, installed, tmp_path)
