"""Training jobs whose replicas are containers of this cluster."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from tests.clients.clusters import UNTIL_TOLD
from tests.cluster.cluster import Cluster
from tests.conformance.clusters import RealCluster
from tests.e2e.images import VERSION
from tests.waiting import eventually

IMAGE: Final = f"docker.io/edgeai/example:{VERSION}"
_TOLD_IN: Final = "/tmp"


class ContainerTraining:
    """As tests.clients.clusters.TrainingCluster. Args: home: of kubectl"""

    has_logs = True

    def __init__(self, installed: Cluster, home: Path) -> None:
        self.cluster = RealCluster(installed.control_plane, installed.programs, home)

    def pod_spec(self, container: str) -> dict[str, Any]:
        command = ["sh", "-c", UNTIL_TOLD, _TOLD_IN]
        one = {"name": container, "image": IMAGE, "command": command}
        return {"containers": [one], "terminationGracePeriodSeconds": 1}

    def serving(self, namespace: str) -> AbstractContextManager[object]:
        return nullcontext()  # the nodes have kubelets

    def end(self, namespace: str, pod: str, code: int) -> None:
        tell = f'echo {code} > {_TOLD_IN}/new && mv {_TOLD_IN}/new "{_TOLD_IN}/$HOSTNAME"'

        def is_told() -> bool:
            done = self.cluster.kubectl(
                "--namespace", namespace, "exec", pod, "--", "sh", "-c", tell
            )
            assert done is not None
            assert done.returncode == 0, done.stderr
            return True

        eventually(f"the container of {pod}", is_told)
