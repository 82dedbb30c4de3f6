"""A real API server for one measurement, and GlobalManagers on it as they are deployed."""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.bench.process import DEADLINE_S, start
from tests.bench.samples import MODEL, NAMESPACE, node_name, token_of
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.samples import model
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

CALM_S: Final = 5.0
# As deploy/containers sets it for the GlobalManager.
AS_DEPLOYED: Final = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "PYTHONOPTIMIZE": "2",
}


@contextmanager
def running_plane(users: Mapping[str, str] | None = None) -> Iterator[tuple[ControlPlane, Path]]:
    """A control plane with its controllers, and its directory.

    Args: users: further ones -> their groups
    Raises: Unavailable
    """
    with tempfile.TemporaryDirectory(prefix="edgeai-bench-") as name:
        control_plane = ControlPlane(binaries.obtain(), Path(name), users=users or {})
        with control_plane.running():
            yield control_plane, Path(name)


def install(control_plane: ControlPlane, *, nodes: int = 0) -> None:
    """The CRDs, the namespace of the GlobalManager, and so many Nodes."""
    control_plane.prepare()
    create_node = partial(control_plane.client.create_named, "Node")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create_node, map(node_name, range(nodes))))


def prepare(control_plane: ControlPlane, *, nodes: int) -> None:
    """As `install`, and the Model that jobs of NAMESPACE need."""
    install(control_plane, nodes=nodes)
    wait_for_account(control_plane.client, NAMESPACE)
    control_plane.client.create(model(MODEL, NAMESPACE))


def wait_for_account(client: Client, namespace: str) -> None:
    """Without it no pod can be made."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    eventually(f"the account of pods in {namespace}", lambda: client.find(account))


def deployed(
    kubeconfig: Path,
    directory: Path,
    *flags: str,
    nodes: int = 0,
    tokens: Mapping[str, str] | None = None,
) -> GlobalManager:
    """Args: nodes: how many it knows by `token_of`; tokens: those of other nodes"""
    known = {name: token_of(name) for name in map(node_name, range(nodes))}
    return GlobalManager(
        kubeconfig=kubeconfig,
        directory=directory,
        tokens=tokens or known,
        flags=flags,
        environment=AS_DEPLOYED,
    )


def connection(control_plane: ControlPlane, directory: Path) -> tuple[str, str, str]:
    """URL CA TOKEN_FILE of who may do everything."""
    token_file = directory / "admin-token"
    token_file.touch(mode=0o600)
    token_file.write_text(control_plane.token)
    return control_plane.url, str(control_plane.ca), str(token_file)


def send(
    control_plane: ControlPlane,
    directory: Path,
    requests: Iterable[Sequence[Any]],
    *,
    concurrency: int = 16,
    rate: float = 0.0,
) -> "subprocess.Popen[str]":
    """A `sender` of these [method, path, body]. Args: rate: a second; 0: as fast as can be"""
    file = directory / "requests"
    file.write_text("\n".join(json.dumps(each) for each in requests))
    return start("sender", *connection(control_plane, directory), file, concurrency, rate)


def wait_for_calm(manager: GlobalManager) -> None:
    """Until its work about what was created is done."""

    def is_calm() -> bool:
        before_s = manager.processor_s()
        time.sleep(CALM_S)
        return manager.processor_s() - before_s < CALM_S / 10

    eventually("a GlobalManager without work", is_calm, timeout_s=DEADLINE_S)
