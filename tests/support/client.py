"""A blocking client of a Kubernetes API, for tests: one connection a request.

It holds no state, so it works again as soon as a restarted API server does. A call of the client
returns every answer, error answers too; its methods raise ApiError instead.
"""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from edgeai.cli.api import Api, ApiError, Object, collection_of

DEADLINE_S: Final = 20.0
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


class Client(Api):
    """The command's client, which returns whole answers too, watches, and speaks TLS.

    Args:
        url: like "https://127.0.0.1:41234"
        context: of TLS; None for plain HTTP
        deadline_s: of an answer, and of the next event of a watch
    """

    def __init__(
        self,
        url: str,
        *,
        token: str,
        context: ssl.SSLContext | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        super().__init__(url, token)
        self.context = context
        self._deadline_s = deadline_s

    # ---- objects -------------------------------------------------------------------------------

    def list(self, path: str) -> list[Object]:
        items: list[Object] = self.get(path)["items"]
        return items

    def create(self, object_: Object, *, dry_run: bool = False) -> Object:
        query = "?dryRun=All" if dry_run else ""
        return self.request("POST", collection_of(object_) + query, object_)

    def create_named(self, kind: str, *names: str) -> None:
        """Objects of v1 without anything but a name: Namespaces or Nodes."""
        for name in names:
            self.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = JSON,
    ) -> Object:
        """Raises: ApiError with the API server's own words; OSError when it is away"""
        answer = self(method, path, body, content_type=content_type)
        content: Object = answer.body if isinstance(answer.body, dict) else {"message": answer.body}
        if answer.status >= http.client.BAD_REQUEST:
            raise ApiError(method, path, answer.status, content.get("message", ""))
        return content

    def account_token(self, namespace: str, account: str, **spec: Any) -> str:
        """Of a ServiceAccount, for an hour. Args: spec: of the TokenRequest"""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600, **spec},
        }
        token: str = self.request("POST", path, request)["status"]["token"]
        return token

    def is_ready(self) -> bool:
        """Whether /readyz says that the API server can be used."""
        try:
            return self("GET", "/readyz").status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    # ---- requests ------------------------------------------------------------------------------

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
        target, wait_s = _target(path, query), self._deadline_s
        with self._sent(
            method, target, data, content_type, accept=accept, timeout_s=wait_s
        ) as response:
            headers = {
                name: ", ".join(response.headers.get_all(name, ())) for name in response.headers
            }
            return Answer(response.status, _decoded(response.read()), headers)

    @contextmanager
    def watch(self, path: str, *, accept: str = JSON, **query: Any) -> Iterator[Stream]:
        target = _target(path, {"watch": "1", **query})
        stream = self._sent("GET", target, accept=accept, timeout_s=self._deadline_s)
        with stream as response, closing(response):
            yield Stream(response)

    @contextmanager
    def persistent(self) -> Iterator["Client"]:
        """The same client, with one connection for all requests."""
        with self._connected(self._deadline_s) as connection:
            yield _PersistentClient(self, connection)

    def _connected(self, timeout_s: float) -> AbstractContextManager[http.client.HTTPConnection]:
        if self.context is None:
            return super()._connected(timeout_s)
        address, tls = urlsplit(self.url).netloc, self.context
        return closing(http.client.HTTPSConnection(address, timeout=timeout_s, context=tls))


class _PersistentClient(Client):
    def __init__(self, other: Client, connection: http.client.HTTPConnection) -> None:
        self.__dict__.update(other.__dict__)
        self._connection = connection

    def _connected(self, timeout_s: float) -> AbstractContextManager[http.client.HTTPConnection]:
        return nullcontext(self._connection)


def _target(path: str, query: Mapping[str, Any]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
