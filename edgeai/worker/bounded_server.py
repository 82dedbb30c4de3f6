"""A threaded HTTP/1.1 server that limits connections, bytes and time.

Each connection has its own thread (http.server of the standard library). Each wait for a request,
and for space to send, has a deadline. A new client may take an idle one's place (connections).
"""

import contextlib
import http.server
import io
import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, Self, cast

import msgspec

from edgeai.connections import Connections, Stage
from edgeai.errors import SettingsError
from edgeai.worker.deadline import Deadline, DeadlineSocket
from edgeai.worker.environment import Address

log = logging.getLogger(__name__)

ACCEPT_POLL_S: Final = 0.1  # time between two checks whether the accept loop must stop
DRAIN_S: Final = 1.0  # time to read a refused body, so that the client gets the answer
BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_connections: int = 64
    """a further connection takes the place of an idle one, or gets 503; each connection needs a
    thread and the bytes of one request"""
    max_request_bytes: int = 16 * 1024 * 1024
    """a longer body gets 413"""
    read_timeout_s: float = 10.0
    """limit from the first byte of a request to its last byte"""
    write_timeout_s: float = 10.0
    """limit for sending one whole answer"""
    idle_timeout_s: float = 60.0
    """limit of the pause between two requests of one connection; the limit from the connection to
    its first request is read_timeout_s"""
    authentication_timeout_s: float = 5.0
    """limit from the connection to its first authenticated request, if clients need a secret"""
    grace_s: float = 5.0
    """how long stop() waits for requests in progress"""


class RequestRefused(Exception):
    """The server refuses a request. `is_last`: the connection ends after the answer."""

    def __init__(self, status: int, problem: str, *, is_last: bool = False) -> None:
        self.status, self.problem, self.is_last = status, problem, is_last
        super().__init__(problem)


class BoundedServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """The constructor begins to listen. accept() serves until another thread calls stop()."""

    daemon_threads = True  # a slow client must not keep the process alive
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self, address: Address, handler: type["BoundedHandler"], limits: ServerLimits
    ) -> None:
        if ":" in address.host:
            self.address_family = socket.AF_INET6
        self.limits = limits
        self._change = threading.Condition()  # guards the connections
        self._connections = Connections[DeadlineSocket](limit=limits.max_connections)
        self.is_stopping = False
        super().__init__((address.host, address.port), handler)

    @classmethod
    def listen(
        cls,
        address: Address,
        handler: type["BoundedHandler"],
        limits: ServerLimits,
        *,
        variables: str,
    ) -> Self:
        """Begin to listen on an address that these environment variables have set.

        Raises: SettingsError
        """
        try:
            return cls(address, handler, limits)
        except OSError as error:
            raise SettingsError(
                f"environment variables {variables}",
                f"cannot listen on {address.host}:{address.port}: {error.strerror or error}; "
                "set them to an address of this machine and a free port",
            ) from error

    @property
    def address(self) -> Address:
        """The address of the server. For port 0 it has the port that the system chose."""
        host, port = self.server_address[:2]
        return Address(str(host), port)

    def accept(self) -> None:
        self.serve_forever(poll_interval=ACCEPT_POLL_S)

    @contextlib.contextmanager
    def accepting(self) -> Iterator[None]:
        """Serve in a thread of its own within the `with` block, and then stop."""
        thread = threading.Thread(target=self.accept, name="edgeai-http", daemon=True)
        thread.start()
        try:
            yield
        finally:
            if not self.stop():
                log.warning("stopped although requests were under way: the grace is over")
            thread.join()

    def stop(self) -> bool:
        """Accept no more connections, end idle connections, and wait for requests in progress.

        Call stop() only if accept() runs, or will run soon, in another thread.
        Returns: False if a request was still in progress after grace_s
        """
        self.is_stopping = True
        self.shutdown()
        self.server_close()
        with self._change:
            for connection in self._connections.idle():
                end(connection, socket.SHUT_RD)
            return self._change.wait_for(
                lambda: not self._connections.is_any_busy(), timeout=self.limits.grace_s
            )

    def set_stage(self, connection: DeadlineSocket, stage: Stage) -> None:
        with self._change:
            self._connections.set_stage(connection, stage)
            self._change.notify_all()

    # ---- called by socketserver ----

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = self.socket.accept()
        return DeadlineSocket(fileno=connection.detach()), address

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._change:
            victim = self._connections.add(request, str(client_address[0]))
        if victim is not None and victim is request:
            self._reject(victim)
            return
        if victim is not None:
            end(victim, socket.SHUT_RDWR)  # its thread wakes and closes it
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started, so the connection ends here
            self._remove(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._remove(request)

    def _remove(self, connection: DeadlineSocket) -> None:
        with self._change:
            self._connections.remove(connection)
            self._change.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.warning("connection ended by a fault", exc_info=True)

    def _reject(self, connection: DeadlineSocket) -> None:
        try:
            # The send buffer of a new socket has space, so sendall() does not wait.
            connection.deadline = Deadline(0.1)
            connection.sendall(BUSY)
        except OSError:
            log.debug("connection turned away before it could be told")
        finally:
            self.shutdown_request(connection)


class BoundedHandler(http.server.BaseHTTPRequestHandler):
    """Handles one connection. A subclass answers in do_GET and do_POST.

    A subclass that authenticates its clients sets `is_authenticated` to False, and calls
    note_authenticated() after it has authenticated a request.
    """

    is_authenticated = True
    unread_bytes = 0  # of the body of the current request
    _has_asked = False  # whether a request has ended on this connection
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "edgeai", ""
    server: BoundedServer
    connection: DeadlineSocket
    disable_nagle_algorithm = True
    wbufsize = -1  # sends head and body in one segment

    def setup(self) -> None:
        # A deadline until the first request; handle_one_request sets the deadline of a request.
        self.request.deadline = Deadline(self._head_timeout_s())
        super().setup()

    def handle_one_request(self) -> None:
        self.close_connection = True
        if self.server.is_stopping or not self._wait_for_request():
            return
        self.server.set_stage(self.connection, Stage.READING)
        try:
            if self.is_authenticated:
                self.connection.deadline = Deadline(self.server.limits.read_timeout_s)
            super().handle_one_request()
        except OSError:
            self.close_connection = True
        finally:
            self._has_asked = True
            self.server.set_stage(self.connection, Stage.IDLE)

    def parse_request(self) -> bool:
        is_parsed = super().parse_request()
        if is_parsed and "Content-Length" not in self.headers:
            self.server.set_stage(self.connection, Stage.ANSWERING)
        return is_parsed

    def _wait_for_request(self) -> bool:
        self.connection.deadline = Deadline(self._head_timeout_s())
        try:
            return bool(cast(io.BufferedReader, self.rfile).peek(1))
        except OSError:
            return False

    def note_authenticated(self) -> None:
        """Give this connection the time limits of an authenticated client."""
        if not self.is_authenticated:
            self.is_authenticated = True
            self.connection.deadline = Deadline(self.server.limits.read_timeout_s)

    def _head_timeout_s(self) -> float:
        limits = self.server.limits
        if not self.is_authenticated:
            return limits.authentication_timeout_s
        return limits.idle_timeout_s if self._has_asked else limits.read_timeout_s

    def read_request_body(self) -> bytes:
        """Raises: RequestRefused, OSError (TimeoutError: the client is too slow)"""
        self.begin_request_body(self.server.limits.max_request_bytes)
        body = self.rfile.read(self.unread_bytes)
        self._note_read(len(body), self.unread_bytes)
        return body

    def begin_request_body(self, limit: int) -> None:
        """Set `unread_bytes` to the length of the body. Raises: RequestRefused"""
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not length:
            raise RequestRefused(411, "send the body with a Content-Length", is_last=True)
        if not length.isascii() or not length.isdigit() or len(length) > 18:
            raise RequestRefused(400, f"Content-Length is {length[:40]!r}", is_last=True)
        if int(length) > limit:
            raise RequestRefused(413, f"body of {length} bytes, limit {limit}", is_last=True)
        self.unread_bytes = int(length)

    def read_request_into(self, buffer: memoryview) -> int:
        """Fill `buffer` with the next bytes of the body. Returns: how many, fewer only at its end

        Raises: OSError
        """
        wanted = min(len(buffer), self.unread_bytes)
        count = cast(io.BufferedReader, self.rfile).readinto(buffer[:wanted])
        self._note_read(count, wanted)
        return count

    def _note_read(self, count: int, wanted: int) -> None:
        if count < wanted:
            raise ConnectionError("the request's body was cut short")
        self.unread_bytes -= count
        if not self.unread_bytes:
            self.server.set_stage(self.connection, Stage.ANSWERING)

    def refuse(self, refusal: RequestRefused) -> None:
        is_last = refusal.is_last or self.unread_bytes > 0
        self.close_connection = self.close_connection or is_last
        body = json.dumps({"error": refusal.problem}).encode()
        self.reply(refusal.status, body, "application/json")
        if is_last:
            self._drain()

    def reply(self, status: int, body: bytes, content_type: str) -> None:
        self._reply_head(status, content_type, "Content-Length", str(len(body)))
        self.wfile.write(body)
        self.wfile.flush()

    def reply_in_chunks(self, parts: Iterable[bytes | memoryview], content_type: str) -> None:
        """Answer 200 with parts that are made while they are sent, none of them empty."""
        self._reply_head(200, content_type, "Transfer-Encoding", "chunked")
        for part in parts:
            self.wfile.write(b"%x\r\n" % len(part))
            self.wfile.write(part)
            self.wfile.write(b"\r\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _reply_head(self, status: int, content_type: str, framing: str, value: str) -> None:
        self.connection.deadline = Deadline(self.server.limits.write_timeout_s)
        self.close_connection = self.close_connection or self.server.is_stopping
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header(framing, value)
        if status == 503:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def handle_expect_100(self) -> bool:
        is_expected = super().handle_expect_100()
        self.wfile.flush()  # send the buffered "100 Continue", for which the client waits
        return is_expected

    def _drain(self) -> None:
        """Read the rest of the body, because a close with unread bytes could lose the answer."""
        self.connection.deadline = Deadline(DRAIN_S)
        end_s = time.monotonic() + DRAIN_S
        while time.monotonic() < end_s and self.rfile.read1(64 * 1024):
            pass

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("http: " + format, *args)


def end(connection: socket.socket, how: int) -> None:
    """Wake the thread that waits for `connection`. Args: how: socket.SHUT_RD or SHUT_RDWR"""
    try:
        connection.shutdown(how)
    except OSError:
        log.debug("connection ended by itself")
