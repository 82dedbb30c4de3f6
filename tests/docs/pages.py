"""The kinds that the pages of docs/ add: a copy of the GlobalManager that has their folders too."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

import globalmanager
from globalmanager.manifests import crds, rbac

Object = dict[str, Any]

_DOCS: Final = Path(__file__).parents[2] / "docs"
_BLOCK: Final = re.compile(
    r"^```(?:python|yaml) (?P<name>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_GENERATE: Final = (
    "import json; from globalmanager.manifests import crds, rbac;"
    "print(json.dumps([crds.manifests(), rbac.cluster_rules()]))"
)


class Copy(msgspec.Struct, frozen=True):
    """A directory that has the package `globalmanager` with the kinds of one page."""

    directory: Path
    blocks: dict[str, str]
    """Of the page, by name."""
    crds: dict[str, Object]
    """What the CRD generator writes more than without the page, by file."""
    rules: list[Object]
    """Of the GlobalManager in every namespace."""

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that is to take the copy, wherever it is started."""
        return {"PYTHONPATH": str(self.directory), "PYTHONSAFEPATH": "1"}

    def manifest(self, name: str) -> Object:
        loaded: Object = yaml.safe_load(self.blocks[name])
        return loaded

    def new_rules(self) -> list[Object]:
        """The rules that there are because of the page."""
        known = rbac.cluster_rules()
        return [rule for rule in self.rules if rule not in known]


def copy_with(page: str, directory: Path) -> Copy:
    """Args: page: file name in docs/"""
    text = (_DOCS / page).read_text(encoding="utf-8")
    blocks = {match["name"]: match["text"] for match in _BLOCK.finditer(text)}
    package = directory / "globalmanager"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(globalmanager.__file__).parent, package, ignore=ignore)
    for name, content in blocks.items():
        if name.endswith(".py"):
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(content, encoding="utf-8")
    command = [sys.executable, "-c", _GENERATE]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files, rules = json.loads(done.stdout)
    known = crds.manifests()
    assert {name: files.get(name) for name in known} == known
    more = {name: yaml.safe_load(text) for name, text in files.items() if name not in known}
    return Copy(directory, blocks, more, rules)
