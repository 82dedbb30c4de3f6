"""Opens the content of Models: over the network of the node, or through the relay.

A server that is a Service of the Model's namespace is reached through the relay, because a node
needs no way into the cluster but the one to the GlobalManager.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

from common.service_urls import service_address
from edgeai.ids import TaskKey, Uid, WorkerName, parse_task_key
from localcontroller.hooks.addresses import parse_networks
from localcontroller.hooks.keys import KeyFiles
from localcontroller.hooks.sources import (
    HTTP_CLIENT,
    S3_CLIENT,
    ContentSource,
    Route,
    SourceError,
    SourceOptions,
    SourceThreads,
    SourceTimeouts,
    load,
    scheme_of,
)

TOTAL_S: Final = 30 * 86400.0  # of one download: only silence ends it


class ContentRequest(NamedTuple):
    """What a Model says of its content, and who asks: `worker` is the node itself."""

    key: TaskKey
    uid: Uid
    worker: WorkerName
    url: str
    credential: str

    @property
    def namespace(self) -> str:
        return parse_task_key(self.key).namespace


class RelayPass(Protocol):
    """The right of the node itself to use its proxy."""

    @property
    def host(self) -> str:
        """The address of the proxy."""

    @property
    def proxy_url(self) -> str:
        """With user and password."""

    @property
    def problem(self) -> str:
        """Why the relay has refused a stream; "" when it has refused none."""


class RelayProxy(Protocol):
    def passing(
        self, key: TaskKey, uid: Uid, worker: WorkerName
    ) -> contextlib.AbstractContextManager[RelayPass]:
        """Let the node reach what the assignment of its own worker names."""


class ContentSources:
    def __init__(
        self,
        options: SourceOptions,
        proxy: RelayProxy,
        threads: SourceThreads,
        timeouts: SourceTimeouts,
    ) -> None:
        self._networks = options.networks
        self._proxy = proxy
        self._threads = threads
        self._timeouts = msgspec.structs.replace(timeouts, total_s=TOTAL_S)
        self._credentials_dir = options.credentials_dir

    @contextlib.asynccontextmanager
    async def opened(self, request: ContentRequest) -> AsyncIterator[ContentSource]:
        """Raises: SourceError"""
        url, scheme = request.url, scheme_of(request.url)
        if scheme in ("http", "https"):
            await load(HTTP_CLIENT)
            from localcontroller.hooks.web import WebContent

            with self._route(request, url) as route:
                yield WebContent(url, self._timeouts, route)
        elif scheme == "s3":
            await load(S3_CLIENT)
            from localcontroller.hooks.bucket import BucketContent, keys_from

            files = KeyFiles(self._credentials_dir, request.namespace, request.credential)
            keys = await keys_from(files, url, self._threads, self._timeouts.silence_s)
            with self._route(request, keys.endpoint) as route:
                yield BucketContent(url, self._timeouts, keys, route)
        else:
            raise SourceError("InvalidURL", f"spec.url: scheme {scheme[:64]!r} cannot be fetched")

    @contextlib.contextmanager
    def _route(self, request: ContentRequest, server: str) -> Iterator[Route]:
        if service_address(server, request.namespace) is None:
            yield Route(self._networks)
            return
        with self._proxy.passing(request.key, request.uid, request.worker) as pass_:
            try:
                # Redirections lead to the proxy, too, and through it to this Service alone.
                yield Route(parse_networks([pass_.host]), pass_.proxy_url)
            except SourceError as error:
                if not pass_.problem:
                    raise
                text = f"spec.url: through the relay: {pass_.problem}"
                raise SourceError("Unavailable", text) from error
