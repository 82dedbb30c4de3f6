"""The notebooks are small, have no outputs, and are Python without more. tests/system runs
them, and tests/training the one that needs PyTorch.
"""

import ast
import json
from pathlib import Path
from typing import Final

import pytest

from tests.examples.notebooks import NOTEBOOKS, cells, code

MAX_BYTES: Final = 10_000
CELL: Final = {"cell_type", "id", "metadata", "source"}


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_small_and_has_no_outputs(file: Path) -> None:
    assert file.stat().st_size < MAX_BYTES
    for each in cells(file):
        further = set() if each["cell_type"] == "markdown" else {"execution_count", "outputs"}
        assert each.keys() == CELL | further  # what the format 4.5 demands of a cell
        assert not each.get("outputs")
        assert each.get("execution_count") is None
    assert len({each["id"] for each in cells(file)}) == len(cells(file))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_written_as_jupyter_writes_it(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n" == text


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_the_code_of_a_notebook_is_python(file: Path) -> None:
    for source in code(file):
        ast.parse(source)
    assert "Client()" in "".join(code(file))


def test_there_are_notebooks() -> None:
    assert {each.stem for each in NOTEBOOKS} == {
        "distributed_training",
        "elastic_training",
        "federated_learning",
        "joint_inference",
    }
