"""Peers on real loopback sockets: a big model that misbehaves as told, a LocalController."""

import contextlib
import http.server
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from edgeai.worker import tensors
from edgeai.worker.environment import Address
from tests.support.waiting import PATIENCE_S

LOOPBACK = "127.0.0.1"


class Exchange:
    """One request that a ScriptedCloud has read in full, and ways to treat its sender."""

    def __init__(self, connection: socket.socket, body: bytes, stopped: threading.Event) -> None:
        self.connection, self.body, self._stopped = connection, body, stopped

    @property
    def samples(self) -> tensors.Array:
        return tensors.decode_request(self.body)

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def reply(self, status: int, body: bytes, headers: str = "") -> None:
        self.send(response(status, body, headers))

    def trickle(self, data: bytes) -> None:
        """One byte every 10 ms until the peer is gone."""
        for byte in data:
            if self._stopped.wait(0.01):
                return
            self.send(bytes([byte]))

    def hang(self) -> None:
        self._stopped.wait(PATIENCE_S)

    def reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


Behaviour = Callable[[Exchange], bool | None]
"""Treats one request; the connection is kept when it returns True."""


class ScriptedCloud:
    """Reads each request, then treats it with the behaviour of the moment."""

    def __init__(self, behaviour: Behaviour, port: int = 0) -> None:
        self.behaviour = behaviour
        self.requests: list[tensors.Array] = []
        self.connections = 0
        self._stopped = threading.Event()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server((LOOPBACK, port), backlog=64)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> Address:
        return Address(LOOPBACK, self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            stream = connection.makefile("rb")
            with stream:
                while (body := read_request(stream)) is not None:
                    exchange = Exchange(connection, body, self._stopped)
                    self.requests.append(exchange.samples)
                    if not self.behaviour(exchange):
                        return


def read_request(stream: Any) -> bytes | None:
    """The body of the next request, None at the end of the connection."""
    length = 0
    if not stream.readline():
        return None
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    body: bytes = stream.read(length)
    return body


def response(status: int, body: bytes, headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


# ---- behaviours ----


def answer(exchange: Exchange) -> bool:
    """What a good big model does: here it answers each sample with its double."""
    exchange.reply(200, tensors.encode_reply(exchange.samples * 2))
    return True


def answer_then_close_quietly(exchange: Exchange) -> bool:
    """The connection is gone afterwards although nothing said so."""
    answer(exchange)
    return False


def close_unanswered(exchange: Exchange) -> None:
    pass


def trickle(exchange: Exchange) -> None:
    exchange.trickle(response(200, tensors.encode_reply(exchange.samples * 2)))


def trickle_head(exchange: Exchange) -> None:
    exchange.trickle(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000)


def hang(exchange: Exchange) -> None:
    exchange.hang()


def reset_in_body(exchange: Exchange) -> None:
    whole = response(200, tensors.encode_reply(exchange.samples * 2))
    exchange.send(whole[:-3])
    exchange.reset()


def cut_body(exchange: Exchange) -> None:
    exchange.send(response(200, tensors.encode_reply(exchange.samples * 2))[:-3])


def speak_garbage(exchange: Exchange) -> None:
    exchange.send(b"\x00\xffSSH-2.0-nonsense\r\n\r\n")


def answer_garbage(exchange: Exchange) -> bool:
    exchange.reply(200, b"\xc1 no msgpack")
    return True


def answer_too_few(exchange: Exchange) -> bool:
    exchange.reply(200, tensors.encode_reply(exchange.samples[1:]))
    return True


def fail(exchange: Exchange) -> bool:
    exchange.reply(500, b'{"error": "the estimator raised ValueError: bad pixel"}')
    return True


def be_busy(exchange: Exchange) -> bool:
    exchange.reply(503, b"", "Retry-After: 0\r\n")
    return True


def announce_too_much(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n")
    exchange.hang()


# ---- other peers ----


@contextmanager
def silent_listener() -> Iterator[Address]:
    """Connections are made by the kernel, nobody ever reads them: a half-open peer."""
    with socket.create_server((LOOPBACK, 0), backlog=64) as listener:
        yield Address(LOOPBACK, listener.getsockname()[1])


class LocalController(http.server.ThreadingHTTPServer):
    """Takes worker messages; `status` is what it answers, every message is kept."""

    daemon_threads = True

    def __init__(self, port: int = 0, status: int = 200) -> None:
        self.status = status
        self.reply_headers: Mapping[str, str] = {}
        self.paths: list[str] = []
        self.messages: list[dict[str, Any]] = []
        self.news = threading.Condition()
        super().__init__((LOOPBACK, port), _WorkerApi)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def url(self, secret: str = "s3cr3t" * 8) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}/w/{secret}"

    def wait_for(self, is_seen: Callable[[list[dict[str, Any]]], bool]) -> None:
        with self.news:
            assert self.news.wait_for(lambda: is_seen(self.messages), PATIENCE_S), self.messages

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(PATIENCE_S)

    def __exit__(self, *_: object) -> None:
        self.stop()


class _WorkerApi(http.server.BaseHTTPRequestHandler):
    """HTTP/1.0: every connection ends with its answer, so stop() leaves none open."""

    server: LocalController

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.status
        with self.server.news:
            self.server.paths.append(self.path)
            self.server.messages.append(json.loads(body))
            self.server.news.notify_all()
        self.send_response(status)
        for name, value in self.server.reply_headers.items():
            self.send_header(name, value)
        self.end_headers()
        if status != 200:
            self.wfile.write(f"refused {self.path} {150 * '.'} {self.path}".encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Doubler:
    """An estimator: the edge's answer is the sample itself, so a doubled one is the cloud's."""

    def load(self, model_url: str) -> None:
        self.model_url = model_url

    def predict(self, batch: tensors.Array) -> tensors.Array:
        return batch.copy()


def samples(count: int, value: float = 0.5) -> tensors.Array:
    """`count` samples that any threshold above `value` finds hard; a shape of (count, 1)."""
    return np.full((count, 1), value, dtype=np.float32)
