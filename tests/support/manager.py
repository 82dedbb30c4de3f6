"""The GlobalManager as a process of its own, against a control plane."""

import hashlib
import http.client
import json
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from tests.cluster.programs import Program
from tests.support.ports import free_port

_HOST: Final = "127.0.0.1"
_GRACE_S: Final = 30.0
SYSTEM_NAMESPACE: Final = "edgeai-system"
TOKENS: Final = {"edge0": "secret-of-edge0"}


class GlobalManager(Program):
    """Args:
    kubeconfig: of the control plane
    system_namespace: exists
    directory: empty, or to be made; gets its token file and log
    tokens: of nodes, by name
    flags: further ones; they win
    environment: of the process, beside this one's
    """

    def __init__(
        self,
        *,
        kubeconfig: Path,
        system_namespace: str = SYSTEM_NAMESPACE,
        directory: Path,
        tokens: Mapping[str, str] = TOKENS,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.http_port = free_port()
        self.edge_address = f"{_HOST}:{free_port()}"
        directory.mkdir(exist_ok=True)
        token_file = directory / "edge-tokens"
        token_file.write_text("".join(f"{n} {_digest(token)}\n" for n, token in tokens.items()))
        argv = [
            *(sys.executable, "-m", "globalmanager", "--kubeconfig", str(kubeconfig)),
            *("--system-namespace", system_namespace, "--edge-token-file", str(token_file)),
            *("--edge-address", self.edge_address, "--edge-plaintext", "allow"),
            *("--http-address", f"{_HOST}:{self.http_port}", "--http-auth", "none"),
            *("--framework-images", "tensorflow:1.18=registry.test/tensorflow:1.18"),
            *flags,
        ]
        super().__init__(argv, log=directory / "globalmanager.log", environment=environment)
        self._lines_before = 0  # lines of the log from before the last start

    @property
    def edge_port(self) -> int:
        return int(self.edge_address.rpartition(":")[2])

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """From its readiness on. At the end it is stopped, and must end well."""
        try:
            self.start()
            yield self
        finally:
            status = self.stop()
        assert status == 0, self.logs()

    def launch(self) -> None:
        """Without waiting until it is ready."""
        if self._log.exists():
            self._lines_before = self._log.read_bytes().count(b"\n")
        super().start()

    def stop(self, how: signal.Signals = signal.SIGTERM, *, within_s: float = _GRACE_S) -> int:
        """Its exit status; -SIGKILL where it does not end within Kubernetes' grace period."""
        return super().stop(how, within_s=within_s)

    def wait_until_ready(self) -> None:
        def check() -> bool:
            is_ready, reasons = self.readyz()
            assert is_ready, f"/readyz says {reasons}"
            return True

        self.eventually("readiness", check)

    def readyz(self) -> tuple[bool, list[str]]:
        """Whether it is ready, and what it says about that."""
        try:
            answer = json.loads(self.get("/readyz"))
        except (OSError, http.client.HTTPException) as error:
            return False, [str(error)]
        return answer["ready"], answer.get("reasons", [])

    def get(self, path: str, *, token: str = "") -> str:
        """What its REST API answers, whatever the status. Raises: OSError, HTTPException"""
        connection = http.client.HTTPConnection(_HOST, self.http_port, timeout=5)
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request("GET", path, headers=headers)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def metric(self, name: str) -> dict[str, float]:
        """Its values, by the labels as they are written."""
        found = re.findall(rf"^{name}({{.*}})? (\S+)$", self.get("/metrics"), re.MULTILINE)
        return {labels: float(value) for labels, value in found}

    def log_lines(self) -> list[str]:
        """What it has said since its last start."""
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[self._lines_before :]

    def logs(self) -> str:
        return self.last_words()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
