"""This replica among the others: whether it leads, which nodes it serves, and which they serve.

Built and run by app. It joins elector, presence and roster with the sessions and the engine;
each of these knows nothing of the others.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from common.errors import SettingsError
from common.ids import NodeName
from globalmanager.contract import Contact
from globalmanager.edge.sessions.registry import SessionInfo, Sessions
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.ha.claims import Claim
from globalmanager.ha.elector import Elector, Identity, LeaseTiming
from globalmanager.ha.fence import Fence
from globalmanager.ha.presence import Presence
from globalmanager.ha.roster import Roster
from globalmanager.kube.client import ClientSettings, KubeClient
from globalmanager.settings import Settings

_QPS: Final = 20.0  # of heartbeats and claims, which need about two
_BURST: Final = 40


class Replica:
    """
    Args:
        sessions: those of this replica; asked for whenever they are needed
        led: called when this replica begins to lead (True) and when it no longer does
        contact_changed: a node has now a session where it had none, or the other way round
        clashed: another replica found that two LocalControllers use this node's name

    Raises: SettingsError
    """

    def __init__(
        self,
        settings: Settings,
        client: KubeClient,
        *,
        sessions: Callable[[], Sessions],
        led: Callable[[bool], None],
        contact_changed: Callable[[NodeName], None],
        clashed: Callable[[NodeName], None],
        metrics: EngineMetrics,
    ) -> None:
        timing = lease_timing(settings)
        namespace = settings.system_namespace
        identity = identify(settings.replica_name)
        # One request that hangs must leave time for another one.
        deadline_s = timing.renew_deadline_s / 2
        apart = client.apart(ClientSettings(qps=_QPS, burst=_BURST, deadline_s=deadline_s))
        self._led = led
        self._metrics = metrics
        self.fence = Fence()
        self._elector = Elector(
            apart,
            namespace=namespace,
            identity=identity,
            fence=self.fence,
            timing=timing,
            on_change=self._on_change,
        )
        self._presence = Presence(
            apart,
            namespace=namespace,
            identity=identity,
            duration_s=timing.duration_s,
            own=lambda: sessions().claims(),
        )
        self._roster = Roster(
            apart,
            leading_client=apart.guarded(self.fence),
            namespace=namespace,
            me=identity.process,
            duration_s=timing.duration_s,
            own=lambda: sessions().claims(),
            contact_changed=contact_changed,
            claimed_elsewhere=lambda node, claim: sessions().claimed_elsewhere(node, claim),
            clashed=clashed,
            leader_lease=self._elector.look_soon,
            lost=self._presence.lost,
        )
        metrics.epoch.set_function(lambda: self._elector.epoch)

    async def observe(self) -> None:
        """Know the others; until cancelled."""
        await self._roster.run()

    async def attend(self) -> None:
        """Be known to the others; until cancelled, and from then on not any more."""
        await self._presence.run()

    async def stand(self) -> None:
        """Stand for election; until cancelled, then another one may lead at once."""
        await self._elector.run()

    # ---- asked by others ----

    @property
    def leads(self) -> bool:
        return self.fence.left_s() > 0

    @property
    def epoch(self) -> int:
        """The highest that this replica has seen, be it its own reign or another's."""
        return self._elector.epoch

    def contacts(self) -> Mapping[NodeName, Contact]:
        """Every node that was heard of, at whichever replica; a live view, read-only."""
        return self._roster.contacts()

    def elsewhere(self, node: NodeName) -> Claim | None:
        return self._roster.elsewhere(node)

    def own_contact_changed(self, node: NodeName) -> None:
        """A node has got its first session here, or lost its last."""
        self._roster.own_changed(node)

    def own_claims_changed(self) -> None:
        self._presence.changed()

    def must_wait_for(self) -> tuple[str, ...]:
        """What is not known of the others yet; before that no edge is served."""
        unread = f"Lease: {self._elector.problem}" if self.epoch == 0 else ""
        return tuple(problem for problem in (unread, self._roster.problem) if problem)

    def complaints(self) -> tuple[str, ...]:
        """What else does not work among the replicas; edges can be served nevertheless."""
        unusable = f"Lease: {self._elector.problem}" if self._elector.problem else ""
        lease = unusable if self.epoch else ""  # else it is waited for
        return tuple(filter(None, (lease, self._presence.problem, *self._roster.complaints)))

    def _on_change(self, leads: bool) -> None:
        self._metrics.leading.set(leads)
        self._led(leads)


class Book:
    """What REST shows of sessions: contacts of all replicas, details of this one's."""

    def __init__(self, replica: Replica, sessions: Sessions) -> None:
        self._replica = replica
        self._sessions = sessions

    def contacts(self) -> Mapping[NodeName, Contact]:
        return self._replica.contacts()

    def snapshot(self) -> Iterable[SessionInfo]:
        return self._sessions.snapshot()

    def problem(self, node: NodeName) -> str:
        return self._sessions.problem(node)

    def desired_count(self, node: NodeName) -> int:
        return self._sessions.desired_count(node)


def lease_timing(settings: Settings) -> LeaseTiming:
    """Raises: SettingsError"""
    try:
        return LeaseTiming(
            duration_s=settings.lease_duration_s,
            renew_deadline_s=settings.lease_renew_deadline_s,
            retry_s=settings.lease_retry_s,
        )
    except ValueError as error:
        raise SettingsError(
            "flags --lease-duration-s, --lease-renew-deadline-s, --lease-retry-s", str(error)
        ) from error


def identify(replica_name: str) -> Identity:
    process = secrets.token_hex(5)
    return Identity(replica_name or f"{socket.gethostname()}-{process}", process)


async def end(task: asyncio.Task[None]) -> None:
    """Cancel, and wait until it has put its things in order, which it does in bounded time."""
    task.cancel()
    await asyncio.wait([task])
