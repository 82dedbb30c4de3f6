"""What `pip install edgeai` brings, with which extra, in a Python that has no checkout."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.edgeai.cli.test_json_everywhere import COMMANDS
from tests.edgeai.test_import import IMPORT_ALL
from tests.system.demos import Demo, left_of

CHECKOUT: Final = Path(__file__).parents[2]
_OF_THE_PYTHON: Final = {"..", "__pycache__"}
"""No distribution has these for itself."""


def build(directory: Path) -> Path:
    """Returns: the wheel of the checkout"""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, timeout=60)
    (wheel,) = directory.glob("*.whl")
    return wheel


class WheelVenv:
    """`pip install 'edgeai[EXTRAS]'` into a new virtual environment.

    The libraries are links to those of this environment, so no test needs a package index.

    Args:
        directory: empty, outside the checkout; its `home` is the programs' HOME, TMPDIR and
            working directory
    """

    def __init__(self, wheel: Path, directory: Path, *extras: str) -> None:
        self.directory, self.home = directory, directory / "home"
        self.home.mkdir(parents=True)
        venv.create(directory / "venv", with_pip=False, symlinks=True)
        self._bin = directory / "venv" / "bin"
        (site,) = (directory / "venv").glob("lib/python3*/site-packages")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        install = ["install", "--no-deps", "--no-index", "--no-compile", str(wheel)]
        subprocess.run(
            [*pip, "--python", str(self._bin / "python"), *install], check=True, timeout=60
        )
        (own,) = metadata.distributions(name="edgeai", path=[str(site)])
        for distribution in _closure(own, frozenset(extras)):
            for name in {file.parts[0] for file in distribution.files or ()} - _OF_THE_PYTHON:
                if not (site / name).is_symlink():
                    (site / name).symlink_to(Path(str(distribution.locate_file(name))))

    def run(self, *command: str, timeout_s: float = 110) -> subprocess.CompletedProcess[str]:
        """Run a program of the installation, as a newcomer does in their home directory."""
        return subprocess.run(
            [str(self._bin / command[0]), *command[1:]],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=self.home,
            env={
                "PATH": f"{self._bin}{os.pathsep}/usr/bin{os.pathsep}/bin",
                "HOME": str(self.home),
                "TMPDIR": str(self.home),
            },
        )


def _closure(own: metadata.Distribution, extras: frozenset[str]) -> Iterator[metadata.Distribution]:
    """What a package index would install with the wheel: all that it requires, each once."""
    done = {("edgeai", extra) for extra in ("", *extras)}
    waiting = [(own, extra) for _, extra in sorted(done)]
    while waiting:
        distribution, extra = waiting.pop()
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            name = canonicalize_name(requirement.name)
            required = own if name == "edgeai" else metadata.distribution(name)
            for needed in {(name, ""), *((name, each) for each in requirement.extras)} - done:
                done.add(needed)
                waiting.append((required, needed[1]))
                if name != "edgeai":
                    yield required


PROGRAMS = [
    *((name, "cli") for name in COMMANDS),
    ("python -m edgeai status", "cli"),
    ("kubectl-edgeai status", "cli"),
    ("python -m edgeai.localcluster --state-dir state", "local"),
    ("globalmanager --help", "manager"),
    ("python -m globalmanager --help", "manager"),
    ("localcontroller --help", "edge"),
    ("python -m localcontroller --help", "edge"),
]
"""What a user can run, and the extra that it needs."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> WheelVenv:
    return WheelVenv(wheel, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def with_command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> WheelVenv:
    return WheelVenv(wheel, tmp_path_factory.mktemp("command"), "cli")


@pytest.fixture(scope="module")
def with_demos(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> WheelVenv:
    return WheelVenv(wheel, tmp_path_factory.mktemp("demos"), "demo")


def test_the_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packages = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert packages == {"common", "edgeai", "globalmanager", "localcontroller"}
    assert {f"{package}/py.typed" for package in packages} <= {*names}  # for type checkers of users
    assert "globalmanager/kinds/elastic/trainingjob/assets/kubexec.py" in names


def test_the_client_needs_no_extra(plain: WheelVenv) -> None:
    done = plain.run("python", "-c", "import edgeai.api, edgeai.client as c; print(c.__file__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(plain.directory))


@pytest.mark.parametrize(("program", "extra"), PROGRAMS)
def test_a_program_names_the_extra_that_is_missing(
    plain: WheelVenv, program: str, extra: str
) -> None:
    done = plain.run(*program.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"is missing; install it with: pip install 'edgeai[{extra}]'\n")
    assert len(done.stderr.splitlines()) == 1


def test_the_command_needs_its_extra_alone(with_command: WheelVenv) -> None:
    done = with_command.run("python", "-c", IMPORT_ALL, "edgeai.cli")
    assert done.returncode == 0, done.stderr
    done = with_command.run("edgeai", "down", "-o", "json")
    assert (done.returncode, done.stdout, done.stderr) == (0, '{\n  "stopped": false\n}\n', "")


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("edgeai up", "local"),
        *((name, "demo") for name in COMMANDS if name.startswith("edgeai demo ")),
    ],
)
def test_the_local_cluster_names_its_extra_before_anything_starts(
    with_command: WheelVenv, program: str, extra: str
) -> None:
    done = with_command.run(*program.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"edgeai: jsonpatch is missing; install it with: pip install 'edgeai[{extra}]'\n"
    )
    assert not left_of(with_command.home)


INSTALLS: Final = re.findall(
    r"^\| `edgeai(?:\[(\w+)\])?` \| (\d+) \| .* \| (.*) \|$",
    (CHECKOUT / "docs" / "install.md").read_text(),
    re.MULTILINE,
)
"""Of the page's table: extra, megabytes, what the extra names."""


def test_the_page_lists_every_extra_of_users(wheel: Path) -> None:
    extras = {*(of_wheel(wheel).metadata.get_all("Provides-Extra") or ())}
    assert {"", *extras} - {"build", "dev"} == {extra for extra, _, _ in INSTALLS}


@pytest.mark.parametrize(("extra", "megabytes", "names"), INSTALLS)
def test_an_install_brings_what_the_page_lists_and_weighs_no_more(
    wheel: Path, extra: str, megabytes: str, names: str
) -> None:
    own = of_wheel(wheel)
    requirements = [Requirement(text) for text in own.requires or ()]
    direct = {canonicalize_name(one.name) for one in requirements if _is_of(extra, one)}
    assert direct == {*_libraries(names)}
    files = zipfile.ZipFile(wheel).infolist()
    total = sum(file.file_size for file in files) + sum(
        sum(path.stat().st_size for path in _files_of(distribution))
        for distribution in _closure(own, frozenset({extra} - {""}))
    )
    # The wheel has no bytecode here, and other Pythons have other libraries.
    assert 0.7 * int(megabytes) < total / 1e6 < 1.1 * int(megabytes)


def _libraries(names: str) -> Iterator[str]:
    """What stands in a row of the page's table, other extras as what they name."""
    for name in names.split(", "):
        if name.startswith("["):
            yield from _libraries(next(row[2] for row in INSTALLS if f"[{row[0]}]" == name))
        else:
            yield name


def of_wheel(wheel: Path) -> metadata.Distribution:
    (directory,) = (
        each for each in zipfile.Path(wheel).iterdir() if each.name.endswith(".dist-info")
    )
    return metadata.PathDistribution(directory)


def _is_of(extra: str, requirement: Requirement) -> bool:
    if requirement.marker is None:
        return not extra
    return bool(extra) and requirement.marker.evaluate({"extra": extra})


def _files_of(distribution: metadata.Distribution) -> Iterator[Path]:
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if path.exists() and file.parts[0] != "..":
            yield path


def test_a_demo_runs_without_a_checkout(with_demos: WheelVenv) -> None:
    demo = Demo(with_demos.run("edgeai", "demo", "joint-inference"), with_demos.home)
    assert demo.process.returncode == 0, demo.process.stdout + demo.process.stderr
    assert demo.outcome["status_upload_count"] == demo.outcome["worker_upload_count"] > 0
    assert left_of(with_demos.home) == []


@pytest.mark.parametrize("name", ["pytorch", "tensorflow"])
def test_the_wheel_has_the_locks_of_the_demos(with_command: WheelVenv, name: str) -> None:
    program = f"from edgeai.cli.runtimes import runtime; print(runtime('{name}').lock.read_text())"
    assert "--hash=sha256:" in with_command.run("python", "-c", program).stdout
