"""Reads a request to the proxy: CONNECT, or a request with an absolute URL.

Sources: RFC 9110, 7.3; RFC 9112, 3.2. h11 parses. The forwarded head of a request with an absolute
URL has the path alone, the Host of that URL whatever the worker gave, and no header that is for the
proxy. A head that does not say for certain where its request ends is refused.
"""

import base64
import binascii
import re
from typing import Final
from urllib.parse import urlsplit

import h11
import msgspec

from edgeai.errors import EdgeAIError
from localcontroller.http_server import framing_problem

MAX_HEAD_BYTES: Final = 16 * 1024
"""Also of a line between chunks, and of a trailer."""

_HOST: Final = re.compile(r"[0-9a-z]([-.0-9a-z]*[0-9a-z])?\.?\Z")
_FOR_PROXY_ALONE: Final = frozenset(
    {
        b"connection",
        b"host",  # the proxy gives the one of the URL (RFC 9112, 3.2.2)
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"upgrade",
    }
)
_HTTP_PORT: Final = 80
_VERSIONS: Final = (b"1.1", b"1.0")
_OF_BODY: Final = frozenset({b"content-length", b"transfer-encoding"})
_QUOTATION: Final = re.compile(r":? (?:bytearray|b['\"])")  # of a header, which may hold a secret
_UPGRADE: Final = b"upgrade"


class MalformedRequest(EdgeAIError):
    """The proxy cannot read the request. The text says why, and never quotes a header."""


class Framing:
    """Finds the end of a request, so that its connection carries nothing after it.

    The bytes pass on as they came.

    Args: parser: has read the head
    """

    def __init__(self, parser: h11.Connection) -> None:
        self._parser = parser
        self._is_over = False

    def __call__(self, data: bytes) -> bytes:
        """Args: data: the next bytes of the connection. Returns: those that belong to the request.

        Raises: MalformedRequest
        """
        if self._is_over:
            return b""
        if data:  # no data are the end of the connection for h11
            self._parser.receive_data(data)
        try:
            while (event := self._parser.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.EndOfMessage):
                    self._is_over = True
                    after, _ = self._parser.trailing_data
                    return data[: len(data) - len(after)]
        except h11.RemoteProtocolError:
            raise MalformedRequest("the body is not of HTTP/1.1") from None
        return data


class ProxyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the proxy."""

    is_connect: bool
    host: str
    port: int
    user: str
    password: str
    forwarded: bytes
    """The head for the target; b"" for CONNECT."""
    framing: Framing | None
    """Finds the end of the request. None (CONNECT, other protocols): every byte belongs to it."""


def is_for_proxy(first: bytes) -> bool:
    """Whether a connection begins with a request to the proxy: one to an API has "/" as target."""
    method, _, target = first[:32].partition(b" ")
    return method == b"CONNECT" or target.lower().startswith(b"http://")


def parse(head: bytes) -> ProxyRequest:
    """Args: head: up to and with the empty line. Raises: MalformedRequest"""
    if b"\n" in head.replace(b"\r\n", b""):
        raise MalformedRequest("a line of the head does not end with CR LF")
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    parser.receive_data(head)
    try:
        request = parser.next_event()
    except h11.RemoteProtocolError as error:
        reason = _QUOTATION.split(str(error))[0]
        raise MalformedRequest(f"the head is not of HTTP/1.1: {reason}") from None
    if not isinstance(request, h11.Request) or request.http_version not in _VERSIONS:
        raise MalformedRequest("the head is not of HTTP/1.1")
    headers = request.headers.raw_items()
    user, password = _credentials(headers)
    is_connect = request.method == b"CONNECT"
    host, port, path = (_authority if is_connect else _absolute)(request.target)
    is_tunnel = is_connect or bool(_values(headers, _UPGRADE))
    if not is_tunnel and (problem := framing_problem(request)):
        raise MalformedRequest(problem)
    return ProxyRequest(
        is_connect=is_connect,
        host=host,
        port=port,
        user=user,
        password=password,
        forwarded=b""
        if is_connect
        else _forwarded(request.method, path, _host(host, port), headers),
        framing=None if is_tunnel else Framing(parser),
    )


def _values(headers: list[tuple[bytes, bytes]], lowercase_name: bytes) -> list[bytes]:
    """Args: lowercase_name: the name of the header, in lower case"""
    return [value for name, value in headers if name.lower() == lowercase_name]


def _credentials(headers: list[tuple[bytes, bytes]]) -> tuple[str, str]:
    """User and password of Proxy-Authorization; ("", "") without the header."""
    values = _values(headers, b"proxy-authorization")
    if len(values) > 1:
        raise MalformedRequest("header Proxy-Authorization came more than once")
    scheme, _, encoded = (values[0] if values else b"").partition(b" ")
    if scheme.lower() != b"basic":
        return "", ""
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    user, _, password = text.partition(":")
    return user, password


def _authority(url: bytes) -> tuple[str, int, bytes]:
    host, _, port = url.rpartition(b":")
    return *_checked(host, port), b""


def _absolute(url: bytes) -> tuple[str, int, bytes]:
    try:
        parts = urlsplit(url.decode("ascii"))
        host, port = parts.hostname or "", parts.port or _HTTP_PORT
    except ValueError:
        raise MalformedRequest("the URL is malformed") from None
    if parts.scheme != "http" or parts.username is not None:
        raise MalformedRequest("the URL must begin with http://HOST; for https use CONNECT")
    query = f"?{parts.query}" if parts.query else ""
    return *_checked(host.encode(), str(port).encode()), f"{parts.path or '/'}{query}".encode()


def _checked(host: bytes, port: bytes) -> tuple[str, int]:
    name = host.decode("ascii", errors="replace").lower()
    is_port = port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535
    if not is_port or len(name) > 253 or not _HOST.match(name):
        raise MalformedRequest("the target is not HOST:PORT of a Service")
    return name, int(port)


def _host(host: str, port: int) -> bytes:
    return (host if port == _HTTP_PORT else f"{host}:{port}").encode()


def _forwarded(
    method: bytes, path: bytes, host: bytes, headers: list[tuple[bytes, bytes]]
) -> bytes:
    """The head for the target. A connection has one request, unless it changes the protocol."""
    hop_headers = _FOR_PROXY_ALONE | {
        token.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    hop_headers -= _OF_BODY  # the Service needs them to find the end of the request
    upgrade = _values(headers, _UPGRADE)
    own_headers = [(name, value) for name, value in headers if name.lower() not in hop_headers]
    if upgrade:
        own_headers += [(b"Upgrade", upgrade[0]), (b"Connection", b"Upgrade")]
    else:
        own_headers.append((b"Connection", b"close"))
    first = (b"%s %s HTTP/1.1" % (method, path), b"Host: " + host)
    lines = [*first, *(b"%s: %s" % pair for pair in own_headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n"
