"""The GlobalManager of one local cluster: killed, or stopped for a time."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from edgeai.cli import system
from edgeai.cli.environment import Environment
from tests.support.waiting import eventually
from tests.system import processes


@contextmanager
def stopped_manager(running: Environment) -> Iterator[None]:
    """No GlobalManager for as long as this lasts; afterwards it starts again."""
    name = system.GLOBALMANAGER
    deployment = f"/apis/apps/v1/namespaces/{system.NAMESPACE}/deployments/{name}"

    def check() -> bool:
        pids = processes.pids_of(running, name)
        assert not pids, f"there is still {pids}"
        return True

    running.api.patch(deployment, {"spec": {"replicas": 0}})
    try:
        eventually("the end of the GlobalManager", check)
        yield
    finally:
        running.api.patch(deployment, {"spec": {"replicas": 1}})


def kill_manager(running: Environment) -> None:
    """SIGKILL the GlobalManager; its node starts it again, after a longer wait each time.

    After an earlier kill this waits until it runs.
    """
    pids = eventually(
        "a GlobalManager", lambda: processes.pids_of(running, system.GLOBALMANAGER), timeout_s=120
    )
    (pid,) = pids
    os.kill(pid, signal.SIGKILL)
