"""What `make dist` builds: the same bytes everywhere, and each file is what its users expect."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest
import yaml

from common.version import VERSION

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = {
    "globalmanager": "manager",
    "localcontroller": "edge",
    "worker": "worker",
    "example": "worker",
}
"""Image -> its role."""
URL: Final = "https://files.example/v1"
SOURCES: Final = (
    *("common", "edgeai", "globalmanager", "localcontroller", "requirements", "deploy", "docs"),
    *("CHANGELOG.md", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml", ".gitignore"),
)


def build(root: Path, directory: Path, umask: int = 0o022) -> dict[str, bytes]:
    """Name -> bytes of each file that the program of the checkout at `root` builds."""
    command = [sys.executable, str(root / "deploy" / "dist.py"), str(directory), URL]
    subprocess.run(
        command, cwd=directory.parent, check=True, capture_output=True, timeout=100, umask=umask
    )
    return {file.name: file.read_bytes() for file in directory.iterdir()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    build(ROOT, directory)
    return directory


def test_another_checkout_builds_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():  # with new times
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, copy / name, ignore=ignored, copy_function=shutil.copy)
        else:
            shutil.copy(source, copy / name)
    for file in copy.rglob("*"):
        if file.is_file():
            file.chmod(0o700 if os.access(file, os.X_OK) else 0o600)
            os.utime(file, (1, 1))
    (copy / "deploy" / "chart" / ".values.yaml.swp").touch()
    built = build(copy, tmp_path / "dist", umask=0o077)
    assert built == {file.name: file.read_bytes() for file in dist.iterdir()}


def test_the_sums_are_those_of_the_files(dist: Path) -> None:
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=dist, capture_output=True)
    assert done.returncode == 0, done.stderr
    names = {line.partition(b":")[0].decode() for line in done.stdout.splitlines()}
    assert names | {"SHA256SUMS"} == {file.name for file in dist.iterdir()}
    assert names == {
        *(f"edgeai-{VERSION}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".tgz")),
        *("kubectl-edgeai.tar.gz", "edgeai.yaml"),
        *(f"{image}.cdx.json" for image in IMAGES),
    }


@pytest.mark.parametrize("image", IMAGES)
def test_each_image_has_the_bill_of_its_role(dist: Path, image: str) -> None:
    bill = json.loads((dist / f"{image}.cdx.json").read_text())
    lock = (ROOT / "requirements" / f"{IMAGES[image]}.lock").read_text()
    components = {f"{each['name']}=={each['version']}" for each in bill["components"]}
    assert components == {line.split()[0] for line in lock.splitlines() if line[:1].isalpha()}


def test_a_directory_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "older.whl").touch()
    command = [sys.executable, str(ROOT / "deploy" / "dist.py"), "dist"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        1,
        "dist is not empty, and SHA256SUMS would name what is there\n",
    )


def test_the_wheel_of_the_sdist_is_the_wheel(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"edgeai-{VERSION}.tar.gz") as sdist:
        sdist.extractall(tmp_path, filter="data")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    source = tmp_path / f"edgeai-{VERSION}"
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=60)
    name = f"edgeai-{VERSION}-py3-none-any.whl"
    assert (tmp_path / name).read_bytes() == (dist / name).read_bytes()


def test_the_sdist_has_no_tests_and_the_wheel_no_documents(dist: Path) -> None:
    with tarfile.open(dist / f"edgeai-{VERSION}.tar.gz") as sdist:
        names = {name.split("/")[1] for name in sdist.getnames()}
    assert names == {
        *("common", "edgeai", "globalmanager", "localcontroller", "requirements"),
        *("CHANGELOG.md", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml", "PKG-INFO"),
        ".gitignore",
    }
    wheel = zipfile.ZipFile(dist / f"edgeai-{VERSION}-py3-none-any.whl").namelist()
    assert not [name for name in wheel if name.endswith((".md", ".pyc"))]


def test_the_page_of_the_package_has_no_link_into_the_repository(dist: Path) -> None:
    wheel = zipfile.ZipFile(dist / f"edgeai-{VERSION}-py3-none-any.whl")
    text = wheel.read(f"edgeai-{VERSION}.dist-info/METADATA").decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "works on; its reports wait in SQLite" in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links)


def test_the_plugin_of_the_manifest_is_the_archive(dist: Path, tmp_path: Path) -> None:
    manifest = yaml.safe_load((dist / "edgeai.yaml").read_text())
    assert manifest["spec"]["version"] == f"v{VERSION}"  # krew wants the v
    (platform,) = manifest["spec"]["platforms"]
    assert platform["uri"] == f"{URL}/kubectl-edgeai.tar.gz"
    packed = (dist / "kubectl-edgeai.tar.gz").read_bytes()
    assert platform["sha256"] == hashlib.sha256(packed).hexdigest()
    with tarfile.open(dist / "kubectl-edgeai.tar.gz") as archive:
        assert {each["from"] for each in platform["files"]} == {*archive.getnames()}
        archive.extractall(tmp_path, filter="data")
    plugin = tmp_path / platform["bin"]
    path = f"{Path(sys.executable).parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    done = subprocess.run(
        [plugin, "credentials", "--help"], capture_output=True, env={"PATH": path}
    )
    assert done.returncode == 0
    assert b"Usage: edgeai credentials" in done.stdout
    without = subprocess.run([plugin], capture_output=True, env={"PATH": "/usr/bin:/bin"})
    assert without.returncode == 1
    assert b"pip install 'edgeai[cli]'" in without.stderr


@pytest.mark.parametrize("folder", ["deploy/chart", "deploy/edgeai.yaml", "docs", "edgeai/demo"])
def test_each_image_has_the_version(folder: str) -> None:
    """It stands in common/version.py; what cannot read it there repeats it."""
    path = ROOT / folder
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    image = re.compile(rb"(?:docker\.io|REGISTRY)/edgeai/[a-z$]+:([0-9][\w.-]*)")
    tags = {tag.decode() for file in files for tag in image.findall(file.read_bytes())}
    assert tags <= {VERSION}
    assert tags or folder == "deploy/chart"


def test_the_chart_has_the_version() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "chart" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
