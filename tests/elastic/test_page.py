"""The commands of docs/elastic-training.md, as a reader copies and pastes them."""

import re
import shutil
from pathlib import Path

import pytest

from tests.system.test_commands import run_commands
from tests.training.jobs import PATIENCE_S


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
def test_commands_run(tmp_path: Path) -> None:
    output = run_commands("docs/elastic-training.md", tmp_path, timeout_s=PATIENCE_S)
    assert re.search(r"trainingjob.*/elastic-training +(Running|Scaling)", output)
    assert re.search(r'"accuracy": 0\.9', output), output
    assert not (tmp_path / "example").exists()
