"""The files of a launcher: contents that training images know, and sizes that a ConfigMap holds."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from edgeai.api.training import MAX_REPLICAS
from globalmanager.kinds.elastic.trainingjob import files

HOSTS: Final = ("mnist-worker-0", "mnist-worker-2")
MAX_CONFIG_MAP_BYTES: Final = 1 << 20
FAILED: Final = 255


def test_the_contents_are_what_training_images_know() -> None:
    """Source: et-operator, pkg/controllers/resource.go."""
    found = files.file_contents(HOSTS, 4)
    assert found["hostfile"] == "mnist-worker-0:4\nmnist-worker-2:4\n"
    assert found["deepspeed-hostfile"] == "mnist-worker-0 slots=4\nmnist-worker-2 slots=4\n"
    assert found["discover_hosts.sh"] == (
        "#!/bin/bash\nwhile read line\ndo\necho $line\ndone < /etc/edl/hostfile\n"
    )


def test_the_hosts_are_read_back() -> None:
    assert files.hosts_in(files.file_contents(HOSTS, 4)) == list(HOSTS)
    assert files.hosts_in(files.file_contents((), 4)) == []


def test_the_largest_job_fits_into_a_config_map() -> None:
    longest = [f"{index:0>63}" for index in range(MAX_REPLICAS)]
    assert len(msgspec.json.encode(files.file_contents(longest, 1000))) < MAX_CONFIG_MAP_BYTES


def test_the_program_runs_with_the_python_of_older_images() -> None:
    ast.parse(files.file_contents(HOSTS, 1)["kubexec.py"], feature_version=(3, 7))


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """A directory with the files, and a directory `bin` with a shell and nothing else."""
    for name, content in files.file_contents(HOSTS, 1).items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o555)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    return tmp_path


def add_program(launcher: Path, name: str) -> None:
    """One that says its arguments, a line each."""
    path = launcher / "bin" / name
    path.write_text(f'#!/bin/sh\necho {name}\nprintf "%s\\n" "$@"\n')
    path.chmod(0o755)


def kubexec(
    launcher: Path, *arguments: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(launcher / "kubexec.sh"), *arguments],
        env={"PATH": os.fspath(launcher / "bin"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_kubexec_runs_its_program_with_python(launcher: Path) -> None:
    add_program(launcher, "python3")
    add_program(launcher, "kubectl")
    said = kubexec(launcher, "mnist-worker-0", " orted", "-mca", '"a b"').stdout.splitlines()
    program = str(launcher / "kubexec.py")
    assert said == ["python3", "-I", "-S", program, "mnist-worker-0", " orted", "-mca", '"a b"']


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({}, "KUBERNETES_SERVICE_HOST is not set"),
        ({"KUBERNETES_SERVICE_HOST": "127.0.0.1"}, "token: No such file"),
    ],
)
def test_a_launcher_that_uses_ssh_is_told_how_to_use_kubexec(
    launcher: Path, variables: dict[str, str], problem: str
) -> None:
    (launcher / "bin" / "python3").symlink_to(sys.executable)
    done = kubexec(launcher, "mnist-worker-0", "true", **variables)
    assert done.returncode == FAILED
    assert problem in done.stderr
    assert "set spec.launcherAttachMode to kubexec" in done.stderr


def test_without_python_kubexec_runs_kubectl(launcher: Path) -> None:
    add_program(launcher, "kubectl")
    said = kubexec(launcher, "mnist-worker-0", " orted", "-mca", '"a b"').stdout.splitlines()
    words = ["exec", "mnist-worker-0", "--", "/bin/sh", "-c", ' orted -mca "a b"']
    assert said == ["kubectl", *words]


def test_without_both_kubexec_says_what_is_missing(launcher: Path) -> None:
    done = kubexec(launcher, "mnist-worker-0", "true")
    assert done.returncode == FAILED
    assert "neither python3 nor kubectl" in done.stderr
