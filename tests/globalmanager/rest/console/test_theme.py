"""The files of others in the console are those of their packages, and their licences are there."""

import hashlib
import re
from pathlib import Path

import pytest

from globalmanager.rest.console.theme import theme

DECISION = Path(__file__).parents[4] / "docs" / "decisions" / "0025-the-console.md"
# SHA-256 of what the npm packages have: dist/htmx.min.js, dist/sse.min.js, and so on.
OTHERS = {
    "htmx.min.js": ("d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"),
    "htmx-sse.min.js": ("98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136"),
    "idiomorph-ext.min.js": ("5811b9a7eda14878b7dab4378bf60432e1bb6f11fcfb970cc26540642650181e"),
    "uPlot.iife.min.js": ("19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"),
    "uPlot.min.css": ("df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"),
}
PACKAGES = ["htmx.org", "htmx-ext-sse", "idiomorph", "uPlot"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_others_is_unchanged(name: str) -> None:
    assert hashlib.sha256(theme().files[name].body).hexdigest() == OTHERS[name]


def test_every_other_file_is_ours() -> None:
    ours = {"console.css", "console.js", "icon.svg", "LICENSES.txt"}
    assert theme().files.keys() == OTHERS.keys() | ours


@pytest.mark.parametrize("package", PACKAGES)
def test_the_licence_and_the_version_are_named(package: str) -> None:
    licences = theme().files["LICENSES.txt"].body.decode()
    found = re.search(rf"==== {re.escape(package)} ([0-9.]+)\n", licences)
    assert found is not None
    assert f"| {found[1]} |" in DECISION.read_text(encoding="utf-8")
