"""The two clusters with a GlobalManager, and a way to end the containers of their pods."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

from edgeai.cli import environment
from tests.cluster import binaries, training
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kubelet import Kubelet
from tests.conformance.clusters import AnyCluster, LocalCluster, RealCluster
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

NODE: Final = "cloud0"

# Runs until a file with its pod's name exists, and ends with the code in this file.
UNTIL_TOLD: Final = """
echo "$HOSTNAME starts"
while [ ! -e "$0/$HOSTNAME" ]; do sleep 0.1; done
code=$(cat "$0/$HOSTNAME")
rm "$0/$HOSTNAME"
echo "$HOSTNAME ends with $code"
exit "$code"
"""


class TrainingCluster(Protocol):
    """A cluster whose GlobalManager serves training jobs."""

    @property
    def cluster(self) -> AnyCluster: ...

    has_logs: bool
    """Whether containers run, so that they have logs."""

    def pod_spec(self, container: str) -> dict[str, Any]:
        """The pod's container runs until `end`."""

    def serving(self, namespace: str) -> AbstractContextManager[object]:
        """While this lasts, pods of the namespace start and end."""

    def end(self, namespace: str, pod: str, code: int) -> None:
        """The container of the pod ends with this code, as soon as it runs."""


class LocalTraining:
    """Processes run as containers, and wait for a file."""

    has_logs = True

    def __init__(self, cluster: LocalCluster, files: Path) -> None:
        self.cluster = cluster
        self._files = files

    def pod_spec(self, container: str) -> dict[str, Any]:
        command = ["sh", "-c", UNTIL_TOLD, str(self._files)]
        one = {"name": container, "image": "edgeai/test", "command": command}
        return {"containers": [one], "terminationGracePeriodSeconds": 1}

    def serving(self, namespace: str) -> AbstractContextManager[object]:
        return nullcontext()  # the local cluster has a kubelet

    def end(self, namespace: str, pod: str, code: int) -> None:
        told = self._files / pod
        eventually(f"the end before of {pod}", lambda: not told.exists())
        written = self._files / f"{pod}.new"
        written.write_text(str(code))
        os.replace(written, told)


class RealTraining:
    """No container runs. A stand-in for the kubelet writes the status of the pods."""

    has_logs = False

    def __init__(self, cluster: RealCluster, control_plane: ControlPlane) -> None:
        self.cluster = cluster
        self._client = control_plane.client

    def pod_spec(self, container: str) -> dict[str, Any]:
        one = {"name": container, "image": "edgeai/test"}
        return {"nodeName": NODE, "containers": [one]}

    @contextmanager
    def serving(self, namespace: str) -> Iterator[None]:
        kubelet = Kubelet(self._client, namespace)
        try:
            yield
        finally:
            kubelet.stop()

    def end(self, namespace: str, pod: str, code: int) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"

        def runs() -> bool:
            found = self._client.find(path) or {}
            assert found.get("status", {}).get("phase") == "Running", f"{found.get('status')}"
            return True

        eventually(f"pod {pod}", runs)
        training.end(self._client, namespace, pod, code)


@contextmanager
def local_training(directory: Path) -> Iterator[TrainingCluster]:
    state_dir, files = directory / "state", directory / "files"
    files.mkdir()
    running = environment.up(state_dir, edges=())
    try:
        yield LocalTraining(LocalCluster(running.cluster, directory), files)
    finally:
        environment.down(state_dir)


@contextmanager
def real_training(directory: Path) -> Iterator[TrainingCluster]:
    programs = binaries.obtain()
    control_plane = ControlPlane(programs, directory)
    with control_plane.running():
        control_plane.prepare(NODE)
        manager = GlobalManager(
            kubeconfig=control_plane.kubeconfig, directory=directory / "globalmanager"
        )
        with manager.running():
            yield RealTraining(RealCluster(control_plane, programs, directory), control_plane)
