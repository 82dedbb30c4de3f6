"""The locked runtimes are what the examples need, and nothing for GPUs."""

import subprocess
from pathlib import Path

import pytest

from edgeai.cli.runtimes import REQUIREMENTS
from tests.support.runtimes import python_with


@pytest.mark.parametrize(
    ("runtime", "code"),
    [
        ("pytorch", "import torch.distributed as d; assert d.is_gloo_available()"),
        ("tensorflow", "import tensorflow as tf; tf.distribute.MultiWorkerMirroredStrategy"),
        ("kubeflow-training", "from kubeflow.training import TrainingClient"),
        ("sedna-client", "import requests, websockets"),
    ],
)
def test_a_runtime_has_its_library(runtime: str, code: str) -> None:
    done = subprocess.run(
        [python_with(runtime), "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("lock", ["pytorch.lock", "tensorflow.lock"])
def test_a_lock_has_nothing_for_gpus(lock: Path) -> None:
    text = (REQUIREMENTS / lock).read_text()
    assert "nvidia" not in text
    assert "cuda" not in text
