"""The GlobalManager as a process of its own, against a control plane."""

import hashlib
import http.client
import json
import sys
from pathlib import Path
from typing import Final

from tests.cluster.programs import Program, free_port

_HOST: Final = "127.0.0.1"
_READY_S: Final = 30.0


class GlobalManager:
    """Args:
    kubeconfig: of the control plane
    system_namespace: exists
    directory: empty; gets its token file and log
    """

    def __init__(self, *, kubeconfig: Path, system_namespace: str, directory: Path) -> None:
        self._http_port = free_port()
        tokens = directory / "tokens"
        tokens.write_text(f"edge0 {hashlib.sha256(b'secret of edge0').hexdigest()}\n")
        argv = [
            *(sys.executable, "-m", "globalmanager", "--kubeconfig", str(kubeconfig)),
            *("--system-namespace", system_namespace, "--edge-token-file", str(tokens)),
            *("--edge-address", f"{_HOST}:{free_port()}"),
            *("--http-address", f"{_HOST}:{self._http_port}"),
            *("--framework-images", "tensorflow:1.18=registry.test/tensorflow:1.18"),
        ]
        self._program = Program(argv, log=directory / "globalmanager.log")

    def start(self) -> None:
        self._program.start()
        self.wait_until_ready()

    def stop(self) -> int:
        """Its exit status."""
        return self._program.stop()

    def wait_until_ready(self) -> None:
        self._program.wait_until(
            "readiness", "/readyz does not say ready", lambda: self.readyz()[0], timeout_s=_READY_S
        )

    def readyz(self) -> tuple[bool, list[str]]:
        """Whether it is ready, and what it says about that."""
        connection = http.client.HTTPConnection(_HOST, self._http_port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            answer = json.load(connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            return False, [str(error)]
        finally:
            connection.close()
        return answer["ready"], answer.get("reasons", [])

    def logs(self) -> str:
        return self._program.last_words()
