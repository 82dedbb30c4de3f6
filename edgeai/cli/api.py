"""A small blocking client of the Kubernetes API, for the `edgeai` command.

The client reads the kubeconfig of the local cluster and speaks plain HTTP/JSON. `edgeai.kube` is
the client of the GlobalManager, and of commands for a real cluster. Requests are few.
"""

import contextlib
import http.client
import json
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from edgeai.errors import EdgeAIError

Object = dict[str, Any]
DEADLINE_S: Final = 10.0


class ApiError(EdgeAIError):
    """The API refused a request. `code` is the HTTP status."""

    def __init__(self, method: str, path: str, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"{method} {path}: {code} {message}")


class ApiUnreachable(EdgeAIError):
    def __init__(self, url: str, problem: str) -> None:
        # The path of a local cluster's URL is the token, so the message must not show the path.
        server = urllib.parse.urlsplit(url)._replace(path="", query="").geturl()
        super().__init__(f"Kubernetes API at {server}: {problem}; is it running? (edgeai up)")


class Api:
    """Sends requests to one API server. Args: url: like "http://127.0.0.1:41234" """

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self._address = urllib.parse.urlsplit(url).netloc

    @classmethod
    def from_kubeconfig(cls, path: Path) -> "Api":
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        server: str = config["clusters"][0]["cluster"]["server"]
        return cls(server, config["users"][0]["user"]["token"])

    def get(self, path: str) -> Object:
        return self.request("GET", path)

    def find(self, path: str) -> Object | None:
        try:
            return self.get(path)
        except ApiError as error:
            if error.code != http.client.NOT_FOUND:
                raise
            return None

    def create(self, object_: Object) -> Object:
        return self.request("POST", collection_of(object_), object_)

    def apply(self, object_: Object) -> Object:
        """Create the object, or replace the existing object with the same name."""
        path = path_of(object_)
        current = self.find(path)
        if current is None:
            return self.create(object_)
        version = {"resourceVersion": current["metadata"]["resourceVersion"]}
        metadata = {**object_["metadata"], **version}
        return self.request("PUT", path, {**object_, "metadata": metadata})

    def patch(self, path: str, patch: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch to the object at `path`. Returns: the new object"""
        return self.request("PATCH", path, patch, content_type="application/merge-patch+json")

    def delete(self, path: str, *, propagation: str = "") -> None:
        """Delete the object at `path`. Do nothing if there is no such object.

        Args:
            propagation: "Foreground", "Background" or "Orphan"; "" for the default of the API
        """
        query = f"?propagationPolicy={propagation}" if propagation else ""
        try:
            self.request("DELETE", path + query)
        except ApiError as error:
            if error.code != http.client.NOT_FOUND:
                raise

    def follow_log(self, namespace: str, pod: str, *, silence_s: float) -> Iterator[str]:
        """Yield all lines of the pod's log, and each new line, until the pod's container ends.

        Raises: ApiError; TimeoutError when the log gets no line for `silence_s` seconds
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log?follow=true"
        with self._sent("GET", path, timeout_s=silence_s) as response:
            if response.status != http.client.OK:
                raise ApiError("GET", path, response.status, response.read(1000).decode())
            while line := response.readline():
                yield line.decode(errors="replace").rstrip("\n")

    def log(self, namespace: str, pod: str) -> list[str]:
        """All lines of the log of the pod's container; [] if no container of the pod has run."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        with self._reachable(), self._sent("GET", path) as response:
            body = response.read().decode(errors="replace")
        return body.splitlines() if response.status == http.client.OK else []

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
    ) -> Object:
        """Raises: ApiError with the words of the API server; ApiUnreachable"""
        data = None if body is None else json.dumps(body)
        with self._reachable(), self._sent(method, path, data, content_type) as response:
            answer: Object = json.loads(response.read() or b"{}")
        if response.status >= http.client.BAD_REQUEST:
            raise ApiError(method, path, response.status, answer.get("message", ""))
        return answer

    @contextlib.contextmanager
    def _sent(
        self,
        method: str,
        path: str,
        data: str | bytes | None = None,
        content_type: str = "application/json",
        *,
        accept: str = "application/json",
        timeout_s: float = DEADLINE_S,
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to a request. Raises: OSError, HTTPException"""
        headers = {"Accept": accept, "Content-Type": content_type}
        headers["Authorization"] = f"Bearer {self.token}"
        with self._connected(timeout_s) as connection:
            connection.request(method, path, body=data, headers=headers)
            yield connection.getresponse()

    def _connected(
        self, timeout_s: float
    ) -> contextlib.AbstractContextManager[http.client.HTTPConnection]:
        return contextlib.closing(http.client.HTTPConnection(self._address, timeout=timeout_s))

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[None]:
        """Raises: ApiUnreachable for an API that does not answer as an API does"""
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiUnreachable(self.url, str(error) or type(error).__name__) from error


_CLUSTER_SCOPED: Final = frozenset({"Namespace", "Node", "CustomResourceDefinition"})


def collection_of(object_: Object) -> str:
    """Its URL path. Without metadata.namespace, the namespace is "default"."""
    group = object_["apiVersion"]
    kind: str = object_["kind"]
    plural = kind.lower() + "s"  # correct for every kind that the command handles
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    if kind in _CLUSTER_SCOPED:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{object_['metadata'].get('namespace', 'default')}/{plural}"


def path_of(object_: Object) -> str:
    return f"{collection_of(object_)}/{object_['metadata']['name']}"


class TimedOut(EdgeAIError):
    def __init__(self, event: str, timeout_s: float, last: str) -> None:
        super().__init__(f"{event} did not happen within {timeout_s:g} s; last seen: {last}")


def wait_until(
    event: str, is_done: Callable[[], str], *, timeout_s: float, poll_s: float = 0.1
) -> None:
    """Call `is_done` again and again, until it returns "".

    Args:
        event: that the caller waits for, for the error's text
        is_done: returns "" or a text that says what is still missing
    Raises: TimedOut, whose text has `event` and the last result of `is_done`
    """
    deadline = time.monotonic() + timeout_s
    while problem := is_done():
        if time.monotonic() >= deadline:
            raise TimedOut(event, timeout_s, problem)
        time.sleep(poll_s)
