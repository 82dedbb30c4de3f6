"""The GlobalManager of one local cluster, for a time without it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from edgeai import system
from edgeai.api import wait_until
from edgeai.environment import Environment
from tests.system import processes

_ENDED_S: Final = 30.0


@contextmanager
def stopped_manager(running: Environment) -> Iterator[None]:
    """No GlobalManager for as long as this lasts; afterwards it starts again."""
    name = system.GLOBALMANAGER
    deployment = f"/apis/apps/v1/namespaces/{system.NAMESPACE}/deployments/{name}"

    def still_there() -> str:
        return str(processes.pids_of(running, name) or "")

    running.api.patch(deployment, {"spec": {"replicas": 0}})
    try:
        wait_until("end of the GlobalManager", still_there, timeout_s=_ENDED_S)
        yield
    finally:
        running.api.patch(deployment, {"spec": {"replicas": 1}})
