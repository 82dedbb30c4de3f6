"""Types the commands of a tutorial, block by block, and looks for the output that it shows.

A block of `sh` is typed. The block of `text` after it shows some lines of what it printed: ages may
be others, and … stands for any text.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

TUTORIALS: Final = Path(__file__).parents[2] / "docs" / "tutorials"
_BLOCK: Final = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_AGE: Final = r"\b(?:\d+[smhd])+\b"
_MARK: Final = "---- next block ----"


class Step(NamedTuple):
    """Commands, and lines of their output as the page shows them."""

    commands: str
    shown: list[str]


def steps(page: str) -> list[Step]:
    """Args: page: file name in docs/tutorials"""
    found: list[Step] = []
    for match in _BLOCK.finditer((TUTORIALS / page).read_text(encoding="utf-8")):
        if match["language"] == "sh":
            found.append(Step(match["text"], []))
        elif match["language"] == "text":
            found[-1].shown.extend(match["text"].splitlines())
    return found


def script(page: str, files: Path) -> str:
    """All commands of the page. Args: files: in place of its directory"""
    text = "".join(f"{step.commands}echo '{_MARK}'\n" for step in steps(page))
    text = re.sub(r"/tmp/edgeai-[a-z]+", str(files), text)
    # The environment that runs this test is the one that the page activates.
    activated, text = text.split(". .venv/bin/activate\n")
    assert not activated
    return text


def follow(page: str, home: Path, *, timeout_s: float, **environment: str) -> list[str]:
    """Type all commands of the page. Returns: shown lines that were not printed

    Args: environment: variables beside HOME and PATH
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"HOME": str(home), "PATH": path, **environment}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script(page, home / "files")],
        cwd=TUTORIALS.parents[1],
        env=variables,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        subprocess.run(["edgeai", "down"], env=variables, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return missing(page, done.stdout)


def missing(page: str, output: str) -> list[str]:
    """Lines that the page shows and its script has not printed."""
    return [
        f"{line!r} is not in:\n{printed}"
        for step, printed in zip(steps(page), output.split(f"{_MARK}\n"), strict=False)
        for line in step.shown
        if not re.search(_pattern(line), printed, re.MULTILINE)
    ]


def _pattern(line: str) -> str:
    """A line that is the same but for ages, spaces and what … stands for."""
    words = [
        re.sub(_AGE, r"\\d+\\w+", re.escape(word).replace("…", ".*?")) for word in line.split()
    ]
    return r"^\s*" + r"\s+".join(words) + r"\s*$"
