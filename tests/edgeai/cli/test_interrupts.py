"""However the command is ended, it leaves no process and no file behind."""

import itertools
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.edgeai.cli.command import DEADLINE_S, processes_of, start
from tests.edgeai.kube.test_plugin import kubeconfig_with
from tests.support.waiting import eventually


class Ended(Exception):
    """The command has ended though it should not have."""


def wait_for(what: str, is_so: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Raises: Ended with what the command has said"""

    def check() -> object:
        if process.poll() is not None:
            raise Ended(process.communicate())
        return is_so()

    eventually(what, check, poll_s=0.01)


def wait_for_end_of_processes(directory: Path) -> None:
    def check() -> bool:
        left = processes_of(directory)
        assert not left, f"there is still {left}"
        return True

    eventually(f"the end of all processes of {directory}", check)


MOMENTS: dict[str, Callable[[Path], object]] = {
    "the cluster was just started": lambda state: (state / "cluster.log").exists(),
    "its pods come up": lambda state: list(state.glob("pods/*")),
}


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "the cluster was just started"),
        (signal.SIGTERM, "its pods come up"),
        (signal.SIGHUP, "the cluster was just started"),
    ],
)
def test_up_that_is_ended_early_leaves_nothing_running(
    number: signal.Signals, moment: str, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    process = start("up", "--state-dir", str(state))
    wait_for(moment, lambda: MOMENTS[moment](state), process)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stdout) == (128 + number, "")
    assert "Traceback" not in stderr
    wait_for_end_of_processes(tmp_path)


def test_a_second_interrupt_does_not_break_the_demos_clean_up(tmp_path: Path) -> None:
    process = start("demo", "joint-inference", tmp=tmp_path)
    wait_for("pods", lambda: list(tmp_path.glob("edgeai-demo-*/state/pods/*")), process)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    before = "".join(itertools.takewhile(lambda line: "interrupted" not in line, lines))
    process.send_signal(signal.SIGINT)  # into the clean-up
    after, stderr = process.communicate(timeout=DEADLINE_S)
    stdout = before + after
    assert process.returncode == 130
    assert "failed" not in stdout
    assert "[dim]" not in stdout
    assert "Traceback" not in stderr
    wait_for_end_of_processes(tmp_path)
    assert list(tmp_path.iterdir()) == []


MODEL = {
    "apiVersion": "edgeai.io/v1alpha1",
    "kind": "Model",
    "metadata": {"name": "m", "namespace": "default"},
    "spec": {"url": "/m", "format": "onnx"},
}
COMMANDS = {
    "doctor": "",
    "status": "",
    "describe": "digits",
    "logs": "digits",
    "submit": "job.yaml",
    "open": "--no-browser",
    "credentials": "",
}


@pytest.mark.parametrize(("name", "argument"), COMMANDS.items(), ids=COMMANDS)
def test_a_plugin_of_the_kubeconfig_ends_with_the_command(
    name: str, argument: str, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    kubeconfig = kubeconfig_with(tmp_path / "config", f"echo $$ > {pid}; exec sleep 1000")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(MODEL))
    arguments = [each for each in (argument, "--kubeconfig", str(kubeconfig)) if each]
    process = start(name, *arguments, cwd=tmp_path)
    wait_for("a plugin", lambda: pid.exists() and pid.read_text().strip(), process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stdout, stderr) == (130, "", "")
    assert not Path("/proc", pid.read_text().strip()).exists()
