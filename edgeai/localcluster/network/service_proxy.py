"""Gives every Service a loopback address and forwards its connections to ready pods.

For each Service with a cluster IP the proxy listens on clusterIP:port. The proxy forwards a
connection to podIP:targetPort of the next ready pod that the selector matches, round robin. Without
a ready pod the proxy closes a connection at once. The proxy also writes the Endpoints of each
Service with a selector. A headless Service (clusterIP None) has Endpoints and no listener;
`pod_addresses` gives it an address. The proxy supports TCP only.
"""

from collections.abc import Mapping, Sequence

import msgspec

from edgeai.localcluster.controllers.controller import Controller
from edgeai.localcluster.controllers.events import EventRecorder
from edgeai.localcluster.network.addresses import AddressPool
from edgeai.localcluster.network.isolation import NO_ISOLATION, Isolation, Opening
from edgeai.localcluster.network.listener import Listener
from edgeai.localcluster.objects.pods import is_ended, is_ready, is_selected
from edgeai.localcluster.objects.resources import ENDPOINTS, PODS, SERVICES, Key, Object
from edgeai.localcluster.objects.resources import key as key_of
from edgeai.localcluster.objects.store import Change, Store

LISTEN_RETRY_S = 2.0

_Address = tuple[str, int]


def service_ports(service: Object, pods: Sequence[Object]) -> dict[int, tuple[_Address, ...]]:
    """The TCP ports of a Service, each with the addresses of its ready pods. Pure."""
    ready = [pod for pod in pods if is_selected(pod, service) and _is_serving(pod)]
    return {
        int(port["port"]): tuple(
            (str(pod["status"]["podIP"]), number)
            for pod in ready
            if (number := target_port(port, pod)) is not None
        )
        for port in service["spec"].get("ports") or []
        if port.get("protocol", "TCP") == "TCP"
    }


def target_port(port: Object, pod: Object) -> int | None:
    """The number of the pod's port that a Service port targets; None if it has none."""
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
    names = {"name": metadata["name"], "uid": metadata["uid"]}
    owner = {"apiVersion": "v1", "kind": "Service"} | names
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
            "ownerReferences": [owner],
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


class ServiceProxy(Controller[Key]):
    """Listens for all Services and forwards their connections. Args: addresses: of cluster IPs"""

    def __init__(
        self, store: Store, addresses: AddressPool, isolation: Isolation = NO_ISOLATION
    ) -> None:
        super().__init__(store, "service proxy")
        self._addresses = addresses
        self._isolation = isolation
        self._events = EventRecorder(store, component="service-proxy")
        self._listeners: dict[Key, dict[int, Listener]] = {}  # Service -> port -> listener
        self._cluster_ips: dict[Key, str] = {}  # Service -> cluster IP
        self._former: dict[str, Key] = {}  # cluster IP -> the last Service with this IP

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            for key in tuple(self._listeners):
                await self._close_all(key)

    def _add_all(self) -> None:
        # Services with an address come first, so that no other Service takes their addresses.
        services = self._store.list(SERVICES).items
        for service in sorted(services, key=lambda one: not one["spec"].get("clusterIP")):
            self._add(key_of(service))

    def _changed(self, change: Change) -> None:
        if change.resource is SERVICES:
            self._add(key_of(change.object))
        elif change.resource is PODS:
            for pod in filter(None, (change.previous, change.object)):
                self._add_services_of(pod)

    def _add_services_of(self, pod: Object) -> None:
        for service in self._store.list(SERVICES, namespace=pod["metadata"]["namespace"]).items:
            if is_selected(pod, service):
                self._add(key_of(service))

    async def _reconcile(self, key: Key) -> float | None:
        service = self._store.find(SERVICES, *key)
        if service is None:
            await self._close_all(key)
            self._release(key)
            return None
        pods = self._store.list(PODS, namespace=key[0]).items
        address = self._cluster_ip(key, service)
        self._write_endpoints(service, pods)
        if not address:
            await self._close_all(key)
            return None
        return await self._listen(key, service, address, service_ports(service, pods))

    def _cluster_ip(self, key: Key, service: Object) -> str:
        """The cluster IP of a Service. The proxy allocates a missing cluster IP now.

        Returns: "" for a headless Service and for type ExternalName
        """
        spec = service["spec"]
        desired = spec.get("clusterIP") or ""
        if spec.get("type") == "ExternalName" or desired == "None":
            self._release(key)
            return ""
        current = self._cluster_ips.get(key)
        if current and current == desired:
            return current
        self._release(key)
        address = desired if self._addresses.reserve(desired) else self._address_for(key)
        self._cluster_ips[key] = address
        if address != desired:
            spec |= {"clusterIP": address, "clusterIPs": [address]}
            self._store.update(SERVICES, service)
        return address

    def _address_for(self, key: Key) -> str:
        """The last address of a Service with this name, if the address is free; else a new address.

        Processes know a Service by its address, so one that is created again keeps it.
        """
        former = next((address for address, owner in self._former.items() if owner == key), "")
        return former if self._addresses.reserve(former) else self._addresses.take()

    def _release(self, key: Key) -> None:
        if address := self._cluster_ips.pop(key, None):
            self._former[address] = key
            self._addresses.release(address)

    def _write_endpoints(self, service: Object, pods: Sequence[Object]) -> None:
        """Those of a Service without a selector are the user's."""
        if not service["spec"].get("selector"):
            return
        desired = endpoints(service, pods)
        present = self._store.find(ENDPOINTS, *key_of(service))
        if present is None:
            self._store.create(ENDPOINTS, desired)
            return
        desired["metadata"] = present["metadata"] | desired["metadata"]
        self._store.update(ENDPOINTS, present | desired)

    async def _listen(
        self, key: Key, service: Object, address: str, ports: Mapping[int, tuple[_Address, ...]]
    ) -> float | None:
        """Open and close listeners, so that each port of a Service has a listener.

        Returns: seconds until a retry; None if all listeners are open
        """
        listeners = self._listeners.setdefault(key, {})
        for number, listener in tuple(listeners.items()):
            if number not in ports or listener.address != address:
                await listeners.pop(number).close()
        is_complete = True
        for number, backends in ports.items():
            if number not in listeners:
                try:
                    networks = self._isolation.networks_that_reach(Opening(host_of(key), number))
                    listeners[number] = await Listener.open(address, number, networks)
                except OSError as error:
                    why = f"cannot listen on {address}:{number}: {error.strerror or error}"
                    self._events.warning(service, "FailedListen", why)
                    is_complete = False
                    continue
            listeners[number].set_backends(backends)
        return None if is_complete else LISTEN_RETRY_S

    async def _close_all(self, key: Key) -> None:
        for listener in self._listeners.pop(key, {}).values():
            await listener.close()


def host_of(key: Key) -> str:
    """The DNS name of a Service, without the cluster's domain."""
    return f"{key[1]}.{key[0]}"
