"""Isolated nodes: what their pods reach, what not, and what the cluster can still do with them."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path

from edgeai.localcluster.network.isolation import NodeNetwork
from edgeai.localcluster.objects.resources import PODS, SERVICES, Object
from tests.edgeai.localcluster.running import (
    POD_IP,
    SERVER,
    RunningCluster,
    log_of,
    new_pod,
    python,
    running_cluster,
    server,
)
from tests.support.isolation import needs_isolation
from tests.support.waiting import async_eventually

pytestmark = needs_isolation

ASK = """
import os, socket, sys
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"hello")
            connection.shutdown(socket.SHUT_WR)
            print(target, connection.makefile().read())
    except OSError as error:
        print(target, type(error).__name__)
"""


def service(name: str) -> Object:
    ports = [{"name": "tcp", "port": 80, "targetPort": 5000}]
    spec = {"selector": {"app": name}, "ports": ports}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def serve(cluster: RunningCluster, name: str) -> str:
    """A pod on the node edge0, which is not isolated, and its Service. Returns: the cluster IP"""
    cluster.store.create(SERVICES, service(name))
    cluster.store.create(PODS, new_pod(name, server()))
    await cluster.until_pod(name, is_ready)
    return await cluster.until(lambda: cluster_ip(cluster, name))


def cluster_ip(cluster: RunningCluster, name: str) -> str | None:
    found = cluster.find(SERVICES, name)
    return found["spec"].get("clusterIP") if found else None


def is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def answers(
    cluster: RunningCluster, tmp_path: Path, node: str, *targets: str
) -> dict[str, str]:
    """What a pod of this node gets from each target."""
    asking = python(ASK)
    asking["command"] += targets
    name = f"asking-{node}"
    cluster.store.create(PODS, new_pod(name, asking, nodeName=node, restartPolicy="Never"))
    await cluster.until_phase(name, "Succeeded")
    lines = (await log_of(cluster, tmp_path, name)).splitlines()
    return {given: line.partition(" ")[2] for given, line in zip(targets, lines, strict=True)}


async def test_an_isolated_node_reaches_the_openings_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        accepting = asyncio.create_task(greet(outside))
        openings = ("open.default:80", f"127.0.0.1:{port}")
        async with running_cluster(
            tmp_path, nodes=("edge0", "edge1"), isolated_nodes=("edge1",), openings=openings
        ) as cluster:
            closed_ip, _ = await serve(cluster, "closed"), await serve(cluster, "open")
            api = cluster.running.api.removeprefix("http://").partition("/")[0]
            pod_ip = (cluster.pod("open") or {})["status"]["podIP"]
            found = await answers(
                *(cluster, tmp_path, "edge1"),
                *("open.default:80", f"127.0.0.1:{port}"),
                *(f"{closed_ip}:80", "closed.default:80", api, f"{pod_ip}:5000"),
            )
        accepting.cancel()
    assert found == {
        "open.default:80": "open hello",
        f"127.0.0.1:{port}": "welcome",
        f"{closed_ip}:80": "ConnectionRefusedError",
        "closed.default:80": "gaierror",
        api: "ConnectionRefusedError",
        f"{pod_ip}:5000": "ConnectionRefusedError",
    }


async def greet(listening: socket.socket) -> None:
    listening.setblocking(False)
    loop = asyncio.get_running_loop()
    while True:
        connection, _ = await loop.sock_accept(listening)
        with connection:
            await loop.sock_recv(connection, 100)
            await loop.sock_sendall(connection, b"welcome")


async def test_pods_of_one_isolated_node_reach_each_other_and_no_other_node(tmp_path: Path) -> None:
    nodes = ("edge0", "edge1")
    async with running_cluster(tmp_path, nodes=nodes, isolated_nodes=nodes) as cluster:
        script = SERVER.replace("while True", "print('up')\nwhile True", 1)
        cluster.store.create(PODS, new_pod("near", python(script, env=[POD_IP])))
        pod = await cluster.until_phase("near", "Running")

        async def is_up() -> bool:
            return "up" in await log_of(cluster, tmp_path, "near")

        await async_eventually("a listening server", is_up)
        target = f"{pod['status']['podIP']}:5000"
        near = await answers(cluster, tmp_path, "edge0", target)
        far = await answers(cluster, tmp_path, "edge1", target)
    assert (near[target], far[target]) == ("near hello", "ConnectionRefusedError")


def test_a_port_in_an_isolated_network_is_not_open_here() -> None:
    with contextlib.closing(NodeNetwork()) as network, network.listen("127.0.0.1", 0) as inside:
        port = inside.getsockname()[1]
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port))
        script = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
        subprocess.run([*network.command, sys.executable, "-c", script], check=True)


def test_who_may_not_make_networks_is_told_so() -> None:
    script = (
        "import os; from edgeai.localcluster.network.isolation import NodeNetwork\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); NodeNetwork()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "ClusterError: isolated nodes: this process may not make a network" in done.stderr
    assert done.stderr.rstrip().endswith("run it as root")
