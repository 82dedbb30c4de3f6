"""A blocking client of a Kubernetes API over TLS, for tests: one connection a request.

It holds no state, so it works again as soon as a restarted API server does.
"""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from edgeai.cli.api import ApiError, Object, collection_of

DEADLINE_S: Final = 20.0


class Client:
    """Args:
    url: like "https://127.0.0.1:41234"
    ca: PEM file of the CA that signed the server's certificate
    """

    def __init__(self, url: str, *, token: str, ca: Path) -> None:
        self._address = urlsplit(url).netloc
        self._token = token
        self._context = ssl.create_default_context(cafile=str(ca))

    @contextmanager
    def persistent(self) -> Iterator["Client"]:
        """The same client, with one connection for all requests."""
        with closing(self._connection()) as connection:
            yield _Persistent(self, connection)

    def get(self, path: str) -> Object:
        return self.request("GET", path)

    def find(self, path: str) -> Object | None:
        """The object, or None when there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code != http.client.NOT_FOUND:
                raise
            return None

    def list(self, path: str) -> list[Object]:
        items: list[Object] = self.get(path)["items"]
        return items

    def watch(self, path: str, *, since: str, timeout_s: int) -> Iterator[Object]:
        """The events of a collection after the resourceVersion `since`, as they come."""
        query = f"?watch=true&resourceVersion={since}&timeoutSeconds={timeout_s}"
        connection = self._connection()
        try:
            connection.request("GET", path + query, headers=self._headers())
            for line in connection.getresponse():
                yield json.loads(line)
        finally:
            connection.close()

    def create(self, object_: Object, *, dry_run: bool = False) -> Object:
        query = "?dryRun=All" if dry_run else ""
        return self.request("POST", collection_of(object_) + query, object_)

    def create_named(self, kind: str, *names: str) -> None:
        """Objects of v1 without anything but a name: Namespaces or Nodes."""
        for name in names:
            self.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})

    def patch(self, path: str, patch: Mapping[str, Any]) -> Object:
        """JSON merge patch."""
        return self.request("PATCH", path, patch, content_type="application/merge-patch+json")

    def delete(self, path: str, *, propagation: str = "") -> None:
        """Gone already is success. Args: propagation: "Foreground", "Background" or "Orphan" """
        query = f"?propagationPolicy={propagation}" if propagation else ""
        if self.find(path) is not None:
            self.request("DELETE", path + query)

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
    ) -> Object:
        """Raises: ApiError with the API server's own words; OSError when it is away"""
        headers = {**self._headers(), "Content-Type": content_type}
        data = None if body is None else json.dumps(body)
        status, answer = self._exchange(method, path, data, headers)
        if status >= http.client.BAD_REQUEST:
            raise ApiError(method, path, status, answer.get("message", ""))
        return answer

    def is_ready(self) -> bool:
        """Whether /readyz says that the API server can be used."""
        try:
            status, _ = self._text("GET", "/readyz", None, {})
        except (OSError, http.client.HTTPException):
            return False
        return status == http.client.OK

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, timeout=DEADLINE_S, context=self._context)

    def _exchange(
        self, method: str, path: str, data: str | None, headers: Mapping[str, str]
    ) -> tuple[int, Object]:
        status, text = self._text(method, path, data, headers)
        try:
            answer: Object = json.loads(text or b"{}")
        except ValueError:
            answer = {"message": text.decode(errors="replace")}
        return status, answer

    def _text(
        self, method: str, path: str, data: str | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.request(method, path, body=data, headers=dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


class _Persistent(Client):
    def __init__(self, other: Client, connection: http.client.HTTPSConnection) -> None:
        self.__dict__.update(other.__dict__)
        self._persistent = connection

    def _text(
        self, method: str, path: str, data: str | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        self._persistent.request(method, path, body=data, headers=dict(headers))
        response = self._persistent.getresponse()
        return response.status, response.read()
