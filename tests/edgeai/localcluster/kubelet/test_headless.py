"""Headless Services: names that lead to a pod that does not exist yet, or exists anew."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edgeai.localcluster.objects.pods import is_ready
from edgeai.localcluster.objects.resources import PODS, SERVICES, Object
from tests.edgeai.localcluster.running import (
    SERVER,
    RunningCluster,
    container,
    log_of,
    new_pod,
    python,
    running_cluster,
    server,
)
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as cluster:
        yield cluster


def create_service(
    cluster: RunningCluster, name: str, *, port: int = 5000, **selector: str
) -> None:
    spec = {
        "clusterIP": "None",
        "selector": selector or {"app": name},
        "ports": [{"name": "tcp", "port": port}],
    }
    metadata = {"name": name, "namespace": "default"}
    cluster.store.create(SERVICES, {"metadata": metadata, "spec": spec})


async def create_pod(cluster: RunningCluster, name: str) -> str:
    """The address of the pod, once the pod is ready."""
    cluster.store.create(PODS, new_pod(name, server()))
    pod = await cluster.until_pod(name, is_ready)
    return str(pod["status"]["podIP"])


async def delete_pod(cluster: RunningCluster, name: str) -> None:
    cluster.store.delete(PODS, "default", name)
    await cluster.until_gone(name)


async def told(cluster: RunningCluster, tmp_path: Path, text: str, variable: str = "TOLD") -> str:
    """What a process finds in a variable with this text."""
    main = container(f'printf %s "${variable}"', env=[{"name": variable, "value": text}])
    cluster.store.create(PODS, new_pod("reader", main, restartPolicy="Never"))
    await cluster.until_phase("reader", "Succeeded")
    found = await log_of(cluster, tmp_path, "reader")
    await delete_pod(cluster, "reader")
    return found


async def ask(address: str, port: int = 5000) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(address, port)
        try:
            writer.write(b"hello")
            writer.write_eof()
            return await reader.read()
        finally:
            writer.close()


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MASTER_ADDR", "w-0"),
        ("TOLD", "w-0.default"),
        ("TOLD", "w-0.default.svc"),
        ("TOLD", "w-0.default.svc.cluster.local"),
    ],
)
async def test_a_name_leads_to_a_pod_that_comes_later(
    cluster: RunningCluster, tmp_path: Path, variable: str, text: str
) -> None:
    create_service(cluster, "w-0")
    address = await told(cluster, tmp_path, text, variable)
    assert address == await create_pod(cluster, "w-0")
    assert await ask(address) == b"w-0 hello"


async def test_names_in_json_lead_to_pods_on_one_port(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    for name in ("w-0", "w-1"):
        create_service(cluster, name)
    text = '{"worker":["w-0.default.svc:5000","w-1.default.svc:5000"],"ps":["w-0:5000"]}'
    found = await told(cluster, tmp_path, text)
    first, second = [await create_pod(cluster, name) for name in ("w-0", "w-1")]
    assert found == f'{{"worker":["{first}:5000","{second}:5000"],"ps":["{first}:5000"]}}'
    assert [await ask(first), await ask(second)] == [b"w-0 hello", b"w-1 hello"]


async def test_a_peer_reaches_a_pod_by_a_name_that_it_was_told_before(
    cluster: RunningCluster,
) -> None:
    create_service(cluster, "w-0")
    script = (
        "import os, socket, time\n"
        "while True:\n"
        "  try: peer = socket.create_connection((os.environ['PEER_HOST'], 5000)); break\n"
        "  except OSError: time.sleep(0.05)\n"
        "peer.sendall(b'x'); peer.shutdown(socket.SHUT_WR); assert peer.recv(99) == b'w-0 x'\n"
    )
    peer = python(script, env=[{"name": "PEER_HOST", "value": "w-0"}])
    cluster.store.create(PODS, new_pod("peer", peer, restartPolicy="Never"))
    await cluster.until_phase("peer", "Running")
    await create_pod(cluster, "w-0")
    await cluster.until_phase("peer", "Succeeded")


async def test_a_pod_that_is_made_anew_is_where_it_was(cluster: RunningCluster) -> None:
    create_service(cluster, "w-0")
    before = await create_pod(cluster, "w-0")
    await delete_pod(cluster, "w-0")
    await create_pod(cluster, "other")
    assert await create_pod(cluster, "w-0") == before


async def test_a_pod_made_anew_after_deletion_by_force_is_where_it_was(
    cluster: RunningCluster,
) -> None:
    create_service(cluster, "w-0")
    before = await create_pod(cluster, "w-0")
    cluster.store.delete(PODS, "default", "w-0", grace_period_s=0)
    assert await create_pod(cluster, "w-0") == before


async def test_a_pod_made_anew_by_the_side_of_a_failed_one_has_the_address(
    cluster: RunningCluster,
) -> None:
    create_service(cluster, "w-0", app="w-0")
    cluster.store.create(PODS, new_pod("w-0", container("exit 1"), restartPolicy="Never"))
    failed = await cluster.until_phase("w-0", "Failed")
    again = new_pod("w-0-again", server())
    again["metadata"]["labels"] = {"app": "w-0"}
    cluster.store.create(PODS, again)
    pod = await cluster.until_pod("w-0-again", is_ready)
    assert pod["status"]["podIP"] == failed["status"]["podIP"]


async def test_a_service_takes_the_address_of_its_older_pod(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    before = await create_pod(cluster, "w-0")
    create_service(cluster, "w-0")
    assert await told(cluster, tmp_path, "w-0.default") == before
    await delete_pod(cluster, "w-0")
    assert await told(cluster, tmp_path, "w-0.default") == before
    assert await create_pod(cluster, "w-0") == before


@pytest.mark.parametrize("has_pod", [True, False])
async def test_a_service_made_anew_is_where_it_was(
    cluster: RunningCluster, tmp_path: Path, *, has_pod: bool
) -> None:
    create_service(cluster, "w-0")
    before = await create_pod(cluster, "w-0")
    if not has_pod:
        await delete_pod(cluster, "w-0")
    cluster.store.delete(SERVICES, "default", "w-0")
    await create_pod(cluster, "other")
    create_service(cluster, "w-0")
    assert await told(cluster, tmp_path, "w-0.default") == before


async def test_a_pod_keeps_its_address_when_its_service_is_deleted(
    cluster: RunningCluster,
) -> None:
    create_service(cluster, "w-0")
    address = await create_pod(cluster, "w-0")
    cluster.store.delete(SERVICES, "default", "w-0")
    others = {await create_pod(cluster, name) for name in ("one", "two")}
    assert address not in others
    assert await ask(address) == b"w-0 hello"


async def test_names_are_right_after_a_restart_of_the_cluster(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.store.create(PODS, new_pod("a-first", python("input()")))
        for name in ("v-0", "w-0", "w-1"):
            create_service(cluster, name)
        before = await create_pod(cluster, "w-0")
    async with running_cluster(tmp_path) as cluster:
        names = await told(cluster, tmp_path, "w-0.default w-1.default")
        w0 = str((await cluster.until_pod("w-0", is_ready))["status"]["podIP"])
        assert w0 == before
        assert names == f"{w0} {await create_pod(cluster, 'w-1')}"


async def test_pods_of_one_service_have_addresses_of_their_own(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    create_service(cluster, "all", job="j")
    addresses = []
    for name in ("one", "two"):
        pod = new_pod(name, server())
        pod["metadata"]["labels"] = {"job": "j"}
        cluster.store.create(PODS, pod)
        addresses.append((await cluster.until_pod(name, is_ready))["status"]["podIP"])
    assert addresses[0] != addresses[1]
    assert await told(cluster, tmp_path, "all.default") == addresses[0]
    await delete_pod(cluster, "one")
    assert await told(cluster, tmp_path, "all.default") == addresses[1]


async def test_the_service_of_one_replica_comes_before_the_service_of_all(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    create_service(cluster, "all", job="j")
    create_service(cluster, "w-0", job="j", index="0")
    wanted = await told(cluster, tmp_path, "w-0.default")
    pod = new_pod("w-0", server())
    pod["metadata"]["labels"] = {"job": "j", "index": "0"}
    cluster.store.create(PODS, pod)
    address = (await cluster.until_pod("w-0", is_ready))["status"]["podIP"]
    assert address == wanted
    assert await told(cluster, tmp_path, "all.default") == address


async def test_a_headless_service_of_a_pod_on_the_host_leads_to_the_node(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    create_service(cluster, "w-0")
    cluster.store.create(PODS, new_pod("w-0", python("input()"), hostNetwork=True))
    pod: Object = await cluster.until_phase("w-0", "Running")
    assert await told(cluster, tmp_path, "w-0.default") == pod["status"]["hostIP"]


async def test_the_name_of_the_pod_stays_a_name(cluster: RunningCluster, tmp_path: Path) -> None:
    """The Service of a replica has the name of the pod."""
    create_service(cluster, "w-0")
    main = container("echo $HOSTNAME")
    cluster.store.create(PODS, new_pod("w-0", main, restartPolicy="Never"))
    await cluster.until_phase("w-0", "Succeeded")
    assert await log_of(cluster, tmp_path, "w-0") == "w-0\n"


async def test_a_process_may_listen_on_every_address(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """The stores of PyTorch listen so, and no listener of the cluster is in their way."""
    port = free_port()
    create_service(cluster, "w-0", port=port)
    address = await told(cluster, tmp_path, "w-0.default")
    script = SERVER.replace('os.environ["POD_IP"], 5000', f'"", {port}')
    probe = {"tcpSocket": {"port": port}, "periodSeconds": 0.05}
    cluster.store.create(PODS, new_pod("w-0", python(script, readinessProbe=probe)))
    await cluster.until_pod("w-0", is_ready)
    assert await ask(address, port) == b"w-0 hello"
