"""The LocalController of the arm64 image passes all tests of a LocalController's process.

It runs without root, on a read-only root, and under qemu where this machine is not arm64.
"""

import compileall
from pathlib import Path

import pytest

from tests.images.conftest import Built
from tests.images.image import Image
from tests.localcontroller import test_process
from tests.localcontroller.conftest import state_dir as state_dir
from tests.localcontroller.test_process import *  # noqa: F403

pytestmark = pytest.mark.timeout(300, func_only=True)


@pytest.fixture(scope="session")
def edge(images: Built) -> Image:
    """With bytecode, which images lack: under qemu, to compile takes most of a start."""
    image = images["arm64", "localcontroller"]
    for layer in image.layers:
        compileall.compile_dir(layer / "opt", stripdir=layer, prependdir="/", quiet=2)
    return image


@pytest.fixture(autouse=True)
def program(edge: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_process, "PROGRAM", edge.command(tmp_path))
