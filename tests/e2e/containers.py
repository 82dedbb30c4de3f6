"""Training jobs whose replicas are containers of this cluster."""

import io
import subprocess
import tarfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from common.version import VERSION
from edgeai.cli.api import Object
from tests.clients.clusters import UNTIL_TOLD
from tests.conformance.clusters import RealCluster
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

IMAGE: Final = f"docker.io/edgeai/example:{VERSION}"
_TOLD_IN: Final = "/tmp"
_MACHINES_DIRECTORIES: Final = ("/usr", "/etc/alternatives")


def put_on_nodes(cluster: Cluster, source: Path, target: str) -> None:
    """Copy the files of a directory of this machine to every node, where all may write."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(source, arcname=".")
    unpack = f"mkdir -p {target} && tar -x -C {target} && chmod -R a+rwX {target}"
    for node in cluster.nodes.values():
        node.machine.run("sh", "-c", unpack, stdin=packed.getvalue())


def mount_python(template: Object, python: Path) -> None:
    """Let the one container of a pod template have a Python of this machine, at its path.

    Its libraries come along, also those of Debian.
    """
    code = "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')"
    told = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    own = {str(python.parents[1]), *told.stdout.splitlines()} - set(_MACHINES_DIRECTORIES)
    (container,) = template["spec"]["containers"]
    container["securityContext"] = {"runAsUser": 0}  # the directories are root's
    for number, path in enumerate([*_MACHINES_DIRECTORIES, *sorted(own)]):
        name = f"machine-{number}"
        template["spec"]["volumes"].append({"name": name, "hostPath": {"path": path}})
        mount = {"name": name, "mountPath": path, "readOnly": True}
        container["volumeMounts"].append(mount)


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
            # The container may end before kubectl has the exit code of the command.
            is_over = "in a completed pod" in done.stderr
            assert is_over or done.returncode == 0, done.stderr
            return True

        eventually(f"the container of {pod}", is_told)
