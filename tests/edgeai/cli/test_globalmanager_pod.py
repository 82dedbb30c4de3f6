"""The pod of the GlobalManager that `edgeai up` starts, on a machine that is busy."""

import asyncio
import socket
import time
from pathlib import Path

from edgeai.cli import system
from edgeai.localcluster.kubelet.probes import ProbeTarget, failure, parse_probe

STALL_S = 1.5


async def test_the_only_replica_stays_in_its_service_while_the_cluster_itself_is_stalled(
    tmp_path: Path,
) -> None:
    (tmp_path / "kubeconfig").write_text("")
    *_, deployment = system.globalmanager(tmp_path / "kubeconfig", {}, system.Tuning())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    probe = parse_probe(container, "readinessProbe")
    assert probe is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ports = {system.HTTP_PORT: listening.getsockname()[1]}
        target = ProbeTarget(pod_ip="127.0.0.1", ports={}, moved_ports=ports, exec=_no_command)
        asyncio.get_running_loop().call_soon(time.sleep, STALL_S)
        assert await failure(probe, target) == ""


async def _no_command(_command: object) -> int:
    raise AssertionError("the probe runs no command")
