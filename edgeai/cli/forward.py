"""A port of this machine that leads to the console of a GlobalManager in a cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from edgeai.api.pod_state import is_ready
from edgeai.api.resources import PODS, Object, ObjectRef
from edgeai.cli.system import GLOBALMANAGER, HTTP_PORT
from edgeai.errors import EdgeAIError
from edgeai.kube.errors import NotFound
from edgeai.kube.user import UserClient
from edgeai.text import printable

HOST: Final = "127.0.0.1"
_SELECTOR: Final = f"app.kubernetes.io/name={GLOBALMANAGER}"
Say = Callable[[str], object]


class Forward:
    """Leads each connection to one pod, and to another one when that pod is gone.

    Only the pod that has made a one-time code knows it, so connections keep their pod.

    Args: say: tells the user what goes wrong meanwhile
    """

    def __init__(self, client: UserClient, namespace: str, say: Say) -> None:
        self._client = client
        self._namespace = namespace
        self._say = say
        self._pod: ObjectRef | None = None
        self._port = HTTP_PORT
        self._last_error = ""
        self._under_way: set[asyncio.Task[None]] = set()

    async def choose(self) -> None:
        """Choose a pod that is ready. Raises: EdgeAIError, ApiError"""
        listing = await self._client.list(PODS, namespace=self._namespace, label_selector=_SELECTOR)
        names = {item["metadata"]["name"]: item for item in listing.items if is_ready(item)}
        if not names:
            count = len(listing.items)
            problem = f"none of {count} pods is ready" if count else "there is no pod"
            raise EdgeAIError(
                f"Deployment {self._namespace}/{GLOBALMANAGER}: {problem}; `edgeai doctor` says "
                "why, and --namespace names another namespace"
            )
        name = min(names)
        self._pod, self._port = ObjectRef(PODS, self._namespace, name), _port_of(names[name])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            await self._carry(reader, writer)
        except (EdgeAIError, ConnectionError) as error:
            if str(error) != self._last_error:
                self._say(printable(str(error)))
            self._last_error = str(error)
        finally:
            self._under_way.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def end(self) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pod = self._pod
        assert pod is not None
        try:
            await self._client.forward(pod, self._port, reader, writer)
        except NotFound:
            if self._pod == pod:  # else another connection has chosen meanwhile
                await self.choose()
            assert self._pod is not None
            await self._client.forward(self._pod, self._port, reader, writer)


@contextlib.asynccontextmanager
async def forwarded(client: UserClient, namespace: str, port: int, say: Say) -> AsyncIterator[str]:
    """The URL of the GlobalManager's REST on this machine, for as long as the `with` lasts.

    Args: port: local port; 0: any free port
    Raises: EdgeAIError
    """
    forward = Forward(client, namespace, say)
    await forward.choose()
    try:
        server = await asyncio.start_server(forward.serve, HOST, port)
    except OSError as error:
        raise EdgeAIError(
            f"port {port} of this machine: {error.strerror}; choose another with --port"
        ) from error
    async with server:
        try:
            yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        finally:
            await forward.end()


def _port_of(pod: Object) -> int:
    """The port that the pod calls http."""
    ports = (port for one in pod["spec"]["containers"] for port in one.get("ports") or ())
    return next(
        (int(port["containerPort"]) for port in ports if port.get("name") == "http"), HTTP_PORT
    )
