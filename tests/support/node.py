"""One node: a machine with containerd, kubelet and kube-proxy, known to a control plane."""

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.containerd import Containerd
from tests.cluster.controlplane import ControlPlane
from tests.cluster.machine import Machine
from tests.cluster.network import Network
from tests.cluster.programs import Program

PROXY_USER: Final = "system:kube-proxy"
_CLUSTER_DOMAIN: Final = "cluster.local"
_DISK: Final = (
    *("nodefs.available", "nodefs.inodesFree"),
    *("imagefs.available", "imagefs.inodesFree"),
)


def kubelet_user(node: str) -> str:
    return f"system:node:{node}"


class Node:
    """Args:
    machine: booted and connected
    binaries: directory of kubelet and kube-proxy, which the machine sees
    control_plane: knows kubelet_user(name) and PROXY_USER
    """

    def __init__(
        self,
        machine: Machine,
        *,
        binaries: Path,
        control_plane: ControlPlane,
        network: Network,
        sandbox_image: str,
    ) -> None:
        self.name = machine.name
        self.machine = machine
        self.address = network.address(machine)
        self._directory = machine.directory
        self._binaries = binaries
        self._control_plane = control_plane
        self._network = network
        self._containerd = Containerd(
            machine, pod_subnet=network.pod_subnet(machine), sandbox_image=sandbox_image
        )
        self._programs: list[Program] = []

    def start(self) -> None:
        """Up to the start of what asks the cloud, which then registers the node."""
        self._containerd.start()
        self._programs = [self._containerd.program]
        self._add(*self._of_the_cloud())

    def stop(self) -> None:
        """Its programs; containers end with the machine."""
        for program in reversed(self._programs):
            program.stop(signal.SIGKILL)

    def lose_power(self) -> None:
        """All that runs there is killed at once, containers too. Files stay, but not in /run."""
        self.machine.kill_all()
        self.stop()

    def _add(self, *programs: Program) -> None:
        self._programs += programs
        for program in programs:
            program.start()

    def _of_the_cloud(self) -> Sequence[Program]:
        """The programs that ask the API server."""
        kubeconfig = self._kubeconfig("kubelet", kubelet_user(self.name))
        return self._kubelet(kubeconfig), self._kube_proxy()

    def load(self, archive: Path) -> None:
        """Images for containers of this node; `archive` is an OCI layout packed by tar."""
        self._containerd.load(archive)

    def check_alive(self) -> None:
        """Raises: ProgramEnded"""
        self.machine.check_alive()
        for program in self._programs:
            program.check_alive()

    def logs(self) -> str:
        shown = (f"--- {self.name}: {each.name}\n{each.last_words()}" for each in self._programs)
        return "\n\n".join(shown)

    # ---- kubelet -------------------------------------------------------------------------------

    def _kubelet(self, kubeconfig: Path) -> Program:
        config = self._write("kubelet.yaml", self._kubelet_config())
        return self._machine_program(
            *("kubelet", f"--config={config}", f"--kubeconfig={kubeconfig}"),
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            "--cert-dir=/run/kubelet",
        )

    def _kubelet_config(self) -> dict[str, Any]:
        authority = self._directory / "ca.crt"
        shutil.copyfile(self._control_plane.ca, authority)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(authority)},
            },
            "authorization": {"mode": "AlwaysAllow"},  # whoever has a certificate of our CA
            "clusterDNS": [self._network.host],
            "clusterDomain": _CLUSTER_DOMAIN,
            "resolvConf": str(self._resolv_conf()),
            **self._settings(),
        }

    def _settings(self) -> dict[str, Any]:
        """Of a kubelet, whoever it asks: those that this machine and the tests need."""
        return {
            "containerRuntimeEndpoint": self._containerd.endpoint,
            "failCgroupV1": False,  # this machine may have version 1
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            # The machine's disk is not the tests' to judge.
            "evictionHard": dict.fromkeys(_DISK, "0%"),
            "imageGCHighThresholdPercent": 100,
            # Often, so that a node that is cut off, or back, is seen to be so within seconds.
            "nodeLeaseDurationSeconds": 4,
            "nodeStatusUpdateFrequency": "1s",
            "nodeStatusReportFrequency": "10s",
        }

    def _resolv_conf(self) -> Path:
        path = self._directory / "resolv.conf"
        path.write_text(f"nameserver {self._network.host}\n")
        return path

    # ---- kube-proxy ----------------------------------------------------------------------------

    def _kube_proxy(self) -> Program:
        return self._machine_program(
            *("kube-proxy", f"--kubeconfig={self._kubeconfig('kube-proxy', PROXY_USER)}"),
            *("--proxy-mode=iptables", f"--hostname-override={self.name}"),
            # The limits of connections are this whole machine's, not a node's to set.
            *("--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0"),
            "--conntrack-tcp-timeout-close-wait=0",
            # Else answers between pods of one bridge would bypass the translation of addresses.
            "--masquerade-all",
        )

    # ---- common --------------------------------------------------------------------------------

    def _machine_program(self, name: str, *flags: str) -> Program:
        log = self._directory / f"{name}.log"
        return self.machine.program(str(self._binaries / name), *flags, log=log)

    def _kubeconfig(self, name: str, user: str) -> Path:
        path = self._directory / f"{name}.kubeconfig"
        self._control_plane.write_kubeconfig(path, user=user)
        return path

    def _write(self, name: str, content: dict[str, Any]) -> Path:
        path = self._directory / name
        path.write_text(yaml.safe_dump(content))
        return path
