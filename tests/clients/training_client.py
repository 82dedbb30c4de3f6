"""kubeflow-training's TrainingClient, called from a test. It runs in a process of its own."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from edgeai.cli.api import Object

_PROCESS: Final = Path(__file__).with_name("training_client_process.py")
WAIT_S: Final = 60


class Refused(Exception):
    """What the TrainingClient raised: its type and text."""

    def __init__(self, type_: str, text: str) -> None:
        super().__init__(f"{type_}: {text}")
        self.type = type_


class TrainingClient:
    """Methods have the names and arguments that the package gives them.

    Args:
        python: of the environment that has the package
        kubeconfig: of the cluster
        kind: PyTorchJob or TFJob
        directory: gets a file with what the client prints
    """

    def __init__(
        self, python: Path, kubeconfig: Path, namespace: str, kind: str, directory: Path
    ) -> None:
        self._printed = directory / "training-client.log"
        argv = [str(python), str(_PROCESS), str(kubeconfig), namespace, kind]
        with self._printed.open("wb") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def close(self) -> None:
        with self._process as process:
            process.kill()

    def printed(self) -> str:
        return self._printed.read_text()

    def call(self, method: str, **arguments: Any) -> Any:
        """What the method returns, as JSON. Raises: Refused"""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the client has ended: {self.printed()}"
        answer = json.loads(line)
        if "raised" in answer:
            raise Refused(answer["raised"], answer["text"])
        return answer["returned"]

    def wait_for(
        self, name: str, condition: str, *, timeout_s: float = WAIT_S, every_s: float = 1
    ) -> Object:
        """wait_for_job_conditions, which asks every `every_s` seconds."""
        job: Object = self.call(
            "wait_for_job_conditions",
            name=name,
            expected_conditions=[condition],
            polling_interval=every_s,
            wait_timeout=timeout_s,
        )
        return job
