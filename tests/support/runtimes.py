"""Real runtimes for tests: PyTorch, TensorFlow, Horovod, the SDK of Kubeflow. Some take minutes."""

from pathlib import Path
from typing import Final

import pytest

from edgeai.cli import runtimes

INSTALL_S: Final = 1200
"""Timeout of a test that may have to install a runtime first."""


def python_with(name: str) -> Path:
    """A Python that has the runtime requirements/<name>.lock. Skips the test if there is none."""
    try:
        return runtimes.runtime(name).install()
    except runtimes.RuntimeUnavailable as error:
        pytest.skip(str(error))
