"""Workers reach the cloud through the relay: with the SDK, and with clients that heed a proxy."""

import asyncio
import threading
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from edgeai.worker.environment import Address, Transport, WorkerEnvironment
from edgeai.worker.federated.environment import FederationEnvironment, Secret
from edgeai.worker.federated.learning import FederatedLearning
from edgeai.worker.joint_inference import JointInference
from edgeai.worker.results import AnsweredBy, Reason
from tests.edgeai.worker import peers
from tests.edgeai.worker.federated.conftest import SECRET as JOB_SECRET
from tests.edgeai.worker.federated.conftest import Federation
from tests.edgeai.worker.federated.mean import Mean
from tests.edgeai.worker.federated.test_federation import settings
from tests.edgeai.worker.peers import LOOPBACK, Doubler, ScriptedCloud
from tests.edgeai.worker.test_joint_inference import HARD
from tests.relay.world import HOST, UID, WORKER, RelayWorld, one_answer
from tests.support.waiting import async_eventually


def edge_worker(world: RelayWorld, **fields: Any) -> JointInference:
    known = {
        "worker_name": WORKER,
        "lc_server": world.lc_server,
        "big_model": Address(HOST, world.target_port),
        "hem_name": "Threshold",
        "cloud_timeout_s": 20.0,
    }
    return JointInference(Doubler(), environment=WorkerEnvironment(**{**known, **fields}))


@pytest.mark.parametrize("transport", [Transport.RELAY, Transport.AUTO])
async def test_hard_samples_are_answered_through_the_relay(
    tmp_path: Path, transport: Transport
) -> None:
    """The name of the Service says nothing to this machine, so `auto` means the relay."""
    with ScriptedCloud(peers.answer) as big:
        async with RelayWorld(tmp_path).running(target_port=big.address.port) as world:
            joint = await asyncio.to_thread(edge_worker, world, transport=transport)
            for _ in range(3):
                (result,) = await asyncio.to_thread(joint.inference, np.array([[HARD]]))
                assert (result.answered_by, result.reason) == (AnsweredBy.CLOUD, Reason.HARD)
            assert big.connections == 1, "the connection is kept"
            await asyncio.to_thread(joint.flush, 20.0)
            told = world.cloud.statuses.by_uid.setdefault(UID, {})
            await async_eventually("the report is in the cloud", lambda: told.get(WORKER))
            assert told[WORKER]["details"]["transport"] == "relay"
            await asyncio.to_thread(joint.close)


async def test_a_cloud_that_answers_from_the_node_is_asked_directly(tmp_path: Path) -> None:
    with ScriptedCloud(peers.answer) as big:
        async with RelayWorld(tmp_path).running() as world:
            joint = await asyncio.to_thread(edge_worker, world, big_model=big.address)
            (result,) = await asyncio.to_thread(joint.inference, np.array([[HARD]]))
            assert result.answered_by is AnsweredBy.CLOUD
            assert world.cloud.sample("edgeai_edge_relays") == 0
            await asyncio.to_thread(joint.close)


async def test_without_the_cloud_the_edge_answers_and_the_reason_is_told(tmp_path: Path) -> None:
    async with RelayWorld(tmp_path).running() as world:
        world.cloud.services.clear()
        joint = await asyncio.to_thread(edge_worker, world, transport=Transport.RELAY)
        (result,) = await asyncio.to_thread(joint.inference, np.array([[HARD]]))
        assert (result.answered_by, result.reason) == (AnsweredBy.EDGE, Reason.CLOUD_UNREACHABLE)
        await asyncio.to_thread(joint.close)


async def test_a_federation_is_trained_through_the_relay(tmp_path: Path) -> None:
    federation = Federation(tmp_path / "aggregator", settings=settings(1))
    async with RelayWorld(tmp_path).running(target_port=federation.server.address.port) as world:
        environment = FederationEnvironment(
            worker_name=WORKER,
            lc_server=world.lc_server,
            transport=Transport.RELAY,
            aggregator=Address(HOST, world.target_port),
            secret=Secret(JOB_SECRET),
        )
        estimator = Mean()
        learning = await asyncio.to_thread(FederatedLearning, estimator, environment=environment)
        data = [1.0, 2.0, 3.0]
        await asyncio.to_thread(learning.train, data, valid_data=data)
        assert estimator.weights["mean"] == pytest.approx([2.0] * 3)
        assert world.cloud.sample("edgeai_edge_relay_opened_total", outcome="opened") >= 1
    assert await asyncio.to_thread(federation.join)


async def test_a_client_of_the_standard_library(tmp_path: Path) -> None:
    """urllib and requests send absolute URLs, without CONNECT. Sedna's library uses requests."""
    async with RelayWorld(tmp_path).running(one_answer) as world:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": world.proxy_url}))
        url = f"http://{HOST}:{world.target_port}/sedna/predict"

        def post() -> bytes:
            with opener.open(url, data=b"pixels", timeout=20) as answer:
                return bytes(answer.read())

        seen = await asyncio.to_thread(post)
    assert seen.startswith(b"POST /sedna/predict HTTP/1.1\r\n")
    assert seen.endswith(b"\r\n\r\npixels")
    assert b"Proxy" not in seen


async def test_a_websocket_of_a_library_that_heeds_proxies(tmp_path: Path) -> None:
    async def echo(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message)

    async with serve(echo, LOOPBACK, 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with (
            RelayWorld(tmp_path).running(target_port=port) as world,
            connect(f"ws://{HOST}:{port}", proxy=world.proxy_url) as socket,
        ):
            await socket.send("weights")
            assert await socket.recv() == "weights"


async def test_many_workers_at_a_time(tmp_path: Path) -> None:
    """Each of 40 threads gets its own answers."""
    with ScriptedCloud(peers.answer) as big:
        async with RelayWorld(tmp_path).running(target_port=big.address.port) as world:
            joint = await asyncio.to_thread(edge_worker, world, transport=Transport.RELAY)
            wrong: list[float] = []

            def work(value: float) -> None:
                for _ in range(5):
                    (result,) = joint.inference(np.array([[value]]))
                    if result.answer != pytest.approx([2 * value]):
                        wrong.append(value)

            threads = [threading.Thread(target=work, args=(HARD + n / 1000,)) for n in range(40)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            assert not wrong
            await asyncio.to_thread(joint.close)
