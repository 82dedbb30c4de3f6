"""What the README and the scripts name exists; tests/system/test_commands.py runs the commands."""

import ast
import inspect
import re
from pathlib import Path

from edgeai.client import train
from tests.cluster.matrix import WATCHING

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def test_the_excerpts_of_the_readme_are_right() -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    texts = {language: text for language, text in blocks if language != "bash"}
    # tests/docs/test_generated.py checks the example.
    assert texts["yaml"] == (ROOT / "docs" / "fields" / "jointinferenceservice.yaml").read_text()
    assert len(texts["yaml"].splitlines()) <= 12
    (call,) = [
        node
        for node in ast.walk(ast.parse(texts["python"]))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "train"
    ]
    arguments = {keyword.arg: None for keyword in call.keywords if keyword.arg}
    inspect.signature(train).bind(*call.args, **arguments)


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_files_of_the_watching_suite_exist() -> None:
    assert all((ROOT / path).exists() for path in WATCHING)


def test_ci_calls_what_the_readme_names() -> None:
    assert "make lint types test" in (ROOT / ".ci" / "run").read_text()
