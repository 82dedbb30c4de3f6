"""Messages between launcher.py and worker.py over TCP: a line of JSON, then a vector of weights.

A message without a vector has the line alone. A peer can send at most 64 KiB for a line, and the
vector has a fixed size, so nothing that a peer sends grows without a bound.
"""

import json
import socket
from typing import Any, Final

import numpy as np

from edgeai.demo.digits import Floats
from edgeai.demo.elastic_training import network

_LINE_BYTES: Final = 64 * 1024
_VECTOR_BYTES: Final = 4 * network.SIZE


class Connection:
    """Args:
    timeout_s: a peer that sends or reads nothing for so long is lost
    """

    def __init__(self, peer: socket.socket, *, timeout_s: float) -> None:
        peer.settimeout(timeout_s)
        self._socket = peer
        self._stream = peer.makefile("rb")

    def send(self, line: dict[str, Any], vector: Floats | None = None) -> None:
        """Raises: OSError"""
        body = b"" if vector is None else vector.astype("<f4").tobytes()
        self._socket.sendall(json.dumps(line).encode() + b"\n" + body)

    def receive(self, *, with_vector: bool) -> tuple[dict[str, Any], Floats]:
        """Returns: line, vector; the vector is empty without `with_vector`

        Raises: OSError, also when the peer has closed the connection or sends no valid message
        """
        text = self._stream.readline(_LINE_BYTES)
        body = self._stream.read(_VECTOR_BYTES) if with_vector else b""
        if not text.endswith(b"\n") or (with_vector and len(body) < _VECTOR_BYTES):
            raise ConnectionError("the peer has closed the connection")
        try:
            line = json.loads(text)
        except ValueError as error:
            raise ConnectionError("the peer sends no JSON") from error
        if not isinstance(line, dict):
            raise ConnectionError("the peer sends no JSON object")
        return line, np.frombuffer(body, dtype="<f4").astype(np.float32)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()
