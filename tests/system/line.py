"""A local cluster with a line to an edge node that a test can cut."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edgeai.cli import environment, system
from edgeai.cli.environment import Environment
from edgeai.demo.cutting_proxy import CuttingProxy
from edgeai.demo.joint_inference.story import EDGE_NODE
from tests.support.waiting import eventually

# A silent peer is found out in seconds.
QUICK: Final = ("--session-beat-s", "1", "--session-silence-s", "3")
LOCALCONTROLLER: Final = ("localcontroller", "--node-name", EDGE_NODE)


class Line:
    """The line between EDGE_NODE and its GlobalManager, through a proxy."""

    def __init__(self, running: Environment, proxy: CuttingProxy) -> None:
        self.running = running
        self.proxy = proxy

    def cut(self) -> None:
        """Silently, until the GlobalManager notices."""
        self.proxy.cut("silently")
        self.wait_for_end_of_session()

    def mend(self) -> None:
        self.proxy.mend()
        self.wait_for_session()

    def wait_for_session(self) -> None:
        eventually("a session", self._is_connected)

    def wait_for_end_of_session(self) -> None:
        eventually("the end of the session", lambda: not self._is_connected())

    def _is_connected(self) -> bool:
        return not environment.missing_sessions(self.running, (EDGE_NODE,))


@contextmanager
def up_with_line(state_dir: Path, *, contact_grace_s: int) -> Iterator[Line]:
    """Args: contact_grace_s: when the status of a job says that an edge is out of contact"""
    found: list[Environment] = []

    def target() -> tuple[str, int]:
        service = found[0].api.get(
            f"/api/v1/namespaces/{system.NAMESPACE}/services/{system.GLOBALMANAGER}"
        )
        return service["spec"]["clusterIP"], system.EDGE_PORT

    with CuttingProxy(target) as proxy:
        tuning = system.Tuning(
            global_manager_of={EDGE_NODE: f"127.0.0.1:{proxy.port}"},
            globalmanager_flags=(*QUICK, "--contact-grace-s", str(contact_grace_s)),
            localcontroller_flags=(*QUICK, "--reconnect-max-s", "2"),
        )
        running = environment.up(state_dir, tuning=tuning, on_api=found.append)
        yield Line(running, proxy)
        environment.down(state_dir)
