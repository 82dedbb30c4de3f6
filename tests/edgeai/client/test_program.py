"""A function of a user becomes a program, or the reason why not is named."""

import importlib
import linecache
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from edgeai.client.program import (
    MAX_BYTES,
    NotShippable,
    Part,
    container,
    program,
    program_of,
)

GLOBAL = 3


def run(
    function: Callable[..., object], arguments: dict[str, Any], *launcher: str, directory: Path
) -> subprocess.CompletedProcess[str]:
    """As a pod runs it."""
    return run_program(program_of(function, arguments), *launcher, directory=directory)


def run_program(text: str, *launcher: str, directory: Path) -> subprocess.CompletedProcess[str]:
    made = container(text, python=sys.executable, launcher=launcher)
    # As the kubelet gives them to the process.
    variables = {one["name"]: one["value"].replace("$$", "$") for one in made["env"]}
    environment = {**os.environ, **variables, "TMPDIR": str(directory)}
    return subprocess.run(
        made["command"], env=environment, capture_output=True, text=True, check=False
    )


def trained(epochs: int, *, note: str = "é $(HOME) $$ ${X} `'\"", rate: float = 0.5) -> None:
    """Has a docstring."""
    import json

    def each(n: int) -> int:
        return n + 1

    print(json.dumps([each(epochs), note, rate, trained.__name__]))


def test_the_program_calls_the_function_with_its_arguments(tmp_path: Path) -> None:
    done = run(trained, {"epochs": 3, "rate": 0.25}, directory=tmp_path)
    assert done.stdout == ('[4, "\\u00e9 $(HOME) $$ ${X} `\'\\"", 0.25, "trained"]\n'), done.stderr


def test_a_method_of_a_class_in_a_function_is_no_global(tmp_path: Path) -> None:
    def nested() -> None:
        class Model:
            size = 3
            largest = size

            def double(self) -> int:
                return self.size * 2

        print(Model().double(), [size + 1 for size in range(2)])

    assert run(nested, {}, directory=tmp_path).stdout == "6 [1, 2]\n"


def test_an_error_names_the_line_of_the_function(tmp_path: Path) -> None:
    def failing() -> None:
        raise ValueError("no data")

    done = run(failing, {}, directory=tmp_path)
    assert done.returncode == 1
    assert "in failing" in done.stderr
    assert "raise ValueError('no data')" in done.stderr


def test_a_launcher_gets_the_program_as_a_file(tmp_path: Path) -> None:
    def located() -> None:
        print(__name__)

    done = run(located, {}, "-X", "utf8", directory=tmp_path)
    assert done.stdout == "__main__\n", done.stderr


class Scale:
    """A class travels with its methods."""

    unit: str = "m"

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def predict(self, batch: Any) -> list[str]:
        return [f"{row * self.factor}{self.unit}" for row in batch]


def rows() -> list[int]:
    return [1, 2]


def test_a_program_has_several_parts_with_their_arguments(tmp_path: Path) -> None:
    model, inputs = Part.of(partial(Scale, factor=2)), Part.of(rows)
    text = program([model, inputs, inputs], f"print({model.value}().predict({inputs.value}()))")
    assert run_program(text, directory=tmp_path).stdout == "['2m', '4m']\n"


def from_notebook(source: str, name: str = "Cell") -> Any:
    """Its module has no file, so that Python itself finds no source."""
    names: dict[str, Any] = {"__name__": "__main__"}
    linecache.cache["<cell>"] = (len(source), None, source.splitlines(keepends=True), "<cell>")
    exec(compile(source, "<cell>", "exec"), names)
    return names[name]


@pytest.mark.parametrize(
    "head", ["def predict(self, batch)", "@staticmethod\n    def predict(batch)"]
)
def test_a_class_of_a_notebook_travels(head: str) -> None:
    source = f"class Cell:\n\n    {head}:\n        return batch\n"
    assert Part.of(from_notebook(source)).definition == source.strip()


def test_open_of_a_notebook_is_the_builtin() -> None:
    """IPython wraps it."""
    wrapping = "import functools\nopen = functools.wraps(open)(lambda *args: None)"
    source = "def Cell():\n    return open('/data')"
    assert Part.of(from_notebook(f"{wrapping}\n{source}")).definition == source


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            "from math import fsum as sum\ndef Cell():\n    return sum([1])",
            "uses 'sum' from outside",
        ),
        (
            "from math import fsum as sum\nclass Cell:\n    def predict(self):\n        sum([1])",
            "uses 'sum' from outside",
        ),
        (
            "def borrow(self):\n    pass\nclass Cell:\n    predict = borrow",
            "has no method of its own; define one without a decorator",
        ),
        (
            "def wrap(function):\n    return lambda self: function(self)\n"
            "class Cell:\n    @wrap\n    def predict(self):\n        pass",
            "has no method of its own",
        ),
        (
            "def borrow(self):\n    pass\n"
            "class Cell:\n    load = borrow\n    def predict(self):\n        pass",
            "uses 'borrow' from outside",
        ),
    ],
)
def test_a_cell_that_cannot_travel_is_refused(source: str, problem: str) -> None:
    with pytest.raises(NotShippable, match=f"function Cell: {problem}"):
        Part.of(from_notebook(source))


def test_a_file_that_is_broken_now_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "broken_now.py"
    path.write_text("def answer():\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    answer = importlib.import_module("broken_now").answer
    path.write_text("def answer(:\n    pass # more\n")
    with pytest.raises(NotShippable, match=r"answer: its file has an error: .*now\.py, line 1"):
        Part.of(answer)


@pytest.mark.parametrize("name", ["json", "functools", "functions"])
def test_a_name_of_the_program_itself_is_refused(name: str) -> None:
    part = Part.of(from_notebook(f"def {name}():\n    pass", name))
    with pytest.raises(NotShippable, match=f"function {name}: .*; give it another name"):
        program([part], "pass")


class Empty:
    pass


class Derived(Scale):
    def predict(self, batch: Any) -> list[str]:
        return []


def wrapping(function: Any) -> Any:
    @wraps(function)
    def inner() -> Any:
        return function()

    return inner


@wrapping
def wrapped() -> None:
    pass


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (Empty, "function Empty: has no method of its own"),
        (partial(Scale, 2), "function Scale: has arguments without names; name them in `partial`"),
        (Scale, "function Scale: args: missing a required argument: 'factor'"),
        (Derived, "function Derived: uses 'Scale' from outside of it"),
        (wrapped, "function wrapped: has a decorator"),
        (3, "function 3: is no function and no class"),
    ],
)
def test_a_part_that_cannot_travel_is_refused(part: Any, problem: str) -> None:
    with pytest.raises(NotShippable) as refused:
        Part.of(part)
    assert str(refused.value).startswith(problem)


def test_two_parts_with_one_name_are_refused() -> None:
    def rows() -> None:
        pass

    with pytest.raises(NotShippable, match="function rows: has the name of another one"):
        program([Part.of(globals()["rows"]), Part.of(rows)], "pass")


def uses_a_global() -> int:
    return GLOBAL


def has_a_default_from_outside(number: int = GLOBAL) -> int:
    return number


async def waits() -> None:
    pass


def decorator(function: Any) -> Any:
    return function


@decorator
def decorated() -> None:
    pass


def around() -> Callable[[], int]:
    number = 3

    def inside() -> int:
        return number

    return inside


def made_by_exec() -> Any:
    names: dict[str, Any] = {}
    exec("def made():\n    pass\n", names)
    return names["made"]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (uses_a_global, "uses 'GLOBAL' from outside of it; import or define it inside"),
        (has_a_default_from_outside, "uses 'GLOBAL' from outside of it"),
        (around(), "uses 'number' of the function around it"),
        (waits, "is a lambda or `async`; use `def`"),
        (lambda: None, "use `def`"),
        (decorated, "has a decorator"),
        (print, "is no function"),
        (subprocess.Popen, "is no function"),
        (made_by_exec(), "its source cannot be read; write it into a file or a notebook"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_function_that_cannot_travel_is_refused(function: Any, problem: str) -> None:
    with pytest.raises(NotShippable) as refused:
        program_of(function, {})
    assert problem in str(refused.value)
    assert str(refused.value).startswith(f"function {function.__name__}: ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "args: missing a required argument: 'epochs'"),
        ({"epochs": 1, "speed": 2}, "args: got an unexpected keyword argument 'speed'"),
        ({"epochs": object()}, "Object of type object is not JSON serializable; pass what JSON"),
        ({"epochs": float("nan")}, "args: Out of range float values"),
        ({"epochs": "x" * MAX_BYTES}, "can travel to a pod"),
        ({"epochs": [{"a": {1: "x"}}]}, "args: 1 is a key and no string; pass what JSON has"),
        ({"epochs": ({True: "x"},)}, "args: True is a key and no string"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(NotShippable) as refused:
        program_of(trained, arguments)
    assert problem in str(refused.value)


def test_a_program_is_measured_in_bytes() -> None:
    cell = from_notebook(f"def Cell():\n    return '{'漢' * (MAX_BYTES // 3)}'")
    with pytest.raises(NotShippable, match=f"bytes, and {MAX_BYTES} can travel to a pod"):
        program_of(cell, {})
