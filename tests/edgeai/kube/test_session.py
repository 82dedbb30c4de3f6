"""Connections to the API server take little memory."""

import asyncio
import socket
from pathlib import Path

from edgeai.api.resources import PODS, ObjectRef
from edgeai.kube.client import KubeClient
from edgeai.kube.session import RECEIVE_BYTES
from edgeai.kube.transport import open_transport
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig

REF = ObjectRef(PODS, "ns", "a")
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}}


async def test_little_arrives_at_once_on_a_connection(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    """Also on one that was dialled anew. Linux doubles the size."""
    scripted.watches = [scripted.stream(b"{}\n", then="hang")]
    first = await open_transport(write_kubeconfig(tmp_path / "kubeconfig", scripted.url))
    for transport in (first, first.anew()):
        async with transport.request("GET", "/pods", query={"watch": "true"}) as response:
            assert response.connection is not None
            assert response.connection.transport is not None
            made = response.connection.transport.get_extra_info("socket")
            size = made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        await transport.close()
        assert size <= 2 * RECEIVE_BYTES == 32 * 1024


async def test_the_connections_of_a_busy_moment_are_not_used_in_turn(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """What is idle is closed after a while. A connection that is used in turn is never idle."""
    scripted.others = [*[scripted.hang()] * 5, scripted.json(POD)]
    busy = [asyncio.create_task(scripted_client.get(REF), name=f"get {n}") for n in range(5)]
    await scripted.wait_for("other", 5)
    scripted.released.set()
    await asyncio.gather(*busy, return_exceptions=True)
    for _ in range(12):
        assert await scripted_client.get(REF) == POD
    connections = [id(request.transport) for request in scripted.seen]
    assert len(set(connections[:5])) == 5
    assert len(set(connections[5:])) == 1
