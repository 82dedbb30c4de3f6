"""A blocking client of a Kubernetes API. It returns every answer, error answers too."""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from tests.support.waiting import PATIENCE_S

Object = dict[str, Any]


JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


class Answer(msgspec.Struct, frozen=True):
    """HTTP status, decoded body (text where it is no JSON), headers (of one name: joined)."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def refusal(self) -> tuple[int, str]:
        """HTTP status and the Status object's reason."""
        assert self.body["kind"] == "Status", self.body
        return self.status, self.body.get("reason", "")

    @property
    def causes(self) -> set[tuple[str, str]]:
        """Field and reason of each fault."""
        causes = self.body["details"]["causes"]
        return {(cause["field"], cause["reason"]) for cause in causes}

    def ok(self) -> Object:
        """The body of a request that succeeded."""
        assert self.status in (200, 201, 202), self.body
        body: Object = self.body
        return body


class Stream:
    """A watch: one event a line."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self._response = response

    def read(self) -> Object:
        """The next event. Raises: TimeoutError; AssertionError at the end of the stream"""
        line = self._response.readline()
        assert line, "the watch has ended"
        event: Object = json.loads(line)
        return event

    def rest(self) -> Iterator[Object]:
        """The events until the end of the stream. Raises: TimeoutError"""
        while line := self._response.readline():
            yield json.loads(line)

    def take(self, count: int) -> list[tuple[str, str]]:
        """Type and object name of the next events, bookmarks left out."""
        events: list[tuple[str, str]] = []
        while len(events) < count:
            event = self.read()
            if event["type"] != "BOOKMARK":
                events.append((event["type"], event["object"]["metadata"]["name"]))
        return events


class Client:
    """Args:
    url: like "https://127.0.0.1:41234"
    context: of TLS; None for plain HTTP
    """

    def __init__(self, url: str, *, token: str, context: ssl.SSLContext | None = None) -> None:
        self.url = url
        self.context = context
        self._token = token

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        **query: Any,
    ) -> Answer:
        """Send a request. A body of bytes is sent unchanged, any other body as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        headers = {"Content-Type": content_type, "Accept": accept}
        connection = self._send(method, _target(path, query), data, headers)
        try:
            response = connection.getresponse()
            headers = {
                name: ", ".join(response.headers.get_all(name, ())) for name in response.headers
            }
            return Answer(response.status, _decoded(response.read()), headers)
        finally:
            connection.close()

    @contextmanager
    def watch(self, path: str, *, accept: str = JSON, **query: Any) -> Iterator[Stream]:
        target = _target(path, {"watch": "1", **query})
        connection = self._send("GET", target, None, {"Accept": accept})
        response = connection.getresponse()
        try:
            yield Stream(response)
        finally:
            response.close()
            connection.close()

    def _send(
        self, method: str, target: str, data: Any, headers: Mapping[str, str]
    ) -> http.client.HTTPConnection:
        connection = self._connection()
        given = {"Authorization": f"Bearer {self._token}", **headers}
        connection.request(method, target, body=data, headers=given)
        return connection

    def _connection(self) -> http.client.HTTPConnection:
        address = urlsplit(self.url).netloc
        if self.context is None:
            return http.client.HTTPConnection(address, timeout=PATIENCE_S)
        return http.client.HTTPSConnection(address, timeout=PATIENCE_S, context=self.context)


def _target(path: str, query: Mapping[str, Any]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
