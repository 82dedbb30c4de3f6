"""Fixtures of the tests of the Dataset hook."""

from pathlib import Path

import pytest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "faces.csv"
    file.write_text("x,y\n1,2\n3,4\n")
    return file
