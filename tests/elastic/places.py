"""The two clusters on which elastic jobs run, with one interface: processes, and containers."""

import io
import json
import os
import signal
import tarfile
from pathlib import Path
from typing import Any, Final, Protocol

from edgeai.cli.api import Object
from edgeai.cli.environment import Environment
from edgeai.demo.elastic_training.manifests import HOROVOD_JOB, HorovodPlacement
from edgeai.demo.manifests import resource
from tests.e2e.containers import IMAGE, mount_python
from tests.support.cluster import Cluster

NAMESPACE: Final = "default"
_SSHD: Final = (
    "mkdir -p /run/sshd /etc/ssh && "
    "echo 'sshd:x:101:65534::/run/sshd:/usr/sbin/nologin' >> /etc/passwd && "
    "ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key && "
    "exec /usr/sbin/sshd -D -e -f /dev/null -o StrictModes=no"
)
_IN_CONTAINERS: Final = Path("/data/elastic-training")


class Place(Protocol):
    """What the tests do with a cluster."""

    def create(self, object_: Object) -> Object: ...

    def get(self, path: str) -> Object: ...

    def delete(self, path: str) -> None: ...

    def log(self, pod: str) -> list[str]: ...

    def kill(self, pod: str) -> None:
        """End all processes of the pod at once, as a lack of memory does."""

    def hurry(self) -> None:
        """Let the training go on without pauses."""

    def job(self, attach_mode: str, **settings: Any) -> Object:
        """The TrainingJob of the example that horovodrun starts."""


class Processes:
    """The local cluster.

    Args:
        python: has horovod.torch
        files: directory with the images
        directory: empty
    """

    def __init__(self, running: Environment, python: Path, files: Path, directory: Path) -> None:
        self._api = running.api
        self._python = python
        self._files = files
        self._directory = directory
        self.get = running.api.get
        self.delete = running.api.delete

    def create(self, object_: Object) -> Object:
        return self._api.apply(object_)

    def log(self, pod: str) -> list[str]:
        return self._api.log(NAMESPACE, pod)

    def kill(self, pod: str) -> None:
        status = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")["status"]
        container = status["containerStatuses"][0]["containerID"]
        os.kill(int(container.removeprefix("process://")), signal.SIGKILL)

    def hurry(self) -> None:
        (self._files / "hurry").touch()

    def job(self, attach_mode: str, **settings: Any) -> Object:
        """horovodrun knows the agent by its path, which is another one in a process of this
        machine. So a program named ssh calls the agent.
        """
        assert attach_mode == "kubexec"
        placement = HorovodPlacement(
            files=self._files,
            python=self._python,
            horovodrun=self._python.parent / "horovodrun",
            network_interface="lo",
            **settings,
        )
        job = resource(HOROVOD_JOB, placement)
        self._set_agent(_container(job, "launcher"))
        return job

    def _set_agent(self, container: Object) -> None:
        ssh = self._directory / "ssh"
        ssh.write_text(
            '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift 2; done\nexec "$AGENT" "$@"\n'
        )
        ssh.chmod(0o755)
        path = f"{self._directory}:{self._python.parent}:/usr/bin:/bin"
        container["env"] += [
            {"name": "AGENT", "value": "/etc/mpi/kubexec.sh"},
            {"name": "PATH", "value": path},
        ]


class Containers:
    """A genuine Kubernetes with kubelets.

    The containers have Debian's packages and Horovod from directories of this machine.

    Args:
        python: has horovod.torch
        files: directory with the images, which are copied to each node
    """

    def __init__(self, cluster: Cluster, python: Path, files: Path) -> None:
        self._cluster = cluster
        self._python = python
        self._files = files
        self.create = cluster.client.create
        self.get = cluster.client.get
        self.delete = cluster.client.delete

    def copy_files(self) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(self._files, arcname=".")
        unpack = (
            f"rm -rf {_IN_CONTAINERS} && mkdir -p {_IN_CONTAINERS} && tar -x -C {_IN_CONTAINERS}"
        )
        for node in self._cluster.nodes.values():
            node.machine.run("sh", "-c", unpack, stdin=packed.getvalue())

    def log(self, pod: str) -> list[str]:
        return self._cluster.control_plane.kubectl("logs", pod).stdout.splitlines()

    def kill(self, pod: str) -> None:
        kill_container(self._cluster, pod)

    def hurry(self) -> None:
        for node in self._cluster.nodes.values():
            node.machine.run("touch", f"{_IN_CONTAINERS}/hurry")

    def job(self, attach_mode: str, **settings: Any) -> Object:
        worker = ["sh", "-c", _SSHD] if attach_mode == "ssh" else ["sleep", "infinity"]
        placement = HorovodPlacement(
            files=_IN_CONTAINERS,
            python=self._python,
            horovodrun=self._python.parent / "horovodrun",
            checkout=Path("/opt/edgeai"),
            image=IMAGE,
            attach_mode=attach_mode,
            worker_command=json.dumps(worker),
            **settings,
        )
        job = resource(HOROVOD_JOB, placement)
        for role in ("launcher", "worker"):
            mount_python(job["spec"]["etReplicaSpecs"][role]["template"], self._python)
        return job


def kill_container(cluster: Cluster, pod: str) -> float:
    """End all processes of the pod's container with SIGKILL. Returns: when, as time.time()"""
    held = cluster.client.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")
    container = held["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    find = f"grep --files-with-matches {container} /proc/[0-9]*/cgroup | cut -d/ -f3"
    machine = cluster.nodes[held["spec"]["nodeName"]].machine
    # A process may end by itself between the look and its kill.
    script = (
        f"for each in $({find}); do kill -9 $each && killed=1; done; test $killed && date +%s.%N"
    )
    return float(machine.run("sh", "-c", script))


def _container(job: Object, role: str) -> Object:
    (container,) = job["spec"]["etReplicaSpecs"][role]["template"]["spec"]["containers"]
    found: Object = container
    return found
