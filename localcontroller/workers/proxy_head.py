"""Reads the head of a request to the proxy: CONNECT, or a request with an absolute URL (RFC 9110,
7.3; RFC 9112, 3.2).

`proxy` calls `parse` with the bytes up to the empty line. The forwarded head of a request with an
absolute URL has the path alone, the Host of that URL whatever the worker gave, and no header that
is for the proxy. A head that does not say for certain where its request ends is refused.
"""

import base64
import binascii
import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from edgeai.errors import EdgeAIError
from localcontroller.workers.proxy_body import Chunked, Framing, Sized

MAX_HEAD_BYTES: Final = 16 * 1024

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_SIZE: Final = re.compile(rb"[0-9]{1,15}\Z")
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
_UPGRADE: Final = b"upgrade"


class MalformedHead(EdgeAIError):
    """The proxy cannot read the head. The text says why, and never quotes a header."""


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
    """Finds the end of the request. None: every byte of the connection belongs to it, after CONNECT
    and in another protocol."""


def is_for_proxy(first: bytes) -> bool:
    """Whether the first bytes of a connection begin a request to the proxy. A request to an API
    begins with a method and "/".
    """
    method, _, target = first[:32].partition(b" ")
    return method == b"CONNECT" or target.lower().startswith(b"http://")


def parse(head: bytes) -> ProxyRequest:
    """Args: head: up to and with the empty line. Raises: MalformedHead"""
    line, *rest = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    try:
        method, url, version = line.split(b" ")
    except ValueError:
        raise MalformedHead("the request line has not three parts") from None
    if not _TOKEN.match(method) or version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise MalformedHead("the request line is not HTTP/1.1")
    headers = [_header(each) for each in rest]
    user, password = _credentials(headers)
    is_connect = method == b"CONNECT"
    host, port, path = _authority(url) if is_connect else _absolute(url)
    forwarded = b"" if is_connect else _forwarded(method, path, _host(host, port), headers)
    is_tunnel = is_connect or bool(_values(headers, _UPGRADE))
    return ProxyRequest(
        is_connect=is_connect,
        host=host,
        port=port,
        user=user,
        password=password,
        forwarded=forwarded,
        framing=None if is_tunnel else _framing(version, headers),
    )


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not _TOKEN.match(name) or b"\0" in value or b"\r" in value or b"\n" in value:
        raise MalformedHead("a header is malformed")
    return name, value.strip(b" \t")


def _values(headers: list[tuple[bytes, bytes]], wanted: bytes) -> list[bytes]:
    """Args: wanted: the name of the header, in lower case"""
    return [value for name, value in headers if name.lower() == wanted]


def _framing(version: bytes, headers: list[tuple[bytes, bytes]]) -> Framing:
    """How the end of the body is found (RFC 9112, 6.3). Raises: MalformedHead"""
    sizes = _values(headers, b"content-length")
    encodings = _values(headers, b"transfer-encoding")
    if encodings:
        if sizes or version != b"HTTP/1.1" or [each.lower() for each in encodings] != [b"chunked"]:
            reason = "a body has Content-Length, or Transfer-Encoding: chunked alone, in HTTP/1.1"
            raise MalformedHead(reason)
        return Chunked()
    if len(sizes) > 1 or not all(_SIZE.match(each) for each in sizes):
        raise MalformedHead("header Content-Length is not one number")
    return Sized(int(sizes[0]) if sizes else 0)


def _credentials(headers: list[tuple[bytes, bytes]]) -> tuple[str, str]:
    """User and password of Proxy-Authorization; ("", "") without the header."""
    given = _values(headers, b"proxy-authorization")
    if len(given) > 1:
        raise MalformedHead("header Proxy-Authorization came more than once")
    scheme, _, encoded = (given[0] if given else b"").partition(b" ")
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
        raise MalformedHead("the URL is malformed") from None
    if parts.scheme != "http" or parts.username is not None:
        raise MalformedHead("the URL must begin with http://HOST; for https use CONNECT")
    query = f"?{parts.query}" if parts.query else ""
    return *_checked(host.encode(), str(port).encode()), f"{parts.path or '/'}{query}".encode()


def _checked(host: bytes, port: bytes) -> tuple[str, int]:
    name = host.decode("ascii", errors="replace").lower()
    is_port = port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535
    if not is_port or len(name) > 253 or not _HOST.match(name):
        raise MalformedHead("the target is not HOST:PORT of a Service")
    return name, int(port)


def _host(host: str, port: int) -> bytes:
    return (host if port == _HTTP_PORT else f"{host}:{port}").encode()


def _forwarded(
    method: bytes, path: bytes, host: bytes, headers: list[tuple[bytes, bytes]]
) -> bytes:
    """The head for the target. Each request has a connection of its own, unless it asks for another
    protocol, for example WebSocket.
    """
    dropped = _FOR_PROXY_ALONE | {
        each.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for each in value.split(b",")
    }
    upgrade = _values(headers, _UPGRADE)
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    if upgrade:
        kept += [(b"Upgrade", upgrade[0]), (b"Connection", b"Upgrade")]
    else:
        kept.append((b"Connection", b"close"))
    first = (b"%s %s HTTP/1.1" % (method, path), b"Host: " + host)
    lines = [*first, *(b"%s: %s" % pair for pair in kept)]
    return b"\r\n".join(lines) + b"\r\n\r\n"
