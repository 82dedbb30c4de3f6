"""The LocalController of the arm64 image passes all tests of a LocalController's process.

It runs without root, on a read-only root, and under qemu where this machine is not arm64.
"""

from pathlib import Path

import pytest

from tests.images.conftest import Built
from tests.localcontroller import test_process
from tests.localcontroller.conftest import state_dir as state_dir
from tests.localcontroller.test_process import *  # noqa: F403

pytestmark = pytest.mark.timeout(300, func_only=True)


@pytest.fixture(autouse=True)
def program(images: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = images["arm64", "localcontroller"].command(tmp_path)
    monkeypatch.setattr(test_process, "PROGRAM", command)
