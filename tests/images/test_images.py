"""Each image on each architecture: without root, on a read-only root, with its bill, and small."""

import json
import re
import runpy
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.images import LOCKS, MACHINES, Images
from tests.images.conftest import Built

ROOT: Final = Path(__file__).parents[2]
LICENSES: Final = runpy.run_path(str(ROOT / "docs" / "licenses.py"))
ROLES: Final = {image: role for role, images in LICENSES["IMAGES"].items() for image in images}
MODULES: Final = {
    "globalmanager": "globalmanager.app",
    "localcontroller": "localcontroller.app",
    "worker": "edgeai.worker",
    "example": "edgeai.demo.joint_inference.edge_worker",
}
PLACE: Final = """
import importlib, os, platform, sys
importlib.import_module(sys.argv[1])
print(platform.machine(), os.getuid(), bool(os.statvfs("/").f_flag & os.ST_RDONLY))
modules = [module for module in sys.modules.values() if getattr(module, "__cached__", None)]
print(*(module.__name__ for module in modules if not os.path.exists(module.__cached__)))
"""
EDGE_BYTES: Final = 120_000_000
"""What an edge node downloads at most."""
PRECISION_MB: Final = 3
"""Of the sizes on the page: a new version of a package is no reason to write it again."""

pytestmark = pytest.mark.timeout(300, func_only=True)
every_image: Final = pytest.mark.parametrize(
    ("architecture", "name"), [(each, name) for each in MACHINES for name in MODULES]
)


def output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@every_image
def test_it_works_without_root_on_a_read_only_root(
    architecture: str, name: str, images: Built, tmp_path: Path
) -> None:
    image = images[architecture, name]
    assert image.architecture == architecture
    python = ("python3", "-c", PLACE)
    place, without_bytecode = output(
        image.command(tmp_path, MODULES[name], entrypoint=python)
    ).splitlines()
    assert place.split() == [MACHINES[architecture], "65532", "True"]
    assert not without_bytecode


@pytest.mark.parametrize("architecture", MACHINES)
@pytest.mark.parametrize("name", ["globalmanager", "localcontroller"])
def test_its_program_starts(architecture: str, name: str, images: Built, tmp_path: Path) -> None:
    assert "usage:" in output(images[architecture, name].command(tmp_path, "--help"))


@every_image
def test_it_holds_the_bill_that_the_release_publishes(
    architecture: str, name: str, images: Built
) -> None:
    bill = json.loads(images[architecture, name].read("usr/share/sbom/edgeai.cdx.json"))
    assert bill == LICENSES["sbom"](ROLES[name])


@every_image
def test_the_page_tells_its_size(architecture: str, name: str, images: Built) -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{name}` \| (\d+) MB \| (\d+) MB \|$", page, re.M)
    assert row is not None
    size_mb = int(row[1 + list(MACHINES).index(architecture)])
    measured_mb = images[architecture, name].compressed_bytes / 1e6
    assert abs(measured_mb - size_mb) <= PRECISION_MB, measured_mb


@pytest.mark.parametrize("architecture", MACHINES)
def test_an_edge_downloads_little(architecture: str, images: Built) -> None:
    assert images[architecture, "localcontroller"].compressed_bytes <= EDGE_BYTES


@pytest.mark.parametrize("architecture", MACHINES)
def test_each_package_of_the_locks_has_a_wheel(architecture: str) -> None:
    """If one has none, this ends with the message of pip, which names it."""
    wheels = {each.name.split("-")[0].lower() for each in Images(architecture).wheels().iterdir()}
    locks = "".join(lock.read_text() for lock in LOCKS)
    assert wheels == {name.replace("-", "_") for name in re.findall(r"^([\w-]+)==", locks, re.M)}
