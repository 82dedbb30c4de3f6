"""Connections to the API server take little memory."""

import socket
from pathlib import Path

from globalmanager.kube.session import RECEIVE_BYTES
from globalmanager.kube.transport import open_transport
from tests.globalmanager.scripted_api import ScriptedApi, write_kubeconfig


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
