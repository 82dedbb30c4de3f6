"""Elects the leader, the one replica that reconciles, by a Lease of Kubernetes.

Run by app, once in each replica. The elector keeps the fence open while this replica surely leads.
The elector closes the fence before any other replica can lead. A "reign" is the time for which one
replica leads after an election. The field `leaseTransitions` of the Lease is the epoch. The epoch
grows with each reign, and the edges learn the epoch. A replica never relies on the wall clock of
another replica. A replica measures with its own clock for how long it has seen no renewal of the
Lease. So does client-go's elector, but here a request of the leader ends with the reign.
"""

import asyncio
import math
import random
import secrets
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from common import logs
from common.clock import SYSTEM_CLOCK, Clock
from common.tasks import wait_at_most
from edgeai import times
from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.errors import EdgeAIError
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Conflict, NotFound
from edgeai.times import micro_time
from globalmanager.ha.fence import Fence

log = logs.get_logger(__name__)

LEASES: Final = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")
LEASE_NAME: Final = "edgeai-globalmanager"
REPLICA_LABEL: Final = "edgeai.io/replica"
_NO_HOLDER: Final = ""
_RELEASE_S: Final = 2.0
# Reigns follow each other more slowly. The 32 bits of `leaseTransitions` last until 2106.
_EPOCH_S: Final = 2
_JITTER: Final = 0.2  # a pause is shorter than `retry_s` by up to this share

LeadershipListener = Callable[[bool], None]


class LeaseTiming(msgspec.Struct, frozen=True, kw_only=True):
    """The times of the election, in seconds. Kubernetes' own components use a longer `retry_s`."""

    duration_s: float = 15.0
    """Time without a renewal of the Lease after which another replica may lead."""
    renew_deadline_s: float = 10.0
    """The leader may write for this time after its last renewal of the Lease."""
    retry_s: float = 1.5
    """Longest pause between two renewals of the Lease by the leader, or between two reads by
    another replica. So another replica follows a dead leader at most `duration_s + retry_s` after
    the leader's last renewal."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_deadline_s < self.duration_s < math.inf:
            raise ValueError(
                f"need 0 < retry {self.retry_s:g} < renew deadline {self.renew_deadline_s:g} < "
                f"lease duration {self.duration_s:g}"
            )


class Identity(NamedTuple):
    """Identifies the holder of a Lease. `replica` stays the same after a restart of the process,
    for example a pod's name. `process` differs for each process.
    """

    replica: str
    process: str

    @classmethod
    def of_this_process(cls, replica_name: str) -> "Identity":
        """The identity of this process.

        Args: replica_name: "" when the settings give no name. In that case no process counts as
            successor of another process: two hosts or containers may have one host name.
        """
        process = secrets.token_hex(5)
        return cls(replica_name or f"{socket.gethostname()}-{process}", process)

    def __str__(self) -> str:
        return f"{self.replica}_{self.process}"

    def is_successor_of(self, holder: str) -> bool:
        """Whether `holder` is an earlier process of this replica, which must have ended by now."""
        replica, _, process = holder.rpartition("_")
        return bool(self.replica) and replica == self.replica and process != self.process


class Elector:
    """Takes, renews and releases the Lease of the leader.

    Args:
        client: has a request rate of its own, so that a renewal never waits for other requests
        fence: open while this replica leads
        clock: the clock of the fence; its UTC is written into the Lease
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        identity: Identity,
        fence: Fence,
        timing: LeaseTiming | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._ref = ObjectRef(LEASES, namespace, LEASE_NAME)
        self._identity = identity
        self._fence = fence
        self._timing = timing or LeaseTiming()
        self._listeners: list[LeadershipListener] = []
        self._clock = clock
        self._lease: Object | None = None  # state of the last read or write; None: unknown
        self._last_spec: Object = {}  # the newest known spec of the Lease
        self._seen_at = -math.inf  # time when this replica first saw this spec
        self._look = asyncio.Event()  # set: read or renew the Lease without a pause
        self.leads = False
        self.epoch = 0
        """The highest known epoch of any replica; 0 before the first read of a Lease."""
        self.problem = "the Lease was not read yet"
        """Why the last read or renewal of the Lease failed; "" when it succeeded."""

    def subscribe(self, listener: LeadershipListener) -> None:
        """Call `listener` when this replica begins to lead (True) and ends to lead (False)."""
        self._listeners.append(listener)

    @property
    def holder(self) -> str:
        return str(self._last_spec.get("holderIdentity") or _NO_HOLDER)

    def look_soon(self, spec: Object) -> None:
        """Read the Lease at once if `spec`, from a watch, has a new holder or epoch."""
        term = (spec.get("holderIdentity") or _NO_HOLDER, _epoch_of(spec))
        if term != (self.holder, self.epoch):
            self._look.set()

    async def run(self) -> None:
        """Take part in elections until cancelled. Then release the Lease in limited time."""
        try:
            while True:
                await self.look()
                await self._pause()
        finally:
            await self._release()

    async def look(self) -> None:
        """Try once to renew the Lease as leader, or to read it and take a free one.

        The attempt ends within a limited time.
        """
        self._look.clear()
        self._check_reign()
        bound_s = self._fence.left_s() if self.leads else self._timing.renew_deadline_s
        try:
            async with asyncio.timeout(bound_s):
                await self._attempt()
            self.problem = ""
        except (EdgeAIError, TimeoutError) as error:
            self._lease = None
            if self.leads and isinstance(error, Conflict):
                self._look.set()  # another client wrote the Lease, so read it again now
            self._failed(str(error) or f"the Lease cannot be reached for {bound_s:g} s")
        self._check_reign()

    async def _attempt(self) -> None:
        lease = self._lease if self.leads else None
        try:
            lease = lease or await self._client.get(self._ref)
        except NotFound:
            await self._take(await self._create(), is_renewal=False)
            return
        self._see(lease)
        if self.leads and self.holder != str(self._identity):
            self._end_reign("another replica took the Lease")
        if self.leads or self._is_free():
            await self._take(lease, is_renewal=self.leads)

    def _see(self, lease: Object) -> None:
        spec = lease.get("spec") or {}
        if spec != self._last_spec:
            self._last_spec, self._seen_at = spec, self._clock.elapsed()
        self.epoch = max(self.epoch, _epoch_of(spec))

    def _is_free(self) -> bool:
        if self.holder in (_NO_HOLDER, str(self._identity)):
            return True
        if self._identity.is_successor_of(self.holder):
            return True
        return self._runs_out_s() <= 0

    def _runs_out_s(self) -> float:
        """Seconds until the Lease runs out, if its holder does not renew it."""
        duration_s = float(self._last_spec.get("leaseDurationSeconds") or self._timing.duration_s)
        return self._seen_at + duration_s - self._clock.elapsed()

    async def _create(self) -> Object:
        """Create the Lease without a holder, who then learns the time of the API server."""
        metadata = {
            "name": self._ref.name,
            "namespace": self._ref.namespace,
            "labels": {REPLICA_LABEL: "leader"},
        }
        lease = {"metadata": metadata, "spec": {"leaseTransitions": self.epoch}}
        return await self._client.create(LEASES, lease)

    async def _take(self, lease: Object, *, is_renewal: bool) -> None:
        """Write this replica as holder into the Lease.

        Raises: Conflict when another client wrote the Lease after `lease` was read
        """
        spec = lease.get("spec") or {}
        epoch = _epoch_of(spec)
        if not is_renewal:
            was_held = "renewTime" in spec
            epoch = 1 + max(self.epoch, epoch, 0 if was_held else _first_epoch(lease))
        labels = {**(lease["metadata"].get("labels") or {}), REPLICA_LABEL: "leader"}
        new_lease = {
            **lease,
            "metadata": {**lease["metadata"], "labels": labels},
            "spec": self._spec(spec, epoch),
        }
        asked_at = self._clock.elapsed()
        self._reign(await self._client.replace(LEASES, new_lease), asked_at)

    def _spec(self, before: Object, epoch: int) -> Object:
        now = micro_time(self._clock.utcnow())
        return {
            **before,
            "holderIdentity": str(self._identity),
            "acquireTime": before.get("acquireTime", now) if self.leads else now,
            "renewTime": now,
            "leaseDurationSeconds": math.ceil(self._timing.duration_s),
            "leaseTransitions": epoch,
        }

    def _reign(self, lease: Object, asked_at: float) -> None:
        """Begin or extend the reign, because this replica holds the Lease.

        Args: asked_at: the time when this replica sent the write of the Lease. Another replica may
            have seen the renewal at this moment, so the reign counts from this time.
        """
        self._lease = lease
        self._see(lease)
        self._fence.open_until(asked_at + self._timing.renew_deadline_s)
        if not self.leads and self._fence.left_s() > 0:
            self.leads = True
            log.info("leading", epoch=self.epoch, identity=str(self._identity))
            self._tell(True)

    def _check_reign(self) -> None:
        if self.leads and self._fence.left_s() <= 0:
            self._end_reign(self.problem or "the Lease was not renewed in time")

    def _end_reign(self, reason: str) -> None:
        self._fence.close()
        self.leads = False
        log.warning("not leading any more", epoch=self.epoch, reason=reason)
        self._tell(False)

    def _tell(self, leads: bool) -> None:
        for listener in self._listeners:
            listener(leads)

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("the Lease cannot be used", resource=str(self._ref), problem=problem)
        self.problem = problem

    def pause_s(self) -> float:
        """Seconds from now until the next look, unless `look_soon` ends the pause."""
        seconds = self._timing.retry_s * random.uniform(1 - _JITTER, 1)
        if self.leads:
            return min(seconds, self._fence.left_s())
        runs_out_s = self._runs_out_s()
        # A follower looks again when the Lease runs out, and not up to one pause later.
        return min(seconds, runs_out_s) if runs_out_s > 0 else seconds

    async def _pause(self) -> None:
        await wait_at_most(self.pause_s(), self._look)

    async def _release(self) -> None:
        """Cancel the writes under way. Then release the Lease, so that another can lead."""
        if not self.leads:
            return
        self._end_reign("this replica stops")
        try:
            async with asyncio.timeout(_RELEASE_S):
                # a cancelled renewal may have changed the Lease
                lease = await self._client.get(self._ref)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") == str(self._identity):
                    now = micro_time(self._clock.utcnow())
                    free = {"holderIdentity": _NO_HOLDER, "renewTime": now}
                    await self._client.replace(LEASES, {**lease, "spec": {**spec, **free}})
        except (EdgeAIError, TimeoutError) as error:
            log.warning("Lease not released, it runs out", problem=str(error))


def _epoch_of(spec: Object) -> int:
    return int(spec.get("leaseTransitions") or 0)


def _first_epoch(lease: Object) -> int:
    """The time from 1970 to the creation of the Lease, by the clock of the API server, in units of
    `_EPOCH_S`.

    An administrator may have deleted an earlier Lease, but edges know its epoch, and the epochs of
    the new Lease must be greater. They are, because a reign takes longer than one unit. The clock
    of this replica may be wrong by years. Its time would lock out every later Lease.
    """
    creation = times.parse(lease["metadata"].get("creationTimestamp") or "1970-01-01T00:00:00Z")
    return int(creation.timestamp()) // _EPOCH_S
