"""The container runtime of one node: containerd and runc, with a network for pods.

Runs inside the node's machine, so that its socket, bridge and mounts are the node's own.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.cluster.machine import Machine

CNI_PLUGINS: Final = Path("/usr/lib/cni")  # where Debian has them
CGROUP_PARENT: Final = "k8s.io"  # where it puts containers, as the kubelet names no other place
_CONFIG: Final = """\
version = 2
root = "{directory}/containers"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
]
[debug]
  level = "warn"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  # Where CAP_SYS_RESOURCE is missing, no sandbox would start without it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{directory}/cni"
"""


class Containerd:
    """Args:
    machine: booted
    pod_subnet: like "10.200.11.0/24"
    sandbox_image: of the container that holds a pod's namespaces; imported before pods run
    """

    def __init__(self, machine: Machine, *, pod_subnet: str, sandbox_image: str) -> None:
        self._machine = machine
        self._socket = machine.directory / "containerd.sock"
        self._config = machine.directory / "containerd.toml"
        self._config.write_text(
            _CONFIG.format(
                directory=machine.directory,
                socket=self._socket,
                sandbox_image=sandbox_image,
                plugins=CNI_PLUGINS,
            )
        )
        self._write_network(machine.directory / "cni", pod_subnet)
        self.program = machine.program(
            *("containerd", "--config", str(self._config)),
            log=machine.directory / "containerd.log",
        )

    @property
    def endpoint(self) -> str:
        return f"unix://{self._socket}"

    def start(self) -> None:
        self._socket.unlink(missing_ok=True)  # of before a power cut
        self.program.start()
        self.program.eventually("the socket", self._socket.exists)

    def load(self, archive: Path) -> None:
        """Import the images of an OCI layout packed by tar, which the machine sees."""
        reach = ("--address", str(self._socket), "--namespace", "k8s.io")
        self._machine.run("ctr", *reach, "images", "import", str(archive))

    @staticmethod
    def _write_network(directory: Path, pod_subnet: str) -> None:
        directory.mkdir()
        bridge = {
            "type": "bridge",
            "bridge": "pods",
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": pod_subnet}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        plugins = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}
        (directory / "10-pods.conflist").write_text(json.dumps(plugins))


def container_ids(directory: Path) -> Iterator[str]:
    """Of a machine's containers, also after it has ended; `directory` is the machine's."""
    records = directory / "containers" / "io.containerd.grpc.v1.cri"
    for each in records.glob("[cs]*/*"):  # containers, sandboxes
        yield each.name
