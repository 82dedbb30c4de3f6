"""Services: addresses, Endpoints, and bytes through them."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import pytest

from edgeai.localcluster.network.addresses import AddressPool, claim_network
from edgeai.localcluster.network.listener import CONNECT_TIMEOUT_S
from edgeai.localcluster.network.service_proxy import (
    ServiceProxy,
    endpoints,
    service_ports,
    target_port,
)
from edgeai.localcluster.objects.pods import is_ready
from edgeai.localcluster.objects.resources import ENDPOINTS, PODS, SERVICES, Object
from edgeai.localcluster.objects.store import Store
from tests.edgeai.localcluster.conftest import until
from tests.edgeai.localcluster.running import (
    RunningCluster,
    container,
    new_pod,
    patch,
    running_cluster,
    server,
)
from tests.support.waiting import PATIENCE_S, async_eventually

PORTS = [{"name": "web", "port": 80, "targetPort": "tcp", "protocol": "TCP"}]


def service(**spec: object) -> Object:
    return {
        "metadata": {"name": "s", "namespace": "default", "uid": "s-uid"},
        "spec": {"selector": {"app": "a"}, "ports": PORTS, **spec},
    }


def pod(name: str, *, ready: bool = True, label: str = "a", port: int = 5000) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": {"app": label},
        },
        "spec": {
            "nodeName": "edge0",
            "containers": [{"name": "c", "ports": [{"name": "tcp", "containerPort": port}]}],
        },
        "status": {
            "phase": "Running",
            "podIP": f"127.9.2.{name}",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


@pytest.mark.parametrize(
    ("port", "number"),
    [
        ({"port": 80}, 80),
        ({"port": 80, "targetPort": 81}, 81),
        ({"port": 80, "targetPort": "tcp"}, 5000),
        ({"port": 80, "targetPort": "82"}, 82),
        ({"port": 80, "targetPort": "none"}, None),
    ],
)
def test_target_ports(port: Object, number: int | None) -> None:
    assert target_port(port, pod("1")) == number


def test_only_ready_pods_of_the_selector_are_backends() -> None:
    present = [pod("1"), pod("2", ready=False), pod("3", label="b")]
    (backends,) = service_ports(service(), present).values()
    assert backends == (("127.9.2.1", 5000),)


def test_a_pod_that_is_being_deleted_serves_no_more_though_it_is_ready() -> None:
    leaving = pod("1")
    leaving["metadata"]["deletionTimestamp"] = "2030-01-02T03:04:05Z"
    (backends,) = service_ports(service(), [leaving, pod("2")]).values()
    assert backends == (("127.9.2.2", 5000),)
    (subset,) = endpoints(service(), [leaving])["subsets"]
    assert "addresses" not in subset


def test_endpoints_tell_ready_from_not_ready_and_split_by_ports() -> None:
    found = endpoints(service(), [pod("1"), pod("2", ready=False), pod("3", port=6000)])
    shape = [
        (
            [port["port"] for port in subset["ports"]],
            [address["ip"] for address in subset.get("addresses", [])],
            [address["ip"] for address in subset.get("notReadyAddresses", [])],
        )
        for subset in found["subsets"]
    ]
    assert shape == [([5000], ["127.9.2.1"], ["127.9.2.2"]), ([6000], ["127.9.2.3"], [])]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as cluster:
        yield cluster


async def create_service(cluster: RunningCluster, **spec: object) -> str:
    """Its address."""
    created = service(**spec)
    del created["metadata"]["uid"]
    cluster.store.create(SERVICES, created)
    return await cluster.until(lambda: cluster_ip(cluster))


def cluster_ip(cluster: RunningCluster) -> str:
    found = cluster.find(SERVICES, "s")
    return str(found["spec"].get("clusterIP", "")) if found else ""


async def create_pod(cluster: RunningCluster, name: str, main: Object | None = None) -> Object:
    created = new_pod(name, main or server())
    created["metadata"]["labels"] = {"app": "a"}
    cluster.store.create(PODS, created)
    return await cluster.until_pod(name, is_ready)


async def until_serving(cluster: RunningCluster, *names: str) -> None:
    def is_serving() -> bool:
        found = cluster.find(ENDPOINTS, "s") or {}
        addresses = [a for subset in found.get("subsets", []) for a in subset.get("addresses", [])]
        return {address["targetRef"]["name"] for address in addresses} == set(names)

    await cluster.until(is_serving)
    await asyncio.sleep(0)  # the listener is told right after the Endpoints are written


async def ask(address: str, request: bytes = b"hello") -> bytes:
    """Send, half-close, and read to the end."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(address, 80)
        try:
            writer.write(request)
            writer.write_eof()
            return await reader.read()
        finally:
            writer.close()


async def test_a_request_reaches_a_pod_and_its_answer_comes_back(cluster: RunningCluster) -> None:
    address = await create_service(cluster)
    assert address.startswith(cluster.running.network + ".1.")
    await create_pod(cluster, "one")
    await until_serving(cluster, "one")
    assert await ask(address) == b"one hello"


async def test_megabytes_pass_in_both_directions(cluster: RunningCluster) -> None:
    address = await create_service(cluster)
    await create_pod(cluster, "one")
    await until_serving(cluster, "one")
    request = bytes(range(256)) * 16_384
    assert await ask(address, request) == b"one " + request


async def test_pods_take_turns(cluster: RunningCluster) -> None:
    address = await create_service(cluster)
    await create_pod(cluster, "one")
    await create_pod(cluster, "two")
    await until_serving(cluster, "one", "two")
    answers = [await ask(address, b"x") for _ in range(4)]
    assert sorted(answers) == [b"one x", b"one x", b"two x", b"two x"]


async def test_a_replaced_pod_is_followed(cluster: RunningCluster) -> None:
    address = await create_service(cluster)
    await create_pod(cluster, "one")
    await until_serving(cluster, "one")
    cluster.store.delete(PODS, "default", "one")
    await cluster.until_gone("one")
    await create_pod(cluster, "two")
    await until_serving(cluster, "two")
    assert await ask(address) == b"two hello"


async def test_without_a_ready_pod_connections_end_at_once(cluster: RunningCluster) -> None:
    address = await create_service(cluster)
    await async_eventually("a listener", lambda: can_connect(address))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with contextlib.suppress(ConnectionError):  # a reset is as good as an end of file
        assert await ask(address) == b""
    assert loop.time() - begun < CONNECT_TIMEOUT_S


async def test_a_pod_that_died_is_passed_over(cluster: RunningCluster) -> None:
    """The pod is ready in the API, but no process listens: the next pod answers."""
    address = await create_service(cluster)
    await create_pod(cluster, "deaf", container("sleep 60"))
    await create_pod(cluster, "one")
    await until_serving(cluster, "deaf", "one")
    # The deaf pod names no port, so it would be left out; a number is taken as it is.
    ports = [{"name": "web", "port": 80, "targetPort": 5000}]
    patch(cluster.store, SERVICES, "default", "s", {"spec": {"ports": ports}})
    await until_serving(cluster, "deaf", "one")
    assert [await ask(address) for _ in range(3)] == [b"one hello"] * 3


async def test_a_deleted_service_listens_no_more(cluster: RunningCluster) -> None:
    address = await create_service(cluster)
    cluster.store.delete(SERVICES, "default", "s")
    await cluster.until(lambda: cluster.find(ENDPOINTS, "s") is None)
    await async_eventually("the listener's end", lambda: not can_connect(address))


async def test_a_service_made_anew_under_its_name_is_where_it_was(cluster: RunningCluster) -> None:
    """Pods that run know it by its address alone."""
    before = await create_service(cluster)
    cluster.store.delete(SERVICES, "default", "s")
    await cluster.until(lambda: cluster.find(ENDPOINTS, "s") is None)
    assert await create_service(cluster) == before
    await async_eventually("a listener", lambda: can_connect(before))


def can_connect(address: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, 80)) == 0


def has_address(store: Store) -> bool:
    (found,) = store.list(SERVICES).items
    return bool(found["spec"].get("clusterIP"))


async def test_the_address_of_a_deleted_service_is_given_out_again(store: Store) -> None:
    with contextlib.closing(claim_network()) as network:
        pool = AddressPool("Service", islice(network.services(), 2))
        proxy = asyncio.create_task(ServiceProxy(store, pool).run(), name="service proxy")
        try:
            for name in ("one", "two", "three"):
                store.create(
                    SERVICES, service() | {"metadata": {"name": name, "namespace": "default"}}
                )
                await until(store, lambda: has_address(store))
                store.delete(SERVICES, "default", name)
        finally:
            proxy.cancel()
            await asyncio.wait([proxy])


async def test_headless_services_have_endpoints_and_no_address(cluster: RunningCluster) -> None:
    created = service(clusterIP="None")
    del created["metadata"]["uid"]
    cluster.store.create(SERVICES, created)
    await create_pod(cluster, "one")
    await until_serving(cluster, "one")
    assert cluster_ip(cluster) == "None"


async def test_services_keep_their_addresses_over_a_restart(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        before = await create_service(cluster)
    async with running_cluster(tmp_path) as cluster:
        assert cluster_ip(cluster) == before
        await async_eventually("a listener", lambda: can_connect(before))
