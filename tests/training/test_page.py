"""The commands of docs/distributed-training.md, as a reader copies and pastes them."""

import re
import shutil
from pathlib import Path

import pytest

from edgeai.cli.runtimes import runtime
from tests.system.test_commands import run_commands
from tests.training.jobs import PATIENCE_S


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
def test_commands_run(pytorch: Path, tmp_path: Path) -> None:
    cache = str(runtime("pytorch").cache.parents[1])
    page = "docs/distributed-training.md"
    output = run_commands(page, tmp_path, timeout_s=PATIENCE_S, XDG_CACHE_HOME=cache)
    assert re.search(r"pytorchjob.*/digits +Succeeded", output)
    assert re.search(r'"event": "result", "world_size": 3.*"accuracy": 0.9', output)
    assert not (tmp_path / "example").exists()
