"""Builds the three parts that deal with other replicas: elector, presence and roster.

The parts share one client. The roster passes changes of Leases on to elector and presence.
"""

from typing import Final

from common.clock import SYSTEM_CLOCK, Clock
from edgeai.kube.client import KubeClient
from edgeai.kube.sender import ClientSettings
from globalmanager.ha.contacts import Contacts
from globalmanager.ha.elector import Elector, Identity, LeaseTiming
from globalmanager.ha.fence import Fence
from globalmanager.ha.presence import EdgeSide, Presence
from globalmanager.ha.roster import Roster

_QPS: Final = 20.0  # heartbeats and claims need about two requests a second
_BURST: Final = 40


class Membership:
    """Elector, presence and roster, which share connections and a request rate of their own."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        identity: Identity,
        timing: LeaseTiming,
        fence: Fence,
        contacts: Contacts,
        edge_side: EdgeSide | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        # When one request hangs, a second request must fit into the renew deadline.
        deadline_s = timing.renew_deadline_s / 2
        client = client.apart(ClientSettings(qps=_QPS, burst=_BURST, deadline_s=deadline_s))
        self.elector = Elector(
            client,
            namespace=namespace,
            identity=identity,
            fence=fence,
            timing=timing,
            clock=clock,
        )
        self.presence = Presence(
            client,
            namespace=namespace,
            identity=identity,
            duration_s=timing.duration_s,
            contacts=contacts,
            edge_side=edge_side,
            clock=clock,
        )
        self.roster = Roster(
            client,
            leading_client=client.guarded(fence),
            namespace=namespace,
            own_name=identity.process,
            duration_s=timing.duration_s,
            contacts=contacts,
            elector=self.elector,
            presence=self.presence,
            clock=clock,
        )

    def unknown(self) -> tuple[str, ...]:
        """Why this replica does not know the others, and serves no edges yet; "" when it does."""
        unread = f"Lease: {self.elector.problem}" if self.elector.epoch == 0 else ""
        return tuple(problem for problem in (unread, self.roster.problem) if problem)

    def complaints(self) -> tuple[str, ...]:
        """Problems with the other replicas in spite of which this one serves edges."""
        is_known = self.elector.epoch > 0  # without an epoch, `unknown` names the problem
        lease = f"Lease: {self.elector.problem}" if is_known and self.elector.problem else ""
        return tuple(filter(None, (lease, self.presence.problem, *self.roster.complaints)))
