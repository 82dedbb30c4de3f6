"""What the calls of Sedna's library do over the relay, in the environment of `transport: relay`.

The library itself is on no package index. `sedna_client_process` has its calls, with the requests
that it wants, and with websockets 10, because its websockets 9 needs Python 3.9.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from edgeai.api.workers import Transport
from edgeai.localcluster.kubelet.expansion import expand
from globalmanager.contract import WorkerSettings
from globalmanager.kinds.edge import transport
from globalmanager.kinds.shared import pods
from tests.edgeai.worker.peers import LOOPBACK
from tests.relay.world import HOST, SECRET, WORKER, RelayWorld, one_answer
from tests.support.runtimes import INSTALL_S, python_with

pytestmark = pytest.mark.timeout(INSTALL_S)
CALLS = Path(__file__).with_name("sedna_client_process.py")


@pytest.fixture(scope="session")
def python() -> Path:
    return python_with("sedna-client")


async def call(python: Path, world: RelayWorld, what: str, url: str) -> Any:
    """What the call gives in the environment of a worker with `transport: relay`."""
    process = await asyncio.create_subprocess_exec(
        *(python, CALLS, what, url), stdout=asyncio.subprocess.PIPE, env=environment(world)
    )
    said, _ = await process.communicate()
    return json.loads(said)


def environment(world: RelayWorld) -> dict[str, str]:
    """As the GlobalManager writes it and the kubelet expands it."""
    settings = WorkerSettings(worker_api_port=world.port)
    variables = transport.environment(Transport.RELAY, settings)
    known = {"HOST_IP": world.host, "WORKER_NAME": str(WORKER), pods.WORKER_SECRET: SECRET}
    return known | {each["name"]: expand(each["value"], known) for each in variables}


async def test_its_joint_inference_goes_through_the_relay(python: Path, tmp_path: Path) -> None:
    async with RelayWorld(tmp_path).running(one_answer) as world:
        url = f"http://{HOST}:{world.target_port}/digits/predict"
        status, text = await call(python, world, "ask", url)
    head, _, body = text.partition("\r\n\r\n")
    assert (status, head.splitlines()[0]) == (200, "POST /digits/predict HTTP/1.1")
    assert json.loads(body) == {"data": [[0.5]]}
    assert "Proxy" not in head


async def test_its_reports_go_to_the_localcontroller_directly(python: Path, tmp_path: Path) -> None:
    async with RelayWorld(tmp_path).running() as world:
        url = f"http://{world.host}:{world.port}/w/{SECRET}/sedna/workers/{WORKER}/info"
        status, _ = await call(python, world, "ask", url)
        assert status == 400, "the worker API answers, and wants a report"
        assert world.cloud.sample("edgeai_edge_relays") == 0


async def test_its_federated_learning_heeds_no_proxy(python: Path, tmp_path: Path) -> None:
    """It works where the aggregator's address answers from the node, and nowhere else."""

    async def echo(socket: ServerConnection) -> None:
        await socket.send(await socket.recv())

    async with serve(echo, LOOPBACK, 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with RelayWorld(tmp_path).running(target_port=port) as world:
            assert await call(python, world, "subscribe", f"ws://{LOOPBACK}:{port}") == "subscribe"
            assert await call(python, world, "subscribe", f"ws://{HOST}:{port}") == "gaierror"
            assert world.cloud.sample("edgeai_edge_relays") == 0
