"""Knows which nodes have a session, at whichever replica: the contacts that every plan sees.

Built by app. It joins the sessions of this replica, of which it is told at once, with the claims
that the others publish (presence) for as long as they are heard of. It never writes, except that
the leader's deletes what a replica left behind that is no more.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from common import logs
from common.errors import EdgeAIError
from common.ids import NodeName, Uid
from common.tasks import TaskGroup
from globalmanager.cache.informer import Informer, InformerSettings
from globalmanager.cache.store import Listener, Store
from globalmanager.contract import Contact, Object, ObjectRef, ResourceType
from globalmanager.ha import claims
from globalmanager.ha.claims import NOTHING, Claim, Claims
from globalmanager.ha.elector import LEASE_NAME, LEASES, REPLICA_LABEL
from globalmanager.ha.fence import Clock, elapsed
from globalmanager.ha.heartbeat import Heartbeat
from globalmanager.ha.presence import CLAIMS_FIELD, CONFIG_MAPS
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import NotFound

log = logs.get_logger(__name__)

# A replica renews its Lease at least every third of the duration, the leader its own more often.
_SILENCE: Final = 0.4  # of the duration, without any renewal
_REDIAL_DEADLINE_S: Final = 2.0
_LOOKS: Final = 4  # at the other replicas, within the duration of their Leases
_BURIED_AFTER: Final = 4.0  # durations without a heartbeat, then what is left is deleted


class Replica:
    """Another replica, as far as it was heard of."""

    def __init__(self, heard_at: float) -> None:
        self.lease: Object | None = None
        self.heard_at = heard_at
        self.is_alive = True
        self.claims: Claims = NOTHING

    @property
    def live_claims(self) -> Claims:
        return self.claims if self.is_alive else NOTHING


class Roster:
    """
    Args:
        client: for reading; `leading_client` for what only the leader may delete
        me: the process of this replica's identity
        duration_s: a replica without a heartbeat for so long is gone; its Lease may say otherwise
        own: claims of the sessions of this replica, at any moment
        contact_changed: a node has now a session where it had none, or the other way round
        claimed_elsewhere: (node, claim) of a newer session at another replica
        clashed: another replica found that two LocalControllers use this node's name
        leader_lease: told the spec of the leaders' Lease whenever it changes
        lost: what this replica had published was deleted by somebody
        clock: seconds, monotonic; utcnow: UTC
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        leading_client: KubeClient,
        namespace: str,
        me: str,
        duration_s: float,
        own: Callable[[], Claims],
        contact_changed: Callable[[NodeName], None],
        claimed_elsewhere: Callable[[NodeName, Claim], None],
        clashed: Callable[[NodeName], None],
        leader_lease: Callable[[Object], None],
        lost: Callable[[], None],
        clock: Clock = elapsed,
        utcnow: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._leading_client = leading_client
        self._me = me
        self._duration_s = duration_s
        self._own = own
        self._contact_changed = contact_changed
        self._claimed_elsewhere = claimed_elsewhere
        self._clashed = clashed
        self._leader_lease = leader_lease
        self._lost = lost
        self._clock = clock
        self._utcnow = utcnow
        self._heartbeat = Heartbeat(
            lambda: client.redial(deadline_s=_REDIAL_DEADLINE_S),
            silence_s=_SILENCE * duration_s,
        )
        self._replicas: dict[str, Replica] = {}
        self._contacts: dict[NodeName, Contact] = {}
        self._told: dict[tuple[str, NodeName], int] = {}  # clashes, by replica and node
        self._blind_until = -math.inf  # no silence before that moment is a replica's own
        # Heartbeats come in all the time, this replica's own among them: silence is soon a fault.
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
        """Until cancelled."""
        async with TaskGroup() as tasks:
            for informer in (self._leases, self._config_maps):
                tasks.create_task(informer.run(), name=f"informer {informer.type} of replicas")
            tasks.create_task(self._heartbeat.run(), name="heartbeat of the API server")
            tasks.create_task(self._watch_silence(), name="silent replicas")
            tasks.create_task(self._tidy_up(), name="dead replicas")

    @property
    def problem(self) -> str:
        """Why the other replicas are not known yet; "" once they are."""
        for informer in (self._leases, self._config_maps):
            if not informer.synced:
                problem = informer.problem or "not listed yet"
                return f"{informer.type} of the other replicas: {problem}"
        return ""

    @property
    def complaints(self) -> tuple[str, ...]:
        """What keeps news of the other replicas from coming in as it should."""
        informers = [each for each in (self._leases, self._config_maps) if each.synced]
        return tuple(f"{each.type}: {each.problem}" for each in informers if each.problem)

    def contacts(self) -> Mapping[NodeName, Contact]:
        """Every node that ever had a session that was heard of; a live view, read-only."""
        return MappingProxyType(self._contacts)

    def elsewhere(self, node: NodeName) -> Claim | None:
        """The newest claim of another replica that lives."""
        found = [
            claim
            for replica in self._replicas.values()
            if (claim := replica.live_claims.get(node)) is not None
        ]
        return max(found, key=lambda claim: claim.order, default=None)

    def own_changed(self, node: NodeName) -> None:
        """A node has got its first session here, or lost its last."""
        self._settle([node], since=self._utcnow())

    # ---- what the others publish ----

    def _on_lease(self, old: Object | None, new: Object | None) -> None:
        object_ = new or old
        if object_ is None:
            return
        self._heartbeat.heard()
        if object_["metadata"]["name"] == LEASE_NAME:
            self._leader_lease((new or {}).get("spec") or {})
            return
        name = _replica_of(object_)
        if new is None:
            self._lost() if name == self._me else self._forget(name)
            return
        if name == self._me:
            return
        replica = self._replica(name)
        is_heartbeat = replica.lease is None or replica.lease.get("spec") != new.get("spec")
        replica.lease = new
        if is_heartbeat:
            replica.heard_at = self._clock()
            self._revive(name, replica)

    def _on_config_map(self, old: Object | None, new: Object | None) -> None:
        object_ = new or old
        if object_ is None:
            return
        name = _replica_of(object_)
        if name == self._me:
            if new is None:
                self._lost()
            return
        if new is not None or name in self._replicas:
            self._take(name, self._replica(name), NOTHING if new is None else _claims_in(new))

    def _take(self, name: str, replica: Replica, published: Claims) -> None:
        before, replica.claims = replica.claims, published
        changed = [
            node
            for node in before.keys() | published.keys()
            if before.get(node) != published.get(node)
        ]
        if replica.is_alive:
            self._consider(name, replica, changed, since=self._utcnow())

    def _consider(
        self, name: str, replica: Replica, nodes: Iterable[NodeName], *, since: datetime
    ) -> None:
        """The live claims of a replica on `nodes` have changed."""
        nodes = sorted(nodes)
        own = self._own()
        for node in nodes:
            mine, theirs = own.get(node), replica.live_claims.get(node)
            if mine is not None and theirs is not None and theirs.order > mine.order:
                self._claimed_elsewhere(node, theirs)
        self._settle(nodes, since=since)
        self._tell_clashes(name, {node: replica.claims.get(node) for node in nodes})

    def _settle(self, nodes: Iterable[NodeName], *, since: datetime) -> None:
        own = self._own()
        for node in nodes:
            connected = node in own or self.elsewhere(node) is not None
            before = self._contacts.get(node)
            if before is None and not connected:
                continue
            if before is None or before.connected != connected:
                self._contacts[node] = Contact(connected, since)
                self._contact_changed(node)

    def _tell_clashes(self, name: str, claimed: Mapping[NodeName, Claim | None]) -> None:
        for node, claim in claimed.items():
            if claim is not None and claim.clashes > self._told.get((name, node), 0):
                self._told[name, node] = claim.clashes
                self._clashed(node)

    # ---- who lives ----

    def _replica(self, name: str) -> Replica:
        return self._replicas.setdefault(name, Replica(self._clock()))

    def _revive(self, name: str, replica: Replica) -> None:
        if not replica.is_alive:
            replica.is_alive = True
            log.info("replica is back", replica=name)
            self._consider(name, replica, replica.claims, since=self._utcnow())

    def _forget(self, name: str) -> None:
        replica = self._replicas.pop(name, None)
        if replica is None:
            return
        log.info("replica has left", replica=name, sessions=len(replica.live_claims))
        self._settle(replica.claims, since=self._utcnow())
        self._told = {key: told for key, told in self._told.items() if key[0] != name}

    async def _watch_silence(self) -> None:
        while True:
            self.judge()
            await asyncio.sleep(self._duration_s / _LOOKS)

    async def _tidy_up(self) -> None:
        while True:
            await asyncio.sleep(self._duration_s)
            await self.bury()

    def judge(self) -> None:
        """Take those to be gone that were not heard of for the duration of their Leases.

        Not while this replica hears nothing at all, nor before the others had time to be heard.
        """
        now = self._clock()
        if self.is_blind():
            self._blind_until = now
            return
        for name, replica in tuple(self._replicas.items()):
            silent_s = now - max(replica.heard_at, self._blind_until)
            if replica.is_alive and silent_s > self._duration_of(replica):
                replica.is_alive = False
                log.warning("replica is silent", replica=name, sessions=len(replica.claims))
                self._settle(replica.claims, since=self._utcnow() - timedelta(seconds=silent_s))
                if replica.lease is None:  # what a ConfigMap alone told: nothing would remove it
                    self._forget(name)

    def is_blind(self) -> bool:
        """Whether no news of the replicas would arrive; own heartbeats come three a duration."""
        is_late = self._leases.silent_for_s() > self._duration_s / 2
        return is_late or bool(self.problem)

    def _duration_of(self, replica: Replica) -> float:
        spec = (replica.lease or {}).get("spec") or {}
        return float(spec.get("leaseDurationSeconds") or self._duration_s)

    async def bury(self) -> None:
        """Delete what is left of the dead; on a replica that does not lead this does nothing."""
        for replica in tuple(self._replicas.values()):
            silent_s = self._clock() - max(replica.heard_at, self._blind_until)
            if replica.is_alive or silent_s < _BURIED_AFTER * self._duration_of(replica):
                continue
            if replica.lease is None:
                continue  # a ConfigMap alone: Kubernetes deletes it with the Lease that owned it
            metadata = replica.lease["metadata"]
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


def _claims_in(config_map: Object) -> Claims:
    text = (config_map.get("data") or {}).get(CLAIMS_FIELD, "")
    try:
        return claims.decode(text) if text else NOTHING
    except claims.ClaimsError as error:
        name = config_map["metadata"]["name"]
        log.error("sessions of a replica cannot be read", resource=name, problem=str(error))
        return NOTHING
