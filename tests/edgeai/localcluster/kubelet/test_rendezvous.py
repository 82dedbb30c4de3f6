"""Training processes that listen on every address, several on one machine."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from edgeai.localcluster.kubelet.expansion import Endpoint, ServiceHost
from edgeai.localcluster.kubelet.launch import Launch, PodView, launch
from edgeai.localcluster.network.addresses import AddressesExhausted, PortPool
from edgeai.localcluster.objects.pods import is_ready
from edgeai.localcluster.objects.resources import PODS, SERVICES, Object
from tests.edgeai.localcluster.running import (
    RunningCluster,
    container,
    log_of,
    new_pod,
    python,
    running_cluster,
)
from tests.support.waiting import async_eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as cluster:
        yield cluster


HOSTS = [
    ServiceHost("w-0", "default", "127.9.2.1", is_headless=True),
    ServiceHost("w-1", "default", "127.9.2.2", is_headless=True),
    ServiceHost("db", "default", "127.9.1.1"),
]


def launched(tmp_path: Path, main: Object, *others: Object) -> Launch:
    """What is executed for the container `main` of the pod of w-0; a port moves up by 20,000."""
    view = PodView(
        pod=new_pod("w-0", main, *others),
        pod_ip="127.9.2.1",
        host_ip="127.9.0.1",
        directory=tmp_path,
        root=tmp_path,
        mounts={},
        services=HOSTS,
        move_port=moved,
        base_env={"PATH": "/usr/bin:/bin"},
    )
    return launch(main, view, lambda _, __: None)


def moved(endpoint: Endpoint) -> int:
    return endpoint.port + 20_000


def variables(**values: str) -> list[Object]:
    return [{"name": name, "value": value} for name, value in values.items()]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param(
            {"TF_CONFIG": '{"cluster":{"worker":["w-0.default.svc:22","w-1.default.svc:22"]}}'},
            {"TF_CONFIG": '{"cluster":{"worker":["127.9.2.1:20022","127.9.2.2:20022"]}}'},
            id="TensorFlow",
        ),
        pytest.param(
            {"MASTER_ADDR": "w-0", "MASTER_PORT": "23", "PET_MASTER_PORT": "23"},
            {"MASTER_ADDR": "127.9.2.1", "MASTER_PORT": "20023", "PET_MASTER_PORT": "23"},
            id="PyTorch",
        ),
        pytest.param(
            {"PET_MASTER_ADDR": "w-1.default", "PET_MASTER_PORT": "23"},
            {"PET_MASTER_ADDR": "127.9.2.2", "PET_MASTER_PORT": "20023"},
            id="torchrun",
        ),
        pytest.param(
            {"PET_RDZV_ENDPOINT": "w-0:23"},
            {"PET_RDZV_ENDPOINT": "127.9.2.1:20023"},
            id="elastic torchrun",
        ),
        pytest.param(
            {"MASTER_ADDR": "w-0", "MASTER_PORT": "23", "X": "tcp://$(MASTER_ADDR):$(MASTER_PORT)"},
            {"X": "tcp://127.9.2.1:20023"},
            id="a port that follows its host moves in every variable",
        ),
        pytest.param(
            {"REDIS_HOST": "w-0", "REDIS_PORT": "23", "PEER": "w-0:22"},
            {"REDIS_HOST": "127.9.2.1", "REDIS_PORT": "23", "PEER": "127.9.2.1:22"},
            id="other programs listen where they want",
        ),
        pytest.param(
            {"MASTER_ADDR": "db", "MASTER_PORT": "23", "TF_CONFIG": "db.default:22"},
            {"MASTER_ADDR": "127.9.1.1", "MASTER_PORT": "23", "TF_CONFIG": "127.9.1.1:22"},
            id="Services with a cluster IP have ports of their own",
        ),
        pytest.param(
            {"MASTER_ADDR": "w-0", "MASTER_PORT": "none"},
            {"MASTER_ADDR": "127.9.2.1", "MASTER_PORT": "none"},
            id="no port",
        ),
        pytest.param({"MASTER_PORT": "23"}, {"MASTER_PORT": "23"}, id="no host"),
    ],
)
def test_ports_move_in_the_variables_of_training_runtimes(
    tmp_path: Path, given: dict[str, str], found: dict[str, str]
) -> None:
    env = launched(tmp_path, container("", env=variables(**given))).env
    assert {name: env[name] for name in found} == found


@pytest.mark.parametrize(
    ("given", "conf"),
    [
        pytest.param({"PET_RDZV_ENDPOINT": "w-0:23"}, "is_host=1", id="the endpoint's own pod"),
        pytest.param({"PET_RDZV_ENDPOINT": "w-1:23"}, "is_host=0", id="another pod"),
        pytest.param(
            {"PET_RDZV_ENDPOINT": "w-1:23", "PET_RDZV_CONF": "timeout=9"},
            "timeout=9,is_host=0",
            id="after the settings of the user",
        ),
        pytest.param(
            {"PET_RDZV_ENDPOINT": "w-1:23", "PET_RDZV_CONF": "is_host=true"},
            "is_host=true",
            id="the user decides",
        ),
        pytest.param(
            {"PET_RDZV_ENDPOINT": "w-1:23", "PET_RDZV_BACKEND": "etcd"}, None, id="no c10d"
        ),
        pytest.param({"PET_RDZV_ENDPOINT": "db:23"}, None, id="not of a replica"),
        pytest.param({}, None, id="no endpoint"),
    ],
)
def test_torchrun_is_told_which_pod_hosts_its_store(
    tmp_path: Path, given: dict[str, str], conf: str | None
) -> None:
    env = variables(**({"PET_RDZV_BACKEND": "c10d"} | given))
    assert launched(tmp_path, container("", env=env)).env.get("PET_RDZV_CONF") == conf


def test_ports_move_in_the_arguments(tmp_path: Path) -> None:
    env = variables(MASTER_ADDR="w-0", MASTER_PORT="23")
    args = ["--master_port=$(MASTER_PORT)", "--url=tcp://$(MASTER_ADDR):$(MASTER_PORT)", "w-0:23"]
    argv = launched(tmp_path, container("", env=env, args=args)).argv
    assert argv[-3:] == ("--master_port=20023", "--url=tcp://127.9.2.1:20023", "127.9.2.1:20023")


def test_ports_move_in_every_container_of_the_pod(tmp_path: Path) -> None:
    waits = container("", args=["w-0:23"])
    trains = container("", env=variables(MASTER_ADDR="w-0", MASTER_PORT="23")) | {"name": "other"}
    assert launched(tmp_path, waits, trains).argv[-1] == "127.9.2.1:20023"


def test_a_container_knows_the_ports_that_moved_for_its_own_pod(tmp_path: Path) -> None:
    env = variables(TF_CONFIG="w-0.default.svc:22 w-1.default.svc:23")
    assert launched(tmp_path, container("", env=env)).moved_ports == {22: 20_022}


def create_service(cluster: RunningCluster, name: str, port: int) -> None:
    ports = [{"name": "port", "port": port, "targetPort": port}]
    spec = {"clusterIP": "None", "selector": {"app": name}, "ports": ports}
    metadata = {"name": name, "namespace": "default"}
    cluster.store.create(SERVICES, {"metadata": metadata, "spec": spec})


TENSORFLOW = """
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
workers, index = config["cluster"]["worker"], config["task"]["index"]
server = socket.create_server(("0.0.0.0", int(workers[index].rpartition(":")[2])))
for worker in workers:
    host, _, port = worker.rpartition(":")
    while True:
        try:
            peer = socket.create_connection((host, int(port)))
            break
        except OSError:
            time.sleep(0.05)
seen = [server.accept() for _ in workers]
"""
"""Listens as TensorFlow does, and ends when it has reached all workers and all have reached it."""


async def test_replicas_that_listen_on_every_address_meet(cluster: RunningCluster) -> None:
    names = [f"mnist-worker-{index}" for index in range(3)]
    workers = [f"{name}.default.svc:2222" for name in names]
    for index, name in enumerate(names):
        create_service(cluster, name, 2222)
        task = {"type": "worker", "index": index}
        config = msgspec.json.encode({"cluster": {"worker": workers}, "task": task}).decode()
        main = python(TENSORFLOW, env=variables(TF_CONFIG=config))
        cluster.store.create(PODS, new_pod(name, main, restartPolicy="Never"))
    for name in names:
        await cluster.until_phase(name, "Succeeded")


MASTER = """
import os, socket
server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
while True:
    connection, _ = server.accept()
    try: connection.sendall(os.environ["HOSTNAME"].encode())
    except OSError: pass
    connection.close()
"""
WORKER = """
import os, socket
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
print(socket.create_connection(address).recv(99).decode())
"""
WAIT = """
import socket, sys, time
host, _, port = sys.argv[1].rpartition(":")
while True:
    try: socket.create_connection((host, int(port))); break
    except OSError: time.sleep(0.05)
"""


def create_master(cluster: RunningCluster, job: str) -> None:
    env = variables(MASTER_ADDR=f"{job}-master-0", MASTER_PORT="23456")
    probe = {"tcpSocket": {"port": 23456}, "periodSeconds": 0.05}
    main = python(MASTER, env=env, readinessProbe=probe)
    cluster.store.create(PODS, new_pod(f"{job}-master-0", main))


async def worker_output(cluster: RunningCluster, tmp_path: Path, job: str) -> str:
    """What a worker of the job says, that waits for its master's port in an init container."""
    master, name = f"{job}-master-0", f"{job}-worker-0"
    env = variables(MASTER_ADDR=master, MASTER_PORT="23456")
    wait = python(WAIT, args=[f"{master}:23456"]) | {"name": "wait"}
    pod = new_pod(name, python(WORKER, env=env), initContainers=[wait], restartPolicy="Never")
    cluster.store.create(PODS, pod)
    await cluster.until_phase(name, "Succeeded")
    return await log_of(cluster, tmp_path, name)


async def test_two_jobs_with_the_same_port_run_at_the_same_time(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    for job in ("one", "two"):
        create_service(cluster, f"{job}-master-0", 23456)
        create_master(cluster, job)
    for job in ("one", "two"):
        await cluster.until_pod(f"{job}-master-0", is_ready)  # the probe finds the port, too
        assert await worker_output(cluster, tmp_path, job) == f"{job}-master-0\n"


async def test_a_port_stays_when_pod_and_service_are_made_anew(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    create_service(cluster, "w-0", 23456)
    before = await told_endpoint(cluster, tmp_path)
    assert re.fullmatch(r"127\.\d+\.2\.1:2\d{4}", before)
    assert await told_endpoint(cluster, tmp_path) == before
    cluster.store.delete(SERVICES, "default", "w-0")
    create_service(cluster, "w-0", 23456)
    assert await told_endpoint(cluster, tmp_path) == before


async def told_endpoint(cluster: RunningCluster, tmp_path: Path) -> str:
    """What the pod of w-0 finds in PET_RDZV_ENDPOINT."""
    env = variables(PET_RDZV_ENDPOINT="w-0:23456")
    main = container("printf %s $PET_RDZV_ENDPOINT", env=env)
    cluster.store.create(PODS, new_pod("w-0", main, restartPolicy="Never"))
    await cluster.until_phase("w-0", "Succeeded")
    found = await log_of(cluster, tmp_path, "w-0")
    cluster.store.delete(PODS, "default", "w-0")
    await cluster.until_gone("w-0")
    return found


async def test_only_ports_where_nobody_listens_are_taken() -> None:
    server = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    used = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(AddressesExhausted, match=f"no port from {used} to {used}"):
            PortPool([used]).take()
    finally:
        server.close()
        await server.wait_closed()
    pool = PortPool([used])
    await async_eventually("a free port", lambda: has_taken(pool))
    with pytest.raises(AddressesExhausted):
        pool.take()
    pool.release(used)
    assert pool.take() == used


def has_taken(pool: PortPool) -> bool:
    try:
        pool.take()
    except AddressesExhausted:
        return False
    return True
