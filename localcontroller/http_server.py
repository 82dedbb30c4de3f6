"""A small HTTP/1.1 server on h11, for the two APIs of a node. It bounds each wait for a client.

aiohttp's server would take 7 MiB of a LocalController's memory. A request here has a short body or
none, and its answer is whole when it is sent.
"""

import array
import asyncio
import contextlib
import fcntl
import termios
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import urlsplit

import h11
import msgspec

from common.bounded_connections import BoundedConnections, peer_address
from common.logs import get_logger
from common.rate_limited_warning import RateLimitedWarning
from edgeai.connections import Stage
from localcontroller.metrics import Metrics

log = get_logger(__name__)

MAX_BODY_BYTES: Final = 64 * 1024
MAX_HEAD_BYTES: Final = 16 * 1024
"""Also of a piece that the parser gets, so a head has at most twice as much; and of what the chunks
of a body add to its data. h11 reads a piece in 11 ms at worst."""
MAX_CONNECTIONS: Final = 512  # twice the requests that the worker API admits at a time
BACKLOG: Final = 128  # connections that wait until the server accepts them
IDLE_S: Final = 30.0
LINGER_S: Final = 1.0
STOP_S: Final = 1.0
_VERSIONS: Final = (b"1.1", b"1.0")
JSON: Final = "application/json; charset=utf-8"


class BodyTooLarge(Exception):
    """The body of a request is longer than MAX_BODY_BYTES."""


class BrokenBody(Exception):
    """The connection ended before the end of the body, or the body is not of HTTP/1.1."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one request.

    is_last: end the connection after it, because the rest of the request is not read
    """

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_last: bool = False


def framing_problem(head: h11.Request) -> str:
    """Why the end of the request is not certain, because h11 reads it and another reader may read
    it otherwise (RFC 9112, 6.3); "" when it is certain.
    """
    names = {name for name, _ in head.headers}
    if b"transfer-encoding" not in names:
        return ""
    if b"content-length" in names or head.http_version != b"1.1":
        return "a body has Content-Length, or Transfer-Encoding: chunked alone, in HTTP/1.1"
    return ""


class Request:
    """One request. `path` is without query, and as it came: with its percent-encoding."""

    def __init__(self, connection: "HttpConnection", head: h11.Request) -> None:
        self.method = head.method.decode("ascii")
        self.path = _path(head.target)
        self._connection = connection
        self._body = bytearray()
        self._is_whole = asyncio.Event()
        self._problem: Exception | None = None

    @property
    def address(self) -> str:
        """The IP address of the client; "" when the client has gone."""
        return self._connection.address

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that have not reached the client's machine; 0 when it has gone."""
        return self._connection.unsent_bytes

    async def body(self) -> bytes:
        """The whole body. Raises: BodyTooLarge, BrokenBody"""
        self._connection.continue_body()
        await self._is_whole.wait()
        if self._problem is not None:
            raise self._problem
        return bytes(self._body)

    def abort(self) -> None:
        """End the connection without an answer."""
        self._connection.abort()

    def add(self, data: bytes) -> None:
        """The next bytes of the body. What is beyond MAX_BODY_BYTES takes no memory."""
        if self._problem is None and len(self._body) + len(data) > MAX_BODY_BYTES:
            self.end(BodyTooLarge(f"a body has at most {MAX_BODY_BYTES} bytes"))
            self._body.clear()
        elif self._problem is None:
            self._body += data

    def end(self, problem: Exception | None = None) -> None:
        """The body is whole, or `problem` says why it never will be. The first call counts."""
        if not self._is_whole.is_set():
            self._problem = problem
            self._is_whole.set()


def _path(target: bytes) -> str:
    text = target.decode("ascii", errors="replace")
    if text.startswith("/"):
        return text.partition("?")[0]
    try:
        return urlsplit(text).path
    except ValueError:
        return ""


Handler = Callable[[Request], Awaitable[Answer]]


class Place:
    """The place of a diverted connection among the bounded connections. Another connection may
    take the place while the diverted one has it: then the diverted one is aborted.
    """

    def __init__(self, connection: "HttpConnection", connections: BoundedConnections) -> None:
        self._connection, self._connections = connection, connections

    def leave(self) -> None:
        """Free the place, because the connection has ended, or counts elsewhere from now on."""
        self._connections.remove(self._connection)


Divert = Callable[[bytes, Place], asyncio.Protocol | None]
"""Gets the first bytes of a connection. Returns: the protocol that takes the connection over and
calls `leave` of its place; None: the connection is for the handler."""


class HttpServer:
    """Listens on one address, and answers each request with `handler`.

    Args:
        api: name of the API in metrics and logs
        divert: takes the connections that are not for the handler
        idle_s: for a connection without a request, with an incomplete request head, or whose client
            does not read the answer
        linger_s: for the rest of a body after an early answer, so that the client can read the
            answer
        stop_s: for requests in progress when the process ends
        max_connections: most open connections; a new one then takes the place of another one
    """

    def __init__(
        self,
        handler: Handler,
        metrics: Metrics,
        *,
        api: str,
        divert: Divert | None = None,
        idle_s: float = IDLE_S,
        linger_s: float = LINGER_S,
        stop_s: float = STOP_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.connections = BoundedConnections(
            max_connections, server=api, cuts=metrics.connections_cut.labels(api=api)
        )
        metrics.connections.labels(api=api).set_function(lambda: len(self.connections))
        self.divert, self.idle_s, self.linger_s = divert, idle_s, linger_s
        self._handler, self._api, self._stop_s = handler, api, stop_s
        self._malformed = RateLimitedWarning("malformed request")
        self.open_connections: set[HttpConnection] = set()
        self._answers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Begin to listen. Returns: the address. Raises: OSError, UnicodeError"""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(self), host, port, backlog=BACKLOG
        )
        bound_host, bound_port, *_ = self._server.sockets[0].getsockname()
        return str(bound_host), int(bound_port)

    async def stop(self) -> None:
        """Accept no more connections, and give the requests in progress `stop_s`."""
        if self._server is not None:
            self._server.close()
        if self._answers:
            await asyncio.wait(self._answers, timeout=self._stop_s)
        for connection in list(self.open_connections):
            connection.close()
        for answer in list(self._answers):
            answer.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)

    def begin(self, connection: "HttpConnection", request: Request) -> None:
        """Answer the request. The handler goes on when the client leaves."""
        task = asyncio.create_task(self._answer(connection, request), name=f"{self._api} request")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, connection: "HttpConnection", request: Request) -> None:
        try:
            answer = await self._handler(request)
        except Exception:  # a fault in one request must not end the others
            log.exception("request failed", api=self._api)
            answer = Answer(status=HTTPStatus.INTERNAL_SERVER_ERROR, is_last=True)
        connection.answer(answer)

    def warn(self, status: int) -> None:
        """Tell of a malformed request without its text, which may hold a secret."""
        self._malformed.log(server=self._api, status=status)


class HttpConnection(asyncio.Protocol):
    """The connection of one client: reads its requests, one after another.

    While a request is answered, or the client does not read its answers, nothing more is read than
    what has come already: one piece of the event loop, 256 KiB.
    """

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unparsed = bytearray()
        self._request: Request | None = None
        self._request_bytes = 0  # of the head and the body, as they came
        self._has_room = False
        self._may_divert = server.divert is not None
        self._is_paused = False  # the next request waits for an answer, or for the client to read
        self._is_full = False  # the client does not read
        self._is_ending = False  # what still comes is read only so that the client reads the answer

    @property
    def address(self) -> str:
        return peer_address(self._transport)

    @property
    def unsent_bytes(self) -> int:
        if self._transport is None:
            return 0
        # The kernel keeps megabytes for a client that does not read.
        queued = array.array("i", [0])
        with contextlib.suppress(OSError, ValueError):
            socket_ = self._transport.get_extra_info("socket")
            fcntl.ioctl(socket_.fileno(), termios.TIOCOUTQ, queued)
        return self._transport.get_write_buffer_size() + queued[0]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._has_room = self._server.connections.add(self, transport)
        if not self._has_room:
            self._transport.abort()
            return
        self._server.open_connections.add(self)
        self._end_after(self._server.idle_s)

    def data_received(self, data: bytes) -> None:
        if self._has_room and not self._is_ending and not self._is_diverted(data):
            self._unparsed += data
            self._parse()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._request is None and {*self._parser.states.values()} == {h11.DONE}:
            self._read_next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._cancel_timer()
        self._unparsed.clear()
        if self._has_room:
            self._server.open_connections.discard(self)
            self._server.connections.remove(self)
        if self._request is not None:
            self._request.end(BrokenBody("the connection ended before the end of the body"))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End the connection after what waits to be sent."""
        if self._transport is not None:
            self._transport.close()

    def continue_body(self) -> None:
        """Ask for the body, if the client waits for that before it sends the body."""
        if self._transport is not None and self._parser.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
            self._transport.write(self._parser.send(go_on) or b"")

    def answer(self, answer: Answer) -> None:
        """Send the answer to the request, and read on: the rest of its body, or the next one."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(self._encode(answer))
        self._server.connections.set_stage(self, Stage.IDLE)
        self._request = None
        if self._parser.our_state is not h11.DONE:
            self._end()
        elif self._parser.their_state is h11.SEND_BODY:
            self._linger(self._transport)
        else:
            self._read_next()

    def _encode(self, answer: Answer) -> bytes:
        headers = {
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.body)),
            "Date": formatdate(usegmt=True),
            **answer.headers,
        }
        if answer.is_last or self._parser.their_state is h11.ERROR:
            headers["Connection"] = "close"
        head = h11.Response(
            status_code=answer.status,
            headers=[(name.encode(), value.encode()) for name, value in headers.items()],
            reason=HTTPStatus(answer.status).phrase.encode(),
        )
        has_body = self._request is None or self._request.method != "HEAD"
        parts = [head, h11.Data(data=answer.body if has_body else b""), h11.EndOfMessage()]
        return b"".join(self._parser.send(part) or b"" for part in parts)

    def _parse(self) -> None:
        """Give what has come to the parser, in pieces, until the next request has to wait."""
        while self._unparsed and not self._is_paused and not self._is_ending:
            if self._parser.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._pause()  # until the request before is answered
                return
            if self._parser.their_state is h11.IDLE and not self._request_bytes:
                # RFC 9112, 2.2: some clients send an empty line after a body.
                del self._unparsed[: len(self._unparsed) - len(self._unparsed.lstrip(b"\r\n"))]
            piece = bytes(self._unparsed[:MAX_HEAD_BYTES])
            del self._unparsed[:MAX_HEAD_BYTES]
            self._request_bytes += len(piece)
            if piece and self._request_bytes > MAX_BODY_BYTES + 3 * MAX_HEAD_BYTES:
                self._pass_over()
            elif piece:
                self._parser.receive_data(piece)
                self._take_events()

    def _take_events(self) -> None:
        try:
            while not self._is_ending and (event := self._parser.next_event()) is not h11.NEED_DATA:
                match event:
                    case h11.Request():
                        self._begin(event)
                    case h11.Data() if self._request is not None:
                        self._request.add(bytes(event.data))
                    case h11.EndOfMessage() if self._request is not None:
                        self._request.end()
                    case h11.EndOfMessage():  # the rest of a body that is answered already
                        self._read_next()
                        return
                    case h11.PAUSED:
                        return
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def _begin(self, head: h11.Request) -> None:
        self._cancel_timer()
        status = 0
        if head.http_version not in _VERSIONS:
            status = HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
        elif framing_problem(head):
            status = HTTPStatus.BAD_REQUEST
        if status:
            self._server.warn(status)
            self.answer(Answer(status=status, is_last=True))
            return
        self._request = Request(self, head)
        self._server.connections.set_stage(self, Stage.READING)
        self._server.begin(self, self._request)

    def _pass_over(self) -> None:
        """The request is too long. Read no more of it, until it is answered."""
        if self._request is None:  # it is answered
            self._end()
            return
        self._request.end(BodyTooLarge(f"a body has at most {MAX_BODY_BYTES} bytes"))
        self._pause()

    def _read_next(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._end_after(self._server.idle_s)
        if self._is_full:
            self._pause()
            return
        self._parser.start_next_cycle()
        self._request_bytes = len(self._parser.trailing_data[0])
        self._is_paused = False
        self._transport.resume_reading()
        self._take_events()
        self._parse()

    def _pause(self) -> None:
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Answer what is no HTTP/1.1, and end. A handler that waits for the body answers itself."""
        self._server.warn(error.error_status_hint)
        self._unparsed.clear()
        if self._request is not None:
            self._request.end(BrokenBody("the body is not of HTTP/1.1"))
            self._pause()
        elif self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE) and self._transport:
            refusal = Answer(status=error.error_status_hint, is_last=True)
            self._transport.write(self._encode(refusal))
            self._end()
        else:
            self.abort()

    def _end(self) -> None:
        """End the connection after the client has read the answer: what it still sends is read for
        a while, because an end with unread bytes could lose the answer.
        """
        self._is_ending = True
        self._unparsed.clear()
        transport = self._transport
        if transport is None:
            return
        self._linger(transport)
        transport.resume_reading()
        with contextlib.suppress(OSError, RuntimeError):
            transport.write_eof()

    def _linger(self, transport: asyncio.Transport) -> None:
        """Give the client time to read the answer, and to end what it sends."""
        is_sent = not transport.get_write_buffer_size()
        self._end_after(self._server.linger_s if is_sent else self._server.idle_s)

    def _is_diverted(self, first: bytes) -> bool:
        divert, self._may_divert = self._server.divert if self._may_divert else None, False
        transport = self._transport
        if divert is None or transport is None:
            return False
        other = divert(first, Place(self, self._server.connections))
        if other is None:
            return False
        self._cancel_timer()
        self._server.open_connections.discard(self)
        self._server.connections.set_stage(self, Stage.READING)
        other.connection_made(transport)
        transport.set_protocol(other)
        other.data_received(first)
        return True

    def _end_after(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end_late)

    def _end_late(self) -> None:
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size():
            self._transport.abort()  # the client does not read
        else:
            self._transport.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
