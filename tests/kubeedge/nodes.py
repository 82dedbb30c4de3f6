"""Nodes of KubeEdge: cloudcore beside the kubelet of the cloud, edgecore at the edge.

The certificates are those that cloudcore issues. An edge node has no way to the network of pods
and Services, and no DNS.
"""

import base64
import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from edgeai.cli.api import Object
from tests.cluster.controlplane import ControlPlane
from tests.cluster.images import SANDBOX
from tests.cluster.programs import Program, ProgramEnded
from tests.support.node import Node
from tests.support.waiting import eventually

_HEARTBEAT_S: Final = 3
"""edgecore dials again two heartbeats after it has lost cloudcore."""
_TOKEN: Final = "/api/v1/namespaces/kubeedge/secrets/tokensecret"


class CloudCore:
    """Args:
    node: of the cloud, started
    programs: directory of cloudcore, which the node's machine sees
    """

    def __init__(self, node: Node, programs: Path, control_plane: ControlPlane) -> None:
        self.address = node.address
        self._client = control_plane.client
        directory = node.machine.directory
        kubeconfig = directory / "cloudcore.kubeconfig"
        control_plane.write_kubeconfig(kubeconfig)
        config = directory / "cloudcore.yaml"
        config.write_text(yaml.safe_dump(self._config(kubeconfig)))
        argv = (str(programs / "cloudcore"), f"--config={config}")
        self._program = node.machine.program(*argv, log=directory / "cloudcore.log")
        # It registers nodes only where its own name leads to an address.
        node.machine.run("sh", "-c", f"echo {self.address} {node.name} >> /etc/hosts")

    def _config(self, kubeconfig: Path) -> Object:
        """What differs from the defaults."""
        return {
            "apiVersion": "cloudcore.config.kubeedge.io/v1alpha2",
            "kind": "CloudCore",
            "kubeAPIConfig": {"kubeConfig": str(kubeconfig)},
            "modules": {
                "cloudHub": {"advertiseAddress": [self.address]},
                "iptablesManager": {"enable": False},
            },
        }

    def start(self) -> None:
        self._program.start()

    def stop(self) -> None:
        self._program.stop(signal.SIGKILL)

    def token(self) -> str:
        """By which a node gets its first certificate."""

        def token() -> str:
            secret = self._client.find(_TOKEN) or {}
            return base64.b64decode(secret.get("data", {}).get("tokendata", "")).decode()

        return self._program.eventually("the token for nodes", token)

    def check_alive(self) -> None:
        """Raises: ProgramEnded where it has ended and nobody stopped it"""
        self._program.check_alive()

    def logs(self) -> str:
        return f"--- cloudcore\n{self._program.last_words()}"


class EdgeNode(Node):
    """As Node, and binaries: directory of edgecore."""

    def join(self, cloudcore: CloudCore) -> None:
        """Before the start: get this node a certificate when it starts."""
        # No gateway: what is not of the machines' own network is unreachable at once.
        self.machine.run("ip", "route", "flush", "proto", "boot")
        self.machine.run("touch", "/etc/resolv.conf")  # no server of names
        self._write("edgecore.yaml", self._config(cloudcore))

    def _of_the_cloud(self) -> Sequence[Program]:
        written = self._directory / "edgecore.yaml"
        used = self._directory / "used.yaml"
        # edgecore writes the file that it has read, and leaves out empty lists.
        start = f"cp {written} {used} && exec {self._binaries / 'edgecore'} --config={used}"
        log = self._directory / "edgecore.log"
        self._edgecore = self.machine.program("sh", "-c", start, log=log)
        return (self._edgecore,)

    @contextlib.contextmanager
    def without_edgecore(self) -> Iterator[None]:
        """It is told to end, as by `systemctl stop`, and started again afterwards."""
        self.machine.run("pkill", "--exact", "edgecore")
        eventually(f"the end of edgecore on {self.name}", self._has_ended)
        self._edgecore.stop()
        try:
            yield
        finally:
            self._edgecore.start()

    def _has_ended(self) -> bool:
        try:
            self._edgecore.check_alive()
        except ProgramEnded:
            return True
        return False

    def _config(self, cloudcore: CloudCore) -> Object:
        """What differs from the defaults."""
        hub = cloudcore.address
        return {
            "apiVersion": "edgecore.config.kubeedge.io/v1alpha2",
            "kind": "EdgeCore",
            "modules": {
                "edged": {
                    "hostnameOverride": self.name,
                    "nodeIP": self.address,
                    "podSandboxImage": SANDBOX,
                    "tailoredKubeletConfig": {
                        "imageServiceEndpoint": self._containerd.endpoint,
                        **self._settings(),
                    },
                },
                "edgeHub": {
                    "heartbeat": _HEARTBEAT_S,
                    "httpServer": f"https://{hub}:10002",
                    "token": cloudcore.token(),
                    "websocket": {"server": f"{hub}:10000"},
                },
                "eventBus": {"enable": False},  # of devices, for which a node needs MQTT
            },
        }

    def log_of(self, pod: Mapping[str, Any]) -> str:
        """What its one container printed since its last start. `kubectl logs` needs cloudStream."""
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        directory = Path(f"/proc/{self.machine.pid}/root/var/log/pods/{name}")
        logs = sorted(directory.glob("*/*.log"), key=lambda path: int(path.stem))
        lines = logs[-1].read_text().splitlines() if logs else []
        return "\n".join(line.split(" ", 3)[-1] for line in lines)
