"""An aggregator on a real loopback socket that answers as it is told."""

import http.server
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import msgspec
import numpy as np

from edgeai.worker.environment import Address
from edgeai.worker.federated import protocol
from edgeai.worker.federated.environment import FederationEnvironment
from edgeai.worker.federated.protocol import Encoding, Received, RoundState, Welcome
from tests.edgeai.worker.peers import LOOPBACK
from tests.support.waiting import PATIENCE_S

NUMBERS = 3  # of the model that it gives


class Asked(msgspec.Struct, frozen=True):
    what: str
    """Method and path without the query."""
    body: bytes
    at_s: float
    instance: str


Answer = tuple[int, bytes]
Script = Callable[[Asked], Answer | None]
"""None: as an aggregator answers that has this very round's model, and wants an update."""

LOST: Answer = (0, b"")  # the connection ends without it


class ScriptedAggregator(http.server.ThreadingHTTPServer):
    """Of one participant, "a"."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, script: Script = lambda _asked: None) -> None:
        self.script = script
        self.state = RoundState(1, 3, is_yours=True)
        self.welcome = Welcome(Encoding(), beat_s=3600.0)
        self.retry_after_s = 0.0  # told with each 503
        self.asked: list[Asked] = []
        self.is_over = threading.Event()
        super().__init__((LOOPBACK, 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> Address:
        return Address(LOOPBACK, int(self.server_address[1]))

    @property
    def environment(self) -> FederationEnvironment:
        return FederationEnvironment(worker_name="a", aggregator=self.address)

    def count(self, what: str) -> int:
        return sum(asked.what == what for asked in list(self.asked))

    def updates(self) -> list[str]:
        """What was asked about updates, without the common beginning, and the joins."""
        relevant = [a.what for a in list(self.asked) if "/updates/" in a.what or a.what == JOIN]
        return [what.replace(f"/v1/rounds/{self.state.round}/updates/a", "") for what in relevant]

    def hang(self) -> None:
        self.is_over.wait(PATIENCE_S)

    def answer(self, asked: Asked) -> Answer:
        told = self.script(asked)
        if told is not None:
            return told
        match asked.what.split("/")[2:]:
            case ["participants", _] if asked.what == JOIN:
                return 200, protocol.encode(self.welcome)
            case ["round"]:
                return 200, protocol.encode(self.state)
            case ["rounds", _, "model", _]:
                zeros = protocol.to_wire(np.zeros(NUMBERS, np.float32), self.welcome.encoding)
                return 200, protocol.packed(zeros, self.welcome.encoding)
            case ["rounds", _, "updates", _]:
                return 200, protocol.encode(Received(0))
        return 200, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.shutdown()
        self.server_close()
        self._thread.join(PATIENCE_S)


JOIN = "POST /v1/participants/a"
BEAT = f"{JOIN}/beat"
LEAVE = "DELETE /v1/participants/a"


class _Handler(http.server.BaseHTTPRequestHandler):
    """HTTP/1.0: each connection ends with its answer."""

    server: ScriptedAggregator

    def do_GET(self) -> None:
        asked = Asked(
            f"{self.command} {self.path.partition('?')[0]}",
            self.rfile.read(int(self.headers.get("Content-Length", 0))),
            time.monotonic(),
            self.headers.get(protocol.INSTANCE_HEADER, ""),
        )
        self.server.asked.append(asked)
        status, body = self.server.answer(asked)
        if status:
            self.send_response(status)
            if status == 503:
                self.send_header("Retry-After", str(self.server.retry_after_s))
            self.end_headers()
            self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: Any) -> None:
        pass
