"""However the command is ended, it leaves no process and no file behind."""

import signal
from pathlib import Path

import pytest
import yaml

from tests.edgeai.cli.command import DEADLINE_S, start, wait_for
from tests.edgeai.kube.test_plugin import kubeconfig_with

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
