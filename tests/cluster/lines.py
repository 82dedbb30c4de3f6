"""Lines that a test can watch, cut and lay anew: a manager to the API, an edge to the managers."""

import asyncio
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import yaml

from tests.system.cutting_proxy import CuttingProxy

_REQUEST: Final = re.compile(rb"(POST|PUT|PATCH|DELETE) (/\S+) HTTP/1\.1\r\n")


class Write(NamedTuple):
    """A request that changes something, as it passed."""

    method: str
    path: str
    body: bytes
    """As much of it as came with the head."""


class ApiLine(CuttingProxy):
    """HTTP on the near side, the API server's TLS on the far one; keeps the writes that pass."""

    def __init__(self, url: str, *, ca: Path) -> None:
        address = urlsplit(url)
        self._host, self._api_port = address.hostname or "", address.port or 443
        self._tls = ssl.create_default_context(cafile=str(ca))
        super().__init__(lambda: (self._host, self._api_port))
        self.writes: list[Write] = []

    def write_kubeconfig(self, path: Path, *, token: str) -> Path:
        """Of a client on the near side."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._api_port, ssl=self._tls)

    def _passes_on(self, data: bytes) -> None:
        # A client sends a request only after the answer to the last one: a piece begins with it.
        request = _REQUEST.match(data)
        if request is not None:
            method, path = (group.decode() for group in request.groups())
            self.writes.append(Write(method, path, data.partition(b"\r\n\r\n")[2]))


class Road(CuttingProxy):
    """An edge's way to one of the managers: the first, and after each dial the next one."""

    def __init__(self) -> None:
        self._order: Sequence[str] = ()
        self._dials = 0
        super().__init__(self._next)

    def lead_to(self, *addresses: str) -> None:
        """HOST:PORT of the managers, the first of which is dialled first."""
        self._order, self._dials = addresses, 0

    def _next(self) -> tuple[str, int]:
        host, _, port = self._order[self._dials % len(self._order)].rpartition(":")
        self._dials += 1
        return host, int(port)
