"""Gives every Service a loopback address and forwards its connections to ready pods.

`cluster` starts the proxy. For each Service with a cluster IP the proxy listens on clusterIP:port.
The proxy forwards a connection to podIP:targetPort of the next ready pod that the selector matches,
round robin. Without a ready pod the proxy closes a connection at once. The proxy also writes the
Endpoints of each Service with a selector. A headless Service (clusterIP None) has Endpoints and no
listener; `pod_addresses` gives it an address. The proxy supports TCP only.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence

import msgspec

from common.logs import get_logger
from common.tasks import TaskGroup
from localcluster.controllers.events import EventRecorder
from localcluster.controllers.workqueue import WorkQueue
from localcluster.network.addresses import AddressPool
from localcluster.objects import errors
from localcluster.objects.pods import is_ended, is_ready, is_selected
from localcluster.objects.resources import ENDPOINTS, PODS, SERVICES, Object
from localcluster.objects.store import Change, Store

log = get_logger(__name__)

BUFFER_BYTES = 64 << 10
CONNECT_TIMEOUT_S = 5.0
FLUSH_TIMEOUT_S = 30.0
LISTEN_RETRY_S = 2.0

_Key = tuple[str, str]  # namespace and name of an object
_Address = tuple[str, int]


class ServicePort(msgspec.Struct, frozen=True):
    """One TCP port of a Service, and the addresses of its ready pods."""

    name: str
    port: int
    backends: tuple[_Address, ...]


def service_ports(service: Object, pods: Sequence[Object]) -> list[ServicePort]:
    """The TCP ports of a Service. Pure.

    Args:
        pods: all pods of the cluster
    """
    ready = [pod for pod in pods if is_selected(pod, service) and _is_serving(pod)]
    ports = []
    for port in service["spec"].get("ports") or []:
        if port.get("protocol", "TCP") != "TCP":
            continue
        backends = [
            (str(pod["status"]["podIP"]), number)
            for pod in ready
            if (number := target_port(port, pod)) is not None
        ]
        ports.append(ServicePort(str(port.get("name", "")), int(port["port"]), tuple(backends)))
    return ports


def target_port(port: Object, pod: Object) -> int | None:
    """The number of the pod's port that a Service port targets.

    Returns: None if the pod has no such port
    """
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    for container in pod["spec"]["containers"]:
        for candidate in container.get("ports") or []:
            if candidate.get("name") == target:
                return int(candidate["containerPort"])
    return int(target) if target.isdigit() else None


def endpoints(service: Object, pods: Sequence[Object]) -> Object:
    """The Endpoints of a Service. Pods with the same port numbers share a subset. Pure."""
    metadata = service["metadata"]
    subsets: dict[bytes, Object] = {}
    for pod in pods:
        status = pod.get("status") or {}
        if not is_selected(pod, service) or is_ended(pod) or not status.get("podIP"):
            continue
        ports = _endpoint_ports(service, pod)
        subset = subsets.setdefault(msgspec.json.encode(ports), {"ports": ports})
        field = "addresses" if _is_serving(pod) else "notReadyAddresses"
        subset.setdefault(field, []).append(_endpoint_address(pod))
    return {
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": metadata.get("labels") or {},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "subsets": [subsets[ports] for ports in sorted(subsets)],
    }


def _endpoint_ports(service: Object, pod: Object) -> list[Object]:
    return [
        ({"name": port["name"]} if port.get("name") else {})
        | {"port": number, "protocol": port.get("protocol", "TCP")}
        for port in service["spec"].get("ports") or []
        if (number := target_port(port, pod)) is not None
    ]


def _endpoint_address(pod: Object) -> Object:
    metadata = pod["metadata"]
    names = {field: metadata[field] for field in ("name", "namespace", "uid")}
    return {
        "ip": pod["status"]["podIP"],
        "nodeName": pod["spec"]["nodeName"],
        "targetRef": {"kind": "Pod"} | names,
    }


def _is_serving(pod: Object) -> bool:
    return is_ready(pod) and "deletionTimestamp" not in pod["metadata"]


class ServiceProxy:
    """Listens for all Services and forwards their connections.

    Args:
        addresses: pool of cluster IPs
    """

    def __init__(self, store: Store, addresses: AddressPool) -> None:
        self._store = store
        self._addresses = addresses
        self._events = EventRecorder(store, component="service-proxy")
        self._queue: WorkQueue[_Key] = WorkQueue("service proxy")
        self._listeners: dict[_Key, dict[int, _Listener]] = {}  # Service -> port -> listener
        self._taken: dict[_Key, str] = {}  # Service -> cluster IP
        self._former: dict[str, _Key] = {}  # cluster IP -> the last Service with this IP
        # Why a Service has no listener; "" for a Service with listeners.
        self._failures: dict[_Key, str] = {}

    async def run(self) -> None:
        """Run the proxy until cancelled. Then close every connection."""
        unlisten = self._store.listen(self._changed)
        try:
            # Services with an address come first, so that no other Service takes their addresses.
            services = self._store.list(SERVICES).items
            for service in sorted(services, key=lambda each: not each["spec"].get("clusterIP")):
                self._queue.add(_key(service))
            await self._queue.run(self._reconcile)
        finally:
            unlisten()
            for key in tuple(self._listeners):
                await self._close_all(key)

    def _changed(self, change: Change) -> None:
        if change.resource is SERVICES:
            self._queue.add(_key(change.object))
        elif change.resource is PODS:
            for pod in filter(None, (change.previous, change.object)):
                self._add_services_of(pod)

    def _add_services_of(self, pod: Object) -> None:
        for service in self._store.list(SERVICES, namespace=pod["metadata"]["namespace"]).items:
            if is_selected(pod, service):
                self._queue.add(_key(service))

    async def _reconcile(self, key: _Key) -> float | None:
        try:
            service = self._store.get(SERVICES, *key)
        except errors.NotFound:
            await self._close_all(key)
            self._release(key)
            self._failures.pop(key, None)
            return None
        pods = self._store.list(PODS, namespace=key[0]).items
        address = self._cluster_ip(key, service)
        self._write_endpoints(service, pods)
        if not address:
            await self._close_all(key)
            return None
        return await self._listen(key, service, address, service_ports(service, pods))

    def _cluster_ip(self, key: _Key, service: Object) -> str:
        """The cluster IP of a Service. The proxy allocates a missing cluster IP now.

        Returns: "" for a headless Service and for type ExternalName
        """
        spec = service["spec"]
        wanted = spec.get("clusterIP") or ""
        if spec.get("type") == "ExternalName" or wanted == "None":
            self._release(key)
            return ""
        taken = self._taken.get(key)
        if taken and taken == wanted:
            return taken
        self._release(key)
        address = wanted if self._addresses.reserve(wanted) else self._address_for(key)
        self._taken[key] = address
        if address != wanted:
            spec |= {"clusterIP": address, "clusterIPs": [address]}
            self._store.update(SERVICES, service)
        return address

    def _address_for(self, key: _Key) -> str:
        """The last address of a Service with this name, if the address is free; else a new address.

        Running processes know a Service only by its address. So a Service that a user deletes by
        mistake and creates again must keep its address.
        """
        former = next((address for address, owner in self._former.items() if owner == key), "")
        return former if self._addresses.reserve(former) else self._addresses.take()

    def _release(self, key: _Key) -> None:
        if address := self._taken.pop(key, None):
            self._former[address] = key
            self._addresses.release(address)

    def _write_endpoints(self, service: Object, pods: Sequence[Object]) -> None:
        """Write the Endpoints of a Service with a selector.

        For a Service without a selector, a user writes the Endpoints.
        """
        if not service["spec"].get("selector"):
            return
        wanted = endpoints(service, pods)
        try:
            present = self._store.get(ENDPOINTS, *_key(service))
        except errors.NotFound:
            self._store.create(ENDPOINTS, wanted)
            return
        metadata = present["metadata"] | wanted["metadata"]
        self._store.update(
            ENDPOINTS, present | {"metadata": metadata, "subsets": wanted["subsets"]}
        )

    async def _listen(
        self, key: _Key, service: Object, address: str, ports: Sequence[ServicePort]
    ) -> float | None:
        """Open and close listeners, so that each port of a Service has a listener.

        Returns: seconds until a retry; None if all listeners are open
        """
        listeners = self._listeners.setdefault(key, {})
        wanted = {port.port: port for port in ports}
        for number, listener in tuple(listeners.items()):
            if number not in wanted or listener.address != address:
                await listeners.pop(number).close()
        failure = ""
        for number, port in wanted.items():
            if number not in listeners:
                try:
                    listeners[number] = await _Listener.open(address, number)
                except OSError as error:
                    failure = f"cannot listen on {address}:{number}: {error.strerror or error}"
                    continue
            listeners[number].set_backends(port.backends)
        self._report(key, service, failure)
        return LISTEN_RETRY_S if failure else None

    def _report(self, key: _Key, service: Object, failure: str) -> None:
        """Write an Event when a failure begins. Write no further Event while the failure lasts."""
        if failure and self._failures.get(key) != failure:
            self._events.warning(service, "FailedListen", failure)
        self._failures[key] = failure

    async def _close_all(self, key: _Key) -> None:
        for listener in self._listeners.pop(key, {}).values():
            await listener.close()


class _Listener:
    """Listens on one address and port, and forwards the connections."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._backends: tuple[_Address, ...] = ()
        self._turn = itertools.count()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, address: str, port: int) -> "_Listener":
        """Start to listen on an address and a port. Raises: OSError"""
        listener = cls(address)
        listener._server = await asyncio.start_server(
            listener._accept, address, port, limit=BUFFER_BYTES
        )
        return listener

    def set_backends(self, backends: tuple[_Address, ...]) -> None:
        """Set the pods that get new connections. Open connections keep their pod."""
        self._backends = backends

    async def close(self) -> None:
        if self._server:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:  # cannot happen: asyncio runs this callback in a task
            return
        self._connections.add(task)
        try:
            await self._forward(reader, writer)
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await self._connect()
        if upstream is None:
            return
        up_reader, up_writer = upstream
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(_pump(reader, up_writer), name="to pod")
                tasks.create_task(_pump(up_reader, writer), name="from pod")
            await asyncio.gather(_flushed(writer), _flushed(up_writer))
        except* OSError:
            pass  # one side reset its connection; `finally` and _accept reset the other side
        finally:
            up_writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to the next ready pod that accepts connections; None if no pod does."""
        backends = self._backends
        first = next(self._turn)
        for index in range(len(backends)):
            host, port = backends[(first + index) % len(backends)]
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(host, port, limit=BUFFER_BYTES)
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy the bytes of one direction until end of file. Then half-close the receiver's side.

    The other direction continues.
    """
    writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
    while data := await reader.read(BUFFER_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _flushed(writer: asyncio.StreamWriter) -> None:
    """Close a connection. Wait at most FLUSH_TIMEOUT_S seconds until its buffer is sent."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(FLUSH_TIMEOUT_S):
            await writer.wait_closed()


def _key(service: Object) -> _Key:
    return service["metadata"]["namespace"], service["metadata"]["name"]
