"""Tells the other replicas that this one lives, and which nodes it serves.

Run by app, once in each replica. Two objects in the system namespace: a Lease that is renewed,
and, owned by it, a ConfigMap with the claims, written only when they changed and at most once a
second. Who ends deletes them; of who was killed the leader deletes the Lease, and Kubernetes the
ConfigMap with it. Roster reads what this writes.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from common import logs
from common.backoff import Backoff
from common.errors import EdgeAIError
from common.ids import Uid
from common.tasks import TaskGroup
from common.times import micro_time
from globalmanager.cache.store import uid_of
from globalmanager.contract import Object, ObjectRef, ResourceType
from globalmanager.ha import claims
from globalmanager.ha.claims import Claims
from globalmanager.ha.elector import LEASE_NAME, LEASES, REPLICA_LABEL, Identity
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import NotFound

log = logs.get_logger(__name__)

CONFIG_MAPS: Final = ResourceType("", "v1", "configmaps", "ConfigMap")
CLAIMS_FIELD: Final = "claims"
_RENEWALS: Final = 3  # within the duration of the Lease: one may fail, and one come late
_WITHDRAW_S: Final = 2.0


def object_name(process: str) -> str:
    """Of both objects of a replica."""
    return f"{LEASE_NAME}-{process}"


class Presence:
    """
    Args:
        client: with a rate of its own
        duration_s: without a renewal for so long, the others take this replica to be gone
        own: the claims of the moment
        publish_interval_s: at least so long between two writes of the claims
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        identity: Identity,
        duration_s: float,
        own: Callable[[], Claims],
        publish_interval_s: float = 1.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._identity = identity
        self._duration_s = duration_s
        self._own = own
        self._publish_interval_s = publish_interval_s
        self._now = now
        self._lease: Object | None = None  # as it was last written; None: read it first
        self._config_map: Object | None = None  # likewise
        self._published: tuple[str, str] = ("", claims.encode({}))  # (uid of the Lease, claims)
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()  # do not wait for the next heartbeat
        self._problems: dict[str, str] = {}  # by what cannot be done

    @property
    def problem(self) -> str:
        """Why the others do not know of this replica, or of its sessions; "" when they do."""
        return "; ".join(self._problems.values())

    def changed(self) -> None:
        """The claims are others than before, or what was published was lost."""
        self._changed.set()

    def lost(self) -> None:
        """Somebody deleted what this replica had published: the Lease may be gone as well."""
        self._published = ("", claims.encode({}))
        self._config_map = self._lease = None
        self._hurry.set()

    async def run(self) -> None:
        """Until cancelled; then nothing of it is left."""
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._heartbeats(), name="presence heartbeat")
                tasks.create_task(self._publications(), name="presence claims")
        finally:
            await self._withdraw()

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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s * random.uniform(0.8, 1.0)):
                    await self._hurry.wait()
            self._hurry.clear()

    async def _beat(self) -> None:
        known = self._lease
        lease = known or await self._found(LEASES)
        if lease is None:
            lease = {"metadata": self._metadata(), "spec": self._spec()}
            self._lease = await self._client.create(LEASES, lease)
        else:
            self._lease = await self._client.replace(LEASES, {**lease, "spec": self._spec()})
        if known is None:
            self.changed()  # what waited for the Lease, which may be another one now

    def _spec(self) -> Object:
        return {
            "holderIdentity": str(self._identity),
            "leaseDurationSeconds": math.ceil(self._duration_s),
            "renewTime": micro_time(self._now()),
        }

    # ---- the claims ----

    async def _publications(self) -> None:
        backoff = Backoff(base_s=1.0, max_s=10.0, floor_s=0.2)
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._publish()
            except EdgeAIError as error:
                self._config_map = None
                self._changed.set()
                if backoff.failures > 0:
                    self._failed("sessions not published", str(error))
                await asyncio.sleep(backoff.next_s())
            else:
                self._problems.pop("sessions not published", None)
                backoff.reset()
                await asyncio.sleep(
                    self._publish_interval_s
                )  # what changes meanwhile goes together

    async def _publish(self) -> None:
        if self._lease is None:
            return  # the next heartbeat comes back to it
        owner, own = self._lease["metadata"], self._own()
        text = claims.encode(own)
        if text == self._published[1] and self._published[0] in ("", owner["uid"]):
            return
        config_map = {
            "metadata": {**self._metadata(), "ownerReferences": [_owner_reference(owner)]},
            "data": {CLAIMS_FIELD: text},
        }
        before = self._published
        written = await self._put(config_map)
        if self._published is before:  # and not lost meanwhile
            self._config_map, self._published = written, (owner["uid"], text)
        if claims.is_full(text) and len(claims.decode(text)) < len(own):
            log.error("more sessions than other replicas can be told of", sessions=len(own))

    async def _put(self, config_map: Object) -> Object:
        known = self._config_map or await self._found(CONFIG_MAPS)
        if known is None:
            return await self._client.create(CONFIG_MAPS, config_map)
        version = {"resourceVersion": known["metadata"]["resourceVersion"]}
        metadata = {**config_map["metadata"], **version}
        return await self._client.replace(CONFIG_MAPS, {**config_map, "metadata": metadata})

    def _metadata(self) -> Object:
        return {
            "name": object_name(self._identity.process),
            "namespace": self._namespace,
            "labels": {REPLICA_LABEL: self._identity.process},
        }

    async def _found(self, type_: ResourceType) -> Object | None:
        ref = ObjectRef(type_, self._namespace, object_name(self._identity.process))
        try:
            return await self._client.get(ref)
        except NotFound:
            return None

    def _failed(self, what: str, problem: str) -> None:
        text = f"{what}: {problem}"
        if text != self._problems.get(what):
            log.warning(what, problem=problem)
        self._problems[what] = text

    async def _withdraw(self) -> None:
        try:
            async with asyncio.timeout(_WITHDRAW_S):
                for type_ in (CONFIG_MAPS, LEASES):
                    found = await self._found(type_)
                    if found is not None:
                        ref = ObjectRef(type_, self._namespace, found["metadata"]["name"])
                        await self._client.delete(ref, uid=Uid(uid_of(found)))
        except (EdgeAIError, TimeoutError) as error:
            log.warning("presence not withdrawn, it runs out", problem=str(error))


def _owner_reference(lease: Object) -> Object:
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "name": lease["name"],
        "uid": lease["uid"],
    }
