"""docs/adding-a-kind.md is true: its files, as one folder, are a kind that runs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import globalmanager
from edgeai import environment
from edgeai.api import path_of
from tests.waiting import eventually

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-kind.md"
BLOCK = re.compile(
    r"^```(?:python|yaml) (?P<name>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@pytest.fixture(scope="module")
def blocks() -> dict[str, str]:
    return {match["name"]: match["text"] for match in BLOCK.finditer(PAGE.read_text())}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory, blocks: dict[str, str]) -> Path:
    """A directory with the GlobalManager and, in it, the page's kind."""
    directory = tmp_path_factory.mktemp("copy")
    package = directory / "globalmanager"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(globalmanager.__file__).parent, package, ignore=ignore)
    for name, text in blocks.items():
        if name.endswith(".py"):
            (package / name).parent.mkdir(exist_ok=True)
            (package / name).write_text(text)
    return directory


def test_kind_is_one_folder_and_runs(copy: Path, blocks: dict[str, str], tmp_path: Path) -> None:
    crd = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json; from globalmanager.manifests import crds;"
            "from globalmanager.kinds import edgerun;"
            "print(json.dumps(crds.crd(edgerun.KIND, edgerun.KIND.resources[0])))",
        ],
        cwd=copy,
        capture_output=True,
        text=True,
        check=True,
    )
    state_dir = tmp_path / "state"
    running = environment.up(
        state_dir,
        edges=("edge0",),
        pod_env={"PYTHONPATH": str(copy)},
        on_api=lambda started: started.api.apply(json.loads(crd.stdout)),
    )
    try:
        applied = running.api.apply(yaml.safe_load(blocks["manifest"]))

        def check() -> bool:
            status = running.api.get(path_of(applied)).get("status") or {}
            worker = (status.get("workers") or {}).get("hello-run") or {}
            told = (worker.get("status"), (worker.get("taskInfo") or {}).get("answer"))
            assert told == ("completed", 42), f"status is {status}"
            return True

        eventually("the worker's report in the CR", check)
        running.api.delete(path_of(applied))
    finally:
        environment.down(state_dir)
