"""An edge node without a kubelet: its LocalController as a process, and a worker's words."""

import json
import signal
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from tests.cluster.programs import Program
from tests.support.manager import TOKENS
from tests.support.ports import free_port
from tests.support.waiting import eventually

_HOST: Final = "127.0.0.1"


class Edge(Program):
    """Args:
    node: its name
    token: what the GlobalManagers know it by; that of TOKENS, if none is given
    port: of loopback, where a GlobalManager answers
    directory: empty, or to be made; gets its ledger, token and log
    flags: further ones; they win
    """

    def __init__(
        self, node: str, *, token: str = "", port: int, directory: Path, flags: tuple[str, ...] = ()
    ) -> None:
        directory.mkdir(exist_ok=True)
        self._worker_port, self._status_port = free_port(), free_port()
        token_file = directory / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(token or TOKENS[node])
        argv = [
            *(sys.executable, "-m", "localcontroller", "--node-name", node),
            *("--global-manager", f"ws://{_HOST}:{port}", "--edge-plaintext", "allow"),
            *("--token-file", str(token_file), "--state-dir", str(directory / "state")),
            *("--worker-address", f"{_HOST}:{self._worker_port}"),
            *("--status-address", f"{_HOST}:{self._status_port}"),
            *("--reconnect-min-s", "0.3", "--reconnect-max-s", "0.6"),
            *flags,
        ]
        super().__init__(argv, log=directory / f"localcontroller-{node}.log")

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Started, and killed at the end."""
        self.start()
        try:
            yield self
        finally:
            self.stop(signal.SIGKILL)
            print(f"--- {self.name}\n{self.logs()}", file=sys.stderr)

    def logs(self) -> str:
        return self.last_words()

    @property
    def status_url(self) -> str:
        """Of its own REST API."""
        return f"http://{_HOST}:{self._status_port}"

    def worker_url(self, worker: str, *, secret: str) -> str:
        """Where this worker reports."""
        return f"http://{_HOST}:{self._worker_port}/w/{secret}/v1/workers/{worker}/status"

    def link(self) -> dict[str, Any]:
        """Of its own REST API; {} while that does not answer."""
        return self._get("/api/v1/link")

    def tasks(self, namespace: str) -> set[str]:
        """The names of what it holds of a namespace; likewise."""
        items = self._get("/api/v1/tasks").get("items", ())
        return {task["name"] for task in items if task["namespace"] == namespace}

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self.status_url}{path}", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except OSError:
            return {}

    def report(self, worker: str, *, secret: str, **counts: int) -> None:
        """As a worker on this node; until it is taken."""
        message = {"phase": "inference", "status": "running", "output": {"taskInfo": counts}}
        request = urllib.request.Request(
            self.worker_url(worker, secret=secret),
            data=json.dumps(message).encode(),
            headers={"Content-Type": "application/json"},
        )

        def is_taken() -> bool:
            try:
                with urllib.request.urlopen(request, timeout=5):
                    return True
            except OSError as error:  # 403 until the task has come; an HTTPError is an OSError
                raise AssertionError(str(error)) from error

        eventually(f"a report of {worker} to be taken", is_taken)
