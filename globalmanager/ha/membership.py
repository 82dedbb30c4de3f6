"""This replica as one of several: its elector, presence and roster, built together.

Built by app, which runs the three. They share one client, and the roster's news of the Leases
reaches the other two.
"""

from typing import Final

from globalmanager.ha.contacts import Contacts
from globalmanager.ha.elector import Elector, Identity, LeaseTiming
from globalmanager.ha.fence import Clock, Fence, elapsed
from globalmanager.ha.presence import Presence
from globalmanager.ha.roster import Roster
from globalmanager.kube.client import ClientSettings, KubeClient

_QPS: Final = 20.0  # heartbeats and claims need about two requests a second
_BURST: Final = 40


class Membership:
    """
    Args:
        client: whose connections are used, with a rate of their own: see Elector
        namespace: of the Leases and ConfigMaps
        fence: open while this replica leads
        contacts: has the claims of this replica, and is given those of the others
        clock: the roster's; seconds, monotonic
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        identity: Identity,
        timing: LeaseTiming,
        fence: Fence,
        contacts: Contacts,
        clock: Clock = elapsed,
    ) -> None:
        # A request that hangs must leave time for another one within the renewal's deadline.
        deadline_s = timing.renew_deadline_s / 2
        client = client.apart(ClientSettings(qps=_QPS, burst=_BURST, deadline_s=deadline_s))
        self.elector = Elector(
            client, namespace=namespace, identity=identity, fence=fence, timing=timing
        )
        self.presence = Presence(
            client,
            namespace=namespace,
            identity=identity,
            duration_s=timing.duration_s,
            contacts=contacts,
        )
        self.roster = Roster(
            client,
            leading_client=client.guarded(fence),
            namespace=namespace,
            me=identity.process,
            duration_s=timing.duration_s,
            contacts=contacts,
            on_leader_lease=self.elector.look_soon,
            on_own_deleted=self.presence.publish_again,
            clock=clock,
        )

    def unknown(self) -> tuple[str, ...]:
        """What is not known of the other replicas yet; until then no edge is served."""
        unread = f"Lease: {self.elector.problem}" if self.elector.epoch == 0 else ""
        return tuple(problem for problem in (unread, self.roster.problem) if problem)

    def complaints(self) -> tuple[str, ...]:
        """What else does not work among the replicas; edges can be served nevertheless."""
        is_known = self.elector.epoch > 0  # else the Lease is among `unknown`
        lease = f"Lease: {self.elector.problem}" if is_known and self.elector.problem else ""
        return tuple(filter(None, (lease, self.presence.problem, *self.roster.complaints)))
