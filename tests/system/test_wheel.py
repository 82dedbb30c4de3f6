"""What `pip install edgeai` brings, with which extra, in a Python that has no checkout."""

import zipfile
from pathlib import Path

import pytest

from tests.edgeai.cli.test_json_everywhere import COMMANDS
from tests.system.demos import Demo, left_of
from tests.system.wheels import WheelVenv, build

PROGRAMS = [
    *((name, "cli") for name in COMMANDS),
    ("python -m edgeai status", "cli"),
    ("kubectl-edgeai status", "cli"),
    ("python -m edgeai.localcluster --state-dir state", "cli"),
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


@pytest.mark.parametrize("demo", [name for name in COMMANDS if name.startswith("edgeai demo ")])
def test_a_demo_names_its_extra_before_it_starts_anything(
    with_command: WheelVenv, demo: str
) -> None:
    done = with_command.run(*demo.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "edgeai: sklearn is missing; install it with: pip install 'edgeai[demo]'\n"
    )


def test_a_demo_runs_without_a_checkout(with_demos: WheelVenv) -> None:
    demo = Demo(with_demos.run("edgeai", "demo", "joint-inference"), with_demos.home)
    assert demo.process.returncode == 0, demo.process.stdout + demo.process.stderr
    assert demo.outcome["status_upload_count"] == demo.outcome["worker_upload_count"] > 0
    assert left_of(with_demos.home) == []


@pytest.mark.parametrize("name", ["pytorch", "tensorflow"])
def test_the_wheel_has_the_locks_of_the_demos(with_command: WheelVenv, name: str) -> None:
    program = f"from edgeai.cli.runtimes import runtime; print(runtime('{name}').lock.read_text())"
    assert "--hash=sha256:" in with_command.run("python", "-c", program).stdout
