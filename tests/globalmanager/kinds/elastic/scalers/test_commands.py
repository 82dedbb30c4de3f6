"""The commands of scaling in a real shell, among real processes."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgeai.api.resources import Object
from globalmanager.contract import Execution
from globalmanager.kinds.elastic.scalers import Script
from globalmanager.kinds.elastic.trainingjob import commands

LAUNCHER: Object = {
    "metadata": {"name": "l", "uid": "u"},
    "spec": {"containers": [{"name": "main"}, {"name": "other"}]},
}


def run(execution: Execution, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """As the kubelet runs it, with a standard input that stays open."""
    process = subprocess.Popen(
        execution.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin as stdin:
        stdin.write(execution.stdin)
        stdin.flush()
        output = process.stdout.read()
        return subprocess.CompletedProcess(execution.command, process.wait(), output)


@contextmanager
def process(*arguments: str) -> Iterator[None]:
    """A process that has these arguments, until the end of the `with` body."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield
        finally:
            started.kill()


def is_busy(*names: str) -> bool:
    ended = [run(each).returncode for each in commands.idle(LAUNCHER, names, 1)]
    assert set(ended) <= {0, commands.STILL_BUSY}
    return commands.STILL_BUSY in ended


@pytest.fixture
def job() -> str:
    """A name that no other process of this machine knows."""
    return f"job-{uuid.uuid4().hex[:12]}"


def test_without_a_process_workers_are_idle(job: str) -> None:
    assert not is_busy(f"{job}-worker-1", f"{job}-worker-2")


@pytest.mark.parametrize("argument", ["{}", "root@{}"], ids=["the name", "a user at the name"])
def test_a_process_with_the_name_as_an_argument_makes_a_worker_busy(
    job: str, argument: str
) -> None:
    with process("-o", "x", argument.format(f"{job}-worker-1"), "cd / && python train.py"):
        assert is_busy(f"{job}-worker-0", f"{job}-worker-1")
        assert not is_busy(f"{job}-worker-0")


@pytest.mark.parametrize(
    "argument",
    [
        "{}-worker-10",
        "{}-worker-1:1",
        "{0}-worker-1,{0}-worker-2",
        "cd {}-worker-1",
        "x{}-worker-1",
    ],
)
def test_a_process_with_a_similar_argument_does_not(job: str, argument: str) -> None:
    """worker-10 is not worker-1, and a list of hosts is no connection to one of them."""
    with process(argument.format(job)):
        assert not is_busy(f"{job}-worker-1", f"{job}-worker-2")


def test_a_check_ends_as_soon_as_the_worker_is_idle(job: str) -> None:
    (check,) = commands.idle(LAUNCHER, (f"{job}-worker-1",), 60)
    with process(f"{job}-worker-1"):
        waiting = subprocess.Popen(check.command)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.5)
    assert waiting.wait(60) == 0


def test_many_workers_are_asked_for_in_several_commands(job: str) -> None:
    names = [f"{job}-worker-{index}" for index in range(250)]
    checks = list(commands.idle(LAUNCHER, names, 1))
    assert len(checks) == 3
    with process(names[-1]):
        assert [run(each).returncode for each in checks] == [0, 0, commands.STILL_BUSY]


def test_a_script_gets_the_workers_and_its_variables(tmp_path: Path) -> None:
    (tmp_path / "scale.sh").write_text('echo "$1|$2|$TOKEN|$EMPTY|"; exit 3\n')
    given = Script("./scale.sh -v", 5, (("TOKEN", "a 'b' $HOME `id` \\ \n"), ("EMPTY", "")))
    execution = commands.script(LAUNCHER, given, ("w-2", "w-3"), 4)
    ended = run(execution, tmp_path)
    assert (ended.returncode, ended.stdout.decode()) == (
        3,
        "-v|w-2:4,w-3:4|a 'b' $HOME `id` \\ \n||\n",
    )
    assert (execution.pod, execution.container) == ("l", "main")


def test_a_script_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (tmp_path / "scale.sh").write_text("sleep 600\n")
    execution = commands.script(LAUNCHER, Script("./scale.sh", 1), ("w-2",), 1)
    assert run(execution, tmp_path).returncode == 124
    assert execution.timeout_s > 1
