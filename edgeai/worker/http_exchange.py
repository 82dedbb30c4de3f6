"""HTTP/1.1 exchanges with one peer over kept-alive connections. Each exchange has a deadline.

CloudClient, Reporter and AggregatorClient use HTTPPeer from any thread. HTTPPeer sends a request
again in one case only: the peer closed the kept-alive connection before the first byte of the
answer. HTTPPeer then uses a new connection and the same deadline. The path of a request never
appears in an error or a log, because the path may contain a secret.
"""

import contextlib
import enum
import http.client
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from edgeai.worker.deadline import Deadline, DeadlineSocket
from edgeai.worker.environment import Address
from edgeai.worker.resolver import Resolver
from edgeai.worker.transport import DIRECT, Route, connect

MAX_IDLE_CONNECTIONS: Final = 4


class Failure(enum.Enum):
    TIMEOUT = enum.auto()
    UNREACHABLE = enum.auto()
    MALFORMED = enum.auto()


class ExchangeError(Exception):
    """The exchange gave no usable answer. `is_sent`: the whole request was sent."""

    def __init__(self, failure: Failure, detail: str, *, is_sent: bool) -> None:
        self.failure, self.detail, self.is_sent = failure, detail, is_sent
        super().__init__(detail)


class Parts(Protocol):
    """A body that is made while it is sent. It may be sent again from its beginning."""

    def __len__(self) -> int:
        """The bytes of all parts."""

    def __iter__(self) -> Iterator[bytes | memoryview]: ...


class Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    body: bytes | Parts = b""
    headers: Mapping[str, str] = {}
    receive: Callable[[http.client.HTTPResponse], None] | None = None
    """Reads the body of an answer 200 while it comes; the Response has none then."""


class Response(msgspec.Struct, frozen=True):
    """`retry_after_s` is 0 without a Retry-After header."""

    status: int
    body: bytes
    retry_after_s: float


class HTTPPeer:
    """Thread-safe. Args: max_response_bytes: a longer body is a MALFORMED answer"""

    def __init__(self, address: Address, *, max_response_bytes: int, route: Route = DIRECT) -> None:
        self._address = address
        self._max_response_bytes = max_response_bytes
        self._route = route
        first_hop = address if route.proxy is None else route.proxy.address
        self._resolver = Resolver(first_hop.host, first_hop.port)
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []

    def exchange(self, request: Request, deadline: Deadline) -> Response:
        """Raises: ExchangeError"""
        connection = self._take()
        if connection is not None:
            with contextlib.suppress(_StaleConnection):
                return self._attempt(connection, request, deadline)
        connection = _Connection(self._address, self._resolver, self._route)
        return self._attempt(connection, request, deadline)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _attempt(self, connection: "_Connection", request: Request, deadline: Deadline) -> Response:
        is_kept = False
        try:
            response, is_kept = connection.exchange(request, deadline, self._max_response_bytes)
        finally:
            if not is_kept:
                connection.close()
        self._put(connection, is_kept=is_kept)
        return response

    def _take(self) -> "_Connection | None":
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _put(self, connection: "_Connection", *, is_kept: bool) -> None:
        with self._lock:
            if is_kept and len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()


class _StaleConnection(Exception):
    """The peer had closed a kept-alive connection before this request reached it."""


class _Connection(http.client.HTTPConnection):
    """One connection, for one thread at a time. The first request opens the connection."""

    def __init__(self, address: Address, resolver: Resolver, route: Route) -> None:
        super().__init__(address.host, address.port)
        self._address = address
        self._resolver = resolver
        self._route = route
        self._socket: DeadlineSocket | None = None  # like self.sock, but kept after closing
        self._deadline = Deadline(0)  # of the current exchange
        self._is_used = False  # at least one exchange was complete
        self._is_sent = False  # the request of this exchange was sent

    def connect(self) -> None:
        self._socket = connect(self._resolver, self._deadline)
        if self._route.proxy is not None:
            try:
                self._route.proxy.tunnel(self._socket, self._address)
            except OSError:
                self._socket.close()
                raise
        self.sock = self._socket

    def exchange(
        self, request: Request, deadline: Deadline, max_response_bytes: int
    ) -> tuple[Response, bool]:
        """The answer, and whether this connection can be used again.

        Raises: ExchangeError, _StaleConnection
        """
        self._arm(deadline)
        before_bytes = self._received_bytes()
        try:
            return self._request(request, max_response_bytes)
        except TimeoutError as error:
            raise self._error(Failure.TIMEOUT, error) from error
        except (OSError, http.client.IncompleteRead) as error:
            if self._is_used and self._received_bytes() == before_bytes:
                raise _StaleConnection from error
            raise self._error(Failure.UNREACHABLE, error) from error
        except (http.client.HTTPException, ValueError) as error:
            raise self._error(Failure.MALFORMED, error) from error

    def _arm(self, deadline: Deadline) -> None:
        self._deadline, self._is_sent = deadline, False
        if self._socket is not None:
            self._socket.deadline = deadline

    def _received_bytes(self) -> int:
        return self._socket.received_bytes if self._socket is not None else 0

    def _request(self, request: Request, max_response_bytes: int) -> tuple[Response, bool]:
        headers = dict(request.headers)
        if not isinstance(request.body, bytes):
            headers["Content-Length"] = str(len(request.body))
        self.request(request.method, request.path, body=request.body, headers=headers)
        self._is_sent = True
        with self.getresponse() as answer:
            if request.receive is not None and answer.status == 200:
                request.receive(answer)
                body, rest = b"", answer.read(1)
            else:
                body, rest = read_body(answer, max_response_bytes), b""
            is_kept = not (answer.will_close or rest)
            response = Response(
                answer.status, body, retry_after_s(answer.headers.get("Retry-After"))
            )
        self._is_used = True
        return response, is_kept

    def _error(self, failure: Failure, error: Exception) -> ExchangeError:
        # Keep only the texts of OSErrors: other errors, such as InvalidURL, quote the path.
        text = str(error) if isinstance(error, OSError) else ""
        detail = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return ExchangeError(failure, detail, is_sent=self._is_sent)


def read_body(answer: http.client.HTTPResponse, max_bytes: int) -> bytes:
    """Raises: HTTPException for a body that is incomplete, or longer than `max_bytes`"""
    if answer.length is not None:
        if answer.length > max_bytes:
            raise http.client.HTTPException(f"body of {answer.length} bytes, limit {max_bytes}")
        return answer.read()  # unlike read(n), read() notices an incomplete body
    body = answer.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise http.client.HTTPException(f"body beyond {max_bytes} bytes")
    return body


def retry_after_s(value: str | None) -> float:
    """The seconds of a Retry-After header, at most 3600; 0: no header, or a date."""
    try:
        wanted_s = float(value or 0)
    except ValueError:
        return 0.0
    return min(wanted_s, 3600.0) if math.isfinite(wanted_s) and wanted_s > 0 else 0.0
