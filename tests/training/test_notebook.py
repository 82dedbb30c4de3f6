"""The notebook of distributed training runs to its end, with real PyTorch."""

from pathlib import Path

from edgeai.cli.environment import Environment
from tests.examples.notebooks import NOTEBOOKS, printed
from tests.training.jobs import PATIENCE_S


def test_the_notebook_of_distributed_training_runs(
    running: Environment, pytorch: Path, tmp_path: Path
) -> None:
    del pytorch  # it is installed
    (file,) = (each for each in NOTEBOOKS if each.stem == "distributed_training")
    text = printed(file, running.kubeconfig, tmp_path, timeout_s=PATIENCE_S)
    assert '"loss": ' in text, text
    assert "{'Master': 1, 'Worker': 2}" in text, text
