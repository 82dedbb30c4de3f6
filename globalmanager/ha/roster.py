"""Watches the other replicas: which replicas are alive, and which nodes each of them serves.

Run by app, once in each replica. The roster reads the Leases and ConfigMaps that the other replicas
publish (see presence), and passes the claims of live replicas to contacts. The roster of the leader
also deletes the Leases of dead replicas. The roster writes nothing else.
"""

import asyncio
import math
from typing import Final, Protocol

from common import logs
from common.clock import SYSTEM_CLOCK, Clock
from common.tasks import TaskGroup
from edgeai.api.resources import CONFIG_MAPS, Object, ObjectRef, ResourceType
from edgeai.errors import EdgeAIError
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import NotFound
from globalmanager.cache.informer import Informer, InformerSettings
from globalmanager.cache.store import Listener, Store
from globalmanager.ha import claims
from globalmanager.ha.claims import NO_CLAIMS, Claims
from globalmanager.ha.contacts import Contacts, ServingReplica
from globalmanager.ha.elector import LEASE_NAME, LEASES, REPLICA_LABEL
from globalmanager.ha.heartbeat import Heartbeat
from globalmanager.ha.presence import CLAIMS_FIELD, EDGE_URL_ANNOTATION, Presence

log = logs.get_logger(__name__)

# Fraction of the duration of a Lease. Without a renewal for this time, the client dials again.
# Every replica renews its Lease at least after a third of the duration.
_SILENCE: Final = 0.4
_LOOKS: Final = 4  # checks for dead replicas within the duration of a Lease
# the leader deletes a replica's Lease after this number of durations without a heartbeat
_DELETED_AFTER: Final = 4.0


class Candidate(Protocol):
    def look_soon(self, spec: Object) -> None:
        """The leader's Lease has this spec now."""


class OtherReplica:
    """The newest known state of another replica."""

    def __init__(self, heard_at: float) -> None:
        self.lease: Object | None = None  # None when only the ConfigMap was seen
        self.heard_at = heard_at  # time of the last heartbeat, on the roster's clock
        self.is_alive = True
        self.claims: Claims = NO_CLAIMS  # the last published claims, also of a dead replica


class Roster:
    """The other replicas, known from the Leases and ConfigMaps that they publish.

    Args:
        leading_client: deletes the Leases of dead replicas; sends writes only on the leader
        own_name: the process of this replica's identity
        duration_s: seconds without a heartbeat after which a replica is dead. A Lease with a
            duration of its own has priority
        elector: learns of each change of the leader's Lease
        presence: learns when somebody deletes the Lease or ConfigMap of this replica
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        leading_client: KubeClient,
        namespace: str,
        own_name: str,
        duration_s: float,
        contacts: Contacts,
        elector: Candidate,
        presence: Presence,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._leading_client = leading_client
        self._own_name = own_name
        self._duration_s = duration_s
        self._contacts = contacts
        self._elector = elector
        self._presence = presence
        self._clock = clock
        self._heartbeat = Heartbeat(client, silence_s=_SILENCE * duration_s)
        self._others: dict[str, OtherReplica] = {}  # process -> replica
        # Until this time no news arrived at all, so the silence of a single replica proves nothing.
        self._deaf_until = -math.inf
        self._late_until = -math.inf  # the last time at which the watch of Leases was late
        # Every replica renews its Lease, this one too. So a short silence of the watch is a fault.
        self._leases = Informer(
            client,
            _store(LEASES, self._on_lease),
            namespace=namespace,
            label_selector=REPLICA_LABEL,
            settings=InformerSettings(watch_s=2 * duration_s, backoff_max_s=max(1.0, duration_s)),
        )
        self._config_maps = Informer(
            client,
            _store(CONFIG_MAPS, self._on_config_map),
            namespace=namespace,
            label_selector=REPLICA_LABEL,
            settings=InformerSettings(backoff_max_s=max(1.0, duration_s)),
        )

    async def run(self) -> None:
        """Watch the other replicas until this task is cancelled."""
        async with TaskGroup() as tasks:
            for informer in (self._leases, self._config_maps):
                tasks.create_task(informer.run(), name=f"informer {informer.type} of replicas")
            tasks.create_task(self._heartbeat.run(), name="heartbeat of the API server")
            tasks.create_task(self._keep_judging(), name="silent replicas")
            tasks.create_task(self._keep_deleting(), name="dead replicas")

    @property
    def problem(self) -> str:
        """Why this replica does not know the other replicas yet. "" when it knows them."""
        for informer in (self._leases, self._config_maps):
            if not informer.synced:
                problem = informer.problem or "not listed yet"
                return f"{informer.type} of the other replicas: {problem}"
        return ""

    @property
    def complaints(self) -> tuple[str, ...]:
        """Problems of the informers that have listed the other replicas at least once."""
        informers = (self._leases, self._config_maps)
        return tuple(f"{i.type}: {i.problem}" for i in informers if i.synced and i.problem)

    def serving(self) -> tuple[ServingReplica, ...]:
        """The other live replicas that serve edges."""
        return tuple(
            ServingReplica(name, url, len(other.claims))
            for name, other in self._others.items()
            if other.is_alive and (url := _edge_url_in(other.lease)) is not None
        )

    # ---- Leases and ConfigMaps of the replicas ----

    def _on_lease(self, old: Object | None, new: Object | None) -> None:
        object_ = new or old
        if object_ is None:
            return
        self._heartbeat.heard()
        if object_["metadata"]["name"] == LEASE_NAME:
            self._elector.look_soon((new or {}).get("spec") or {})
            return
        name = _replica_of(object_)
        if new is None:
            self._presence.publish_again() if name == self._own_name else self._forget(name)
            return
        if name == self._own_name:
            return
        other = self._other(name)
        is_heartbeat = other.lease is None or other.lease.get("spec") != new.get("spec")
        other.lease = new
        if is_heartbeat:
            other.heard_at = self._clock.elapsed()
            self._revive(name, other)

    def _on_config_map(self, old: Object | None, new: Object | None) -> None:
        object_ = new or old
        if object_ is None:
            return
        name = _replica_of(object_)
        if name == self._own_name:
            if new is None:
                self._presence.publish_again()
            return
        if new is not None or name in self._others:
            other = self._other(name)
            other.claims = NO_CLAIMS if new is None else _claims_in(new)
            if other.is_alive:
                self._contacts.put_other(name, other.claims)

    # ---- living and dead replicas ----

    def _other(self, name: str) -> OtherReplica:
        return self._others.setdefault(name, OtherReplica(self._clock.elapsed()))

    def _revive(self, name: str, other: OtherReplica) -> None:
        if not other.is_alive:
            other.is_alive = True
            log.info("replica is back", replica=name)
            self._contacts.put_other(name, other.claims)

    def _forget(self, name: str) -> None:
        other = self._others.pop(name, None)
        if other is not None:
            sessions = len(other.claims) if other.is_alive else 0
            log.info("replica has left", replica=name, sessions=sessions)
            self._contacts.drop_other(name)

    async def _keep_judging(self) -> None:
        while True:
            self.mark_dead()
            await asyncio.sleep(self._duration_s / _LOOKS)

    async def _keep_deleting(self) -> None:
        while True:
            await asyncio.sleep(self._duration_s)
            await self.delete_dead()

    def mark_dead(self) -> None:
        """Mark replicas as dead that have sent no heartbeat for the duration of their Lease.

        While no heartbeats of any replica arrive, this method marks no replica. Afterwards each
        replica again has the whole duration of its Lease to send a heartbeat.
        """
        now = self._clock.elapsed()
        self.is_current()  # notes a watch that is late now, also when no edge asks
        if self.is_deaf():
            self._deaf_until = now
            return
        for name, other in tuple(self._others.items()):
            silent_s = now - max(other.heard_at, self._deaf_until)
            if not other.is_alive or silent_s <= self._duration_of(other):
                continue
            other.is_alive = False
            log.warning("replica is silent", replica=name, sessions=len(other.claims))
            self._contacts.put_other(name, NO_CLAIMS, ago_s=silent_s)
            if other.lease is None:  # there is no Lease whose deletion would remove the entry
                self._forget(name)

    def is_deaf(self) -> bool:
        """Whether the watch of the Leases is broken. This replica renews its own Lease three times
        within the Lease's duration. So when half of it brings no change, the watch is broken.
        """
        return self._is_late() or bool(self.problem)

    def is_current(self) -> bool:
        """Whether this replica knows what the API holds: the watch of the Leases is not broken, and
        was not broken for the duration of a Lease, in which all other watches dialled again.
        """
        if self.problem:
            return False  # this replica starts: all that it lists now is new
        now = self._clock.elapsed()
        if self._is_late():
            self._late_until = now
        return now >= self._late_until + self._duration_s

    def _is_late(self) -> bool:
        return self._leases.silent_for_s() > self._duration_s / 2

    def _duration_of(self, other: OtherReplica) -> float:
        spec = (other.lease or {}).get("spec") or {}
        return float(spec.get("leaseDurationSeconds") or self._duration_s)

    async def delete_dead(self) -> None:
        """Delete the Leases of dead replicas. Only the leader's client sends these requests.

        Kubernetes then deletes the ConfigMaps of the dead replicas, because the Leases own them.
        """
        for other in tuple(self._others.values()):
            silent_s = self._clock.elapsed() - max(other.heard_at, self._deaf_until)
            is_dead = not other.is_alive and silent_s >= _DELETED_AFTER * self._duration_of(other)
            if not is_dead or other.lease is None:
                continue
            metadata = other.lease["metadata"]
            ref = ObjectRef(LEASES, metadata["namespace"], metadata["name"])
            try:
                await self._leading_client.delete(ref, uid=Uid(metadata["uid"]))
            except NotFound:
                continue
            except EdgeAIError as error:
                log.debug("dead replica not removed", resource=str(ref), problem=str(error))


def _store(type_: ResourceType, listener: Listener) -> Store:
    store = Store(type_)
    store.subscribe(listener)
    return store


def _replica_of(object_: Object) -> str:
    return str((object_["metadata"].get("labels") or {}).get(REPLICA_LABEL, ""))


def _edge_url_in(lease: Object | None) -> str | None:
    """None when the replica serves no edges, or has a release that does not tell."""
    annotations = ((lease or {}).get("metadata") or {}).get("annotations") or {}
    url = annotations.get(EDGE_URL_ANNOTATION)
    return None if url is None else str(url)


def _claims_in(config_map: Object) -> Claims:
    text = (config_map.get("data") or {}).get(CLAIMS_FIELD, "")
    try:
        return claims.decode(text) if text else NO_CLAIMS
    except claims.ClaimsError as error:
        name = config_map["metadata"]["name"]
        log.error("sessions of a replica cannot be read", resource=name, problem=str(error))
        return NO_CLAIMS
