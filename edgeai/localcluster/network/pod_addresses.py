"""The addresses of pods, and the addresses and ports of headless Services.

A process knows a Service by an address, and a process may start before the pod exists that it wants
to reach. So a headless Service has an address from its creation to its deletion, and the pod that
the Service selects gets this address: a pod that replaces another has the same address. Of several
pods that a Service selects, one has the address of the Service. No proxy listens at the address, so
a process of the pod may listen on every address (0.0.0.0). For such processes a port of a headless
Service can have a port of this machine that no other process uses.

The kubelet takes the addresses of its pods here, and reads the addresses of headless Services. The
module follows the store and never writes to it. Nothing is kept over a restart of the cluster,
which ends all processes; a Service then has the address of its pod again.
"""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from common.logs import get_logger
from edgeai.localcluster.network.addresses import AddressesExhausted, AddressPool, PortPool
from edgeai.localcluster.objects.pods import is_ended, is_selected
from edgeai.localcluster.objects.resources import PODS, SERVICES, Key, Object
from edgeai.localcluster.objects.resources import key as key_of
from edgeai.localcluster.objects.store import Change, Store

log = get_logger(__name__)


class _Headless(msgspec.Struct):
    service: Object
    address: str
    ports: dict[int, int]
    """Port of the Service -> port of this machine."""


class PodAddresses:
    """Gives addresses to pods, and addresses and ports to headless Services.

    Args: former_limit: number of deleted Services whose addresses and ports are remembered
    """

    def __init__(
        self,
        store: Store,
        pool: AddressPool,
        ports: PortPool | None = None,
        *,
        former_limit: int = 1000,
    ) -> None:
        self._pool = pool
        self._ports = ports or PortPool()
        self._former_limit = former_limit
        # Address -> uids of the pods and Services that have it.
        self._holders: defaultdict[str, set[str]] = defaultdict(set)
        self._pods = {_uid(pod): pod for pod in store.list(PODS).items}
        self._addresses: dict[str, str] = {}  # uid of a pod that runs -> address
        self._services: dict[Key, _Headless] = {}
        self._former: dict[Key, _Headless] = {}  # deleted Services, the oldest first
        headless = [candidate for candidate in store.list(SERVICES).items if is_headless(candidate)]
        # Services with pods come first, so that no other Service takes the addresses of the pods.
        for service in sorted(headless, key=lambda candidate: not self._adoptable(candidate)):
            self._reserve(service)
        store.listen(self._changed)

    def take(self, pod: Object) -> str:
        """The address for a pod that starts to run. `release` ends the use.

        Raises: AddressesExhausted
        """
        address = self._free_address_of_service(pod)
        if not address:
            recorded = _recorded(pod)
            is_free = recorded not in self._holders and self._pool.reserve(recorded)
            address = recorded if is_free else self._pool.take()
        self._holders[address].add(_uid(pod))
        self._addresses[_uid(pod)] = address
        return address

    def release(self, uid: str) -> None:
        """End the use of a pod's address. A pod that has taken no address is ignored."""
        if address := self._addresses.pop(uid, None):
            self._drop(address, uid)

    def address(self, service: Object) -> str:
        """The address that stands for a headless Service.

        A Service whose address no pod has stands at the address of one of its pods.

        Returns: "" if no address was left for the Service, and no pod of the Service runs
        """
        headless = self._services.get(key_of(service))
        own = headless.address if headless else ""
        if any(self._is_running(uid) for uid in self._holders.get(own, ())):
            return own
        running = (self._address_of(pod) for pod in self._running(service))
        return next(running, own)

    def port(self, key: tuple[str, str], port: int) -> int:
        """A port of this machine for one port of a headless Service, the same at every call.

        Args:
            key: namespace and name of the Service
        Raises: AddressesExhausted
        """
        headless = self._services.get(key)
        if headless is None:
            return port
        if port not in headless.ports:
            headless.ports[port] = self._ports.take()
        return headless.ports[port]

    def _free_address_of_service(self, pod: Object) -> str:
        """The address of the headless Service that selects the pod, if no other pod has it.

        Of several, that with the most labels in its selector counts: one of a single replica.
        """
        services = [item for item in self._services.values() if is_selected(pod, item.service)]
        if not services:
            return ""
        address = max(services, key=lambda item: len(item.service["spec"]["selector"])).address
        others = (item for uid, item in self._pods.items() if uid != _uid(pod))
        is_used = any(self._address_of(item) == address for item in others if not is_ended(item))
        return "" if is_used else address

    def _changed(self, change: Change) -> None:
        if change.resource is PODS:
            if change.type == "DELETED":
                self._pods.pop(_uid(change.object), None)
            else:
                self._pods[_uid(change.object)] = change.object
        elif change.resource is SERVICES:
            if change.type != "DELETED" and is_headless(change.object):
                self._reserve(change.object)
            else:
                self._forget(key_of(change.object))

    def _reserve(self, service: Object) -> None:
        """Give a new Service an address. Take the newer version of a known Service."""
        key = key_of(service)
        if present := self._services.get(key):
            present.service = service
            return
        former = self._former.pop(key, _Headless(service, "", {}))
        try:
            address = self._first_address(service, former.address)
        except AddressesExhausted as error:
            log.warning("headless service has no address", service=key, error=str(error))
            return
        self._holders[address].add(_uid(service))
        self._services[key] = _Headless(service, address, former.ports)

    def _first_address(self, service: Object, former: str) -> str:
        """The address of the Service's pod, else the former address if it is free, else a new one.

        Running processes may know the Service by the first two. Raises: AddressesExhausted
        """
        adopted = self._adoptable(service)
        if adopted in self._holders or self._pool.reserve(adopted):
            return adopted
        if self._pool.reserve(former) or self._is_left(former):
            return former
        return self._pool.take()

    def _is_left(self, address: str) -> bool:
        """Whether only pods have the address whose processes have ended or are about to end."""
        uids = self._holders.get(address, ())
        return bool(uids) and not any(
            uid not in self._addresses or self._is_running(uid) for uid in uids
        )

    def _is_running(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and not is_ended(pod)

    def _adoptable(self, service: Object) -> str:
        """The address of a running pod, if no other Service and no other pod has this address."""
        addresses = {headless.address for headless in self._services.values()}
        for pod in self._running(service):
            address = self._address_of(pod)
            if address not in addresses and (
                _uid(pod) in self._addresses or address not in self._holders
            ):
                return address
        return ""

    def _running(self, service: Object) -> Iterator[Object]:
        for pod in self._pods.values():
            if is_selected(pod, service) and not is_ended(pod) and self._address_of(pod):
                yield pod

    def _address_of(self, pod: Object) -> str:
        """The address of a pod; for a pod that does not run yet, the address in its status."""
        return self._addresses.get(_uid(pod)) or _recorded(pod)

    def _forget(self, key: Key) -> None:
        if headless := self._services.pop(key, None):
            self._drop(headless.address, _uid(headless.service))
            self._former[key] = headless
            if len(self._former) > self._former_limit:
                oldest = self._former.pop(next(iter(self._former)))
                for port in oldest.ports.values():
                    self._ports.release(port)

    def _drop(self, address: str, uid: str) -> None:
        self._holders[address].discard(uid)
        if not self._holders[address]:
            del self._holders[address]
            self._pool.release(address)


def is_headless(service: Object) -> bool:
    """Whether the spec of a Service asks for no cluster IP."""
    return bool(service["spec"].get("clusterIP") == "None")


def _recorded(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def _uid(object_: Object) -> str:
    return str(object_["metadata"]["uid"])
