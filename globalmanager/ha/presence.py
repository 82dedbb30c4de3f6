"""Publishes for the other replicas that this replica is alive, and which nodes it serves.

Run by app, once in each replica. Presence writes two objects into the system namespace: a Lease,
which presence renews as a heartbeat, and a ConfigMap with the replica's claims. The Lease owns the
ConfigMap. Presence writes the ConfigMap only after changes of the claims, and at most once a
second. A replica deletes both objects when it stops. A replica that was killed cannot delete its
Lease, so the leader deletes the Lease. Kubernetes then deletes the ConfigMap. The roster of each
other replica reads both objects. An annotation of the Lease says whether the replica serves edges.
"""

import asyncio
import math
import random
from typing import Final, Protocol

from common import logs
from common.clock import SYSTEM_CLOCK, Clock
from common.tasks import TaskGroup, wait_at_most
from edgeai.api.resources import CONFIG_MAPS, Object, ObjectRef, ResourceType
from edgeai.backoff import Backoff
from edgeai.errors import EdgeAIError
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import NotFound
from edgeai.times import micro_time
from globalmanager.cache.store import uid_of
from globalmanager.ha import claims
from globalmanager.ha.contacts import Contacts, ContactSubscriber
from globalmanager.ha.elector import LEASE_NAME, LEASES, REPLICA_LABEL, Identity

log = logs.get_logger(__name__)

CLAIMS_FIELD: Final = "claims"
# On the Lease of a replica that serves edges: its own URL for edges, or "" if it has none.
EDGE_URL_ANNOTATION: Final = "edgeai.io/edge-url"
# Renewals within the duration of the Lease: with three, one may fail and another be late.
_RENEWALS: Final = 3
_DELETE_S: Final = 2.0
_UNKNOWN: Final = ""  # in place of encoded claims


def object_name(process: str) -> str:
    """The name of the Lease and of the ConfigMap of one process of a replica."""
    return f"{LEASE_NAME}-{process}"


class EdgeSide(Protocol):
    def edge_url(self) -> str | None:
        """This replica's own URL for edges, or ""; None while it serves no edges."""


class Presence(ContactSubscriber):
    """Writes the Lease and the ConfigMap of this replica.

    Args:
        client: has a request rate of its own, so that a heartbeat never waits for other requests
        duration_s: seconds without a renewal after which this replica counts as dead
        edge_side: None when this replica never serves edges
        publish_interval_s: shortest pause between two writes of the claims
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        identity: Identity,
        duration_s: float,
        contacts: Contacts,
        edge_side: EdgeSide | None = None,
        publish_interval_s: float = 1.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._identity = identity
        self._duration_s = duration_s
        self._contacts = contacts
        self._edge_side = edge_side
        self._publish_interval_s = publish_interval_s
        self._clock = clock
        self._lease: Object | None = None  # state of the last write; None: unknown
        self._config_map: Object | None = None  # state of the last write; None: unknown
        # (uid of the Lease, claims) as the API has them
        self._published: tuple[str, str] = ("", claims.encode({}))
        self._change = asyncio.Event()  # set: the published claims may be out of date
        self._beat_now = asyncio.Event()  # set: renew the Lease without a pause
        self._problems: dict[str, str] = {}  # failed operation -> why it failed
        contacts.subscribe(self)

    def own_claims_changed(self) -> None:
        self._change.set()

    @property
    def problem(self) -> str:
        """Why the Lease or the claims could not be written; "" when both were."""
        return "; ".join(self._problems.values())

    def publish_again(self) -> None:
        """Write the Lease and the ConfigMap again, after somebody deleted one of them."""
        self._published = ("", _UNKNOWN)
        self._config_map = self._lease = None
        self._beat_now.set()

    async def run(self) -> None:
        """Renew the Lease and publish the claims until cancelled. Then delete both."""
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._heartbeats(), name="presence heartbeat")
                tasks.create_task(self._publications(), name="presence claims")
        finally:
            await self._delete_own()

    # ---- the heartbeat ----

    async def _heartbeats(self) -> None:
        interval_s = self._duration_s / _RENEWALS
        while True:
            try:
                async with asyncio.timeout(self._duration_s):
                    await self._beat()
            except (EdgeAIError, TimeoutError) as error:
                self._lease = None
                self._failed("presence not renewed", str(error) or "no answer in time")
            else:
                self._problems.pop("presence not renewed", None)
            await wait_at_most(interval_s * random.uniform(0.8, 1.0), self._beat_now)
            self._beat_now.clear()

    async def _beat(self) -> None:
        old = self._lease
        lease = old or await self._get_own(LEASES)
        if lease is None:
            metadata = {**self._metadata(), "annotations": self._annotations()}
            lease = {"metadata": metadata, "spec": self._spec()}
            self._lease = await self._client.create(LEASES, lease)
        else:
            metadata = {**lease["metadata"], "annotations": self._annotations()}
            lease = {**lease, "metadata": metadata, "spec": self._spec()}
            self._lease = await self._client.replace(LEASES, lease)
        if old is None:
            self._change.set()  # the ConfigMap needs the Lease as owner, and the Lease may be new

    def _spec(self) -> Object:
        return {
            "holderIdentity": str(self._identity),
            "leaseDurationSeconds": math.ceil(self._duration_s),
            "renewTime": micro_time(self._clock.utcnow()),
        }

    def _annotations(self) -> dict[str, str]:
        url = None if self._edge_side is None else self._edge_side.edge_url()
        return {} if url is None else {EDGE_URL_ANNOTATION: url}

    # ---- the claims ----

    async def _publications(self) -> None:
        backoff = Backoff(base_s=1.0, max_s=10.0, floor_s=0.2)
        while True:
            await self._change.wait()
            self._change.clear()
            try:
                await self._publish()
            except EdgeAIError as error:
                self._config_map = None
                self._change.set()
                if backoff.failures > 0:
                    self._failed("sessions not published", str(error))
                await asyncio.sleep(backoff.next_s())
            else:
                self._problems.pop("sessions not published", None)
                backoff.reset()
                # Changes during this pause go into one write.
                await asyncio.sleep(self._publish_interval_s)

    async def _publish(self) -> None:
        if self._lease is None:
            return  # the next heartbeat creates the Lease and sets self._changed
        owner, own = self._lease["metadata"], self._contacts.own_claims
        text = claims.encode(own)
        if text == self._published[1] and self._published[0] in ("", owner["uid"]):
            return
        config_map = {
            "metadata": {**self._metadata(), "ownerReferences": [_owner_reference(owner)]},
            "data": {CLAIMS_FIELD: text},
        }
        # The API may take the write, and its answer be lost.
        before = self._published = (owner["uid"], _UNKNOWN)
        answer = await self._put(config_map)
        if self._published is before:  # otherwise publish_again() ran during the write
            self._config_map, self._published = answer, (owner["uid"], text)
        if claims.is_full(text) and len(claims.decode(text)) < len(own):
            log.error("more sessions than other replicas can be told of", sessions=len(own))

    async def _put(self, config_map: Object) -> Object:
        old = self._config_map or await self._get_own(CONFIG_MAPS)
        if old is None:
            return await self._client.create(CONFIG_MAPS, config_map)
        version = {"resourceVersion": old["metadata"]["resourceVersion"]}
        metadata = {**config_map["metadata"], **version}
        return await self._client.replace(CONFIG_MAPS, {**config_map, "metadata": metadata})

    def _metadata(self) -> Object:
        return {
            "name": object_name(self._identity.process),
            "namespace": self._namespace,
            "labels": {REPLICA_LABEL: self._identity.process},
        }

    async def _get_own(self, type_: ResourceType) -> Object | None:
        ref = ObjectRef(type_, self._namespace, object_name(self._identity.process))
        try:
            return await self._client.get(ref)
        except NotFound:
            return None

    def _failed(self, operation: str, problem: str) -> None:
        text = f"{operation}: {problem}"
        if text != self._problems.get(operation):
            log.warning(operation, problem=problem)
        self._problems[operation] = text

    async def _delete_own(self) -> None:
        """Delete both objects in limited time, else the leader does when the Lease is over."""
        try:
            async with asyncio.timeout(_DELETE_S):
                for type_ in (CONFIG_MAPS, LEASES):
                    own = await self._get_own(type_)
                    if own is not None:
                        ref = ObjectRef(type_, self._namespace, own["metadata"]["name"])
                        await self._client.delete(ref, uid=Uid(uid_of(own)))
        except (EdgeAIError, TimeoutError) as error:
            log.warning("presence not deleted, its Lease runs out", problem=str(error))


def _owner_reference(lease: Object) -> Object:
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "name": lease["name"],
        "uid": lease["uid"],
    }
