"""One live session for each node: who is connected, since when, and what it holds.

What other replicas serve comes in as claims, and each session here is one: the newest wins.

The server gives each authenticated connection to `serve`. The engine reads `contacts` and hears
of changes; the REST server reads `snapshot`. The newer connection of a node wins; nodes whose
connections keep replacing each other (two LocalControllers with one name) are held off.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import msgspec
from websockets.asyncio.server import ServerConnection

from common import wire
from common.cloud_session import Desired
from common.ids import NodeName, TaskKey
from common.logs import bind, get_logger
from globalmanager.contract import Contact
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.downstream import DesiredSets
from globalmanager.edge.sessions.inbox import Inbox
from globalmanager.edge.sessions.link import Link, LinkTiming
from globalmanager.ha.claims import Claim, Claims, fingerprint

log = get_logger(__name__)

FLAP_COUNT: Final = 3  # so many replacements …
FLAP_WINDOW_S: Final = 60.0  # … within this time are two LocalControllers with one name
FLAP_RETRY_AFTER_S: Final = 30
MAX_PROBLEM_CHARS: Final = 256  # a peer may have written it
REMEMBERED_INSTANCES: Final = 8  # of each node, among which one that comes back is looked for

NodeCallback = Callable[[NodeName], None]


def nowhere(_node: NodeName) -> Claim | None:
    """The `elsewhere` of a GlobalManager without other replicas."""
    return None


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to know of a live session."""

    node: NodeName
    since: datetime
    session: str
    instance: str
    protocol_version: int
    desired: int
    held: int
    synced: bool
    last_report_at: datetime | None


class Replacements:
    """When connections of a node were replaced by newer ones, as far as it matters."""

    def __init__(self) -> None:
        self._at: dict[NodeName, deque[float]] = {}

    def note(self, node: NodeName, now: float) -> bool:
        """Count one at `now`, monotonic seconds. Returns: whether the node flaps with it."""
        times = self._at.setdefault(node, deque(maxlen=FLAP_COUNT))
        times.append(now)
        return self.is_flapping(node, now)

    def is_flapping(self, node: NodeName, now: float) -> bool:
        times = self._at.get(node)
        if times is None or len(times) < FLAP_COUNT:
            return False
        return now < times[0] + FLAP_WINDOW_S


class Rivals:
    """Tells two LocalControllers of one name from one that came back: they take turns."""

    def __init__(self) -> None:
        self._replaced: dict[NodeName, deque[str]] = {}  # instances that lost a live session

    def note(self, node: NodeName, *, older: str, newer: str) -> bool:
        """`newer` took over from `older`. Returns: whether it had lost to somebody before"""
        if older == newer:
            return False
        replaced = self._replaced.setdefault(node, deque(maxlen=REMEMBERED_INSTANCES))
        replaced.append(older)
        return newer in replaced


class Sessions:
    """The registry. All calls come from the event loop's thread.

    Args:
        epoch: the GlobalManager's fencing epoch, asked at each welcome
        contact_changed: a node has got its first session, or lost its last
        claims_changed: `claims` shows others than before
        duplicate_node: two LocalControllers use this node's name
        elsewhere: the newest claim of another replica on a node
        utcnow: UTC
    """

    def __init__(
        self,
        *,
        desired: DesiredSets,
        inbox: Inbox,
        epoch: Callable[[], int],
        contact_changed: NodeCallback,
        duplicate_node: NodeCallback,
        metrics: EdgeMetrics,
        elsewhere: Callable[[NodeName], Claim | None] = nowhere,
        claims_changed: Callable[[], None] = lambda: None,
        timing: LinkTiming = LinkTiming(),  # noqa: B008 - frozen
        utcnow: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._desired = desired
        self._inbox = inbox
        self._epoch = epoch
        self._contact_changed = contact_changed
        self._duplicate_node = duplicate_node
        self._elsewhere = elsewhere
        self._claims_changed = claims_changed
        self._metrics = metrics
        self._timing = timing
        self._utcnow = utcnow
        self._opening: dict[NodeName, Link] = {}  # connected, Hello not received yet
        self._open: dict[NodeName, Link] = {}
        self._claims: dict[NodeName, Claim] = {}
        self._clashes: dict[NodeName, int] = {}
        self._contacts: dict[NodeName, Contact] = {}
        self._problems: dict[NodeName, str] = {}  # of nodes without a session here
        self._replacements = Replacements()
        self._rivals = Rivals()
        self._last_id = 0
        desired.subscribe(self._on_desired)

    def contacts(self) -> Mapping[NodeName, Contact]:
        """Every node that ever had a session here; a live view, read-only."""
        return MappingProxyType(self._contacts)

    def claims(self) -> Claims:
        """One for each live session; a live view, read-only."""
        return MappingProxyType(self._claims)

    def claimed_elsewhere(self, node: NodeName, claim: Claim) -> None:
        """Another replica has a newer session of `node`: the one here is over."""
        link = self._open.get(node)
        if link is not None and link.is_live:
            self._rivals.note(node, older=fingerprint(link.instance), newer=claim.instance)
            link.close(wire.Close.REPLACED, "a newer session of this node at another replica")

    def snapshot(self) -> Iterator[SessionInfo]:
        """The live sessions, in no order."""
        return (self._info(link) for link in self._open.values())

    def problem(self, node: NodeName) -> str:
        """Why the last connection of `node` ended; empty while it has a session here."""
        return self._problems.get(node, "")

    def desired_count(self, node: NodeName) -> int:
        """Tasks that `node` is to hold, whether or not it has a session."""
        return len(self._desired.for_node(node))

    def must_wait_s(self, node: NodeName) -> int | None:
        """Seconds that a new connection of `node` must stay away; None: it may come."""
        now = asyncio.get_running_loop().time()
        if self._rival(node) is None or not self._replacements.is_flapping(node, now):
            return None
        return FLAP_RETRY_AFTER_S

    async def serve(self, node: NodeName, websocket: ServerConnection) -> None:
        """Serve one authenticated connection until it ends."""
        self._last_id += 1
        link = Link(
            node=node,
            session_id=f"{node}-{self._last_id}",
            websocket=websocket,
            owner=self,
            timing=self._timing,
            metrics=self._metrics,
        )
        with bind(node=node, session=link.session_id):
            self._replace(self._opening.get(node), node)
            self._opening[node] = link
            try:
                await link.run()
            finally:
                self._remove(link)

    def revoke(self, node: NodeName, websocket: ServerConnection) -> None:
        """End the session on this connection: what it was admitted with is no longer good."""
        for link in (self._opening.get(node), self._open.get(node)):
            if link is not None and link.is_on(websocket):
                link.close(wire.Close.REVOKED, "the credential is no longer good")

    # ---- what a link tells ----

    def on_hello(self, link: Link) -> None:
        # A link that was replaced is closed and says no more: this is the one that is opening.
        del self._opening[link.node]
        self._take_over(self._open.get(link.node), link)
        self._claim(link)
        self._open[link.node] = link
        self._problems.pop(link.node, None)
        link.welcome(epoch=self._epoch(), desired=self._desired.for_node(link.node))
        self._metrics.sessions.set(len(self._open))
        self._set_contact(link.node, connected=True)
        log.info(
            "session open",
            instance=link.instance,
            held=len(link.held),
            protocol_version=link.protocol_version,
        )

    def on_report(self, link: Link, report: wire.Report) -> bool:
        link.last_report_at = self._utcnow()
        return self._inbox.offer(link, report)

    # ---- inside ----

    def _on_desired(self, node: NodeName, key: TaskKey, task: Desired | None) -> None:
        link = self._open.get(node)
        if link is not None:
            link.desire(key, task)

    def _rival(self, node: NodeName) -> Link | None:
        return self._open.get(node) or self._opening.get(node)

    def _take_over(self, older: Link | None, newer: Link) -> None:
        if older is None or not older.is_live:
            return
        self._note_rival(newer, older=fingerprint(older.instance))
        self._replace(older, newer.node)

    def _note_rival(self, newer: Link, *, older: str) -> None:
        if self._rivals.note(newer.node, older=older, newer=fingerprint(newer.instance)):
            log.warning("two LocalControllers use one name", node=newer.node)
            self._clash(newer.node)

    def _clash(self, node: NodeName) -> None:
        self._clashes[node] = self._clashes.get(node, 0) + 1
        claim = self._claims.get(node)
        if claim is not None:
            self._claims[node] = msgspec.structs.replace(claim, clashes=self._clashes[node])
            self._claims_changed()
        self._duplicate_node(node)

    def _claim(self, link: Link) -> None:
        """Say that the node's session is here; whoever has an older one ends that."""
        known, before = self._elsewhere(link.node), self._claims.get(link.node)
        if known is not None:
            self._note_rival(link, older=known.instance)
        self._claims[link.node] = Claim(
            order=1 + max((each.order for each in (known, before) if each), default=0),
            since=int(self._utcnow().timestamp()),
            instance=fingerprint(link.instance),
            clashes=self._clashes.get(link.node, 0),
        )
        self._claims_changed()

    def _replace(self, older: Link | None, node: NodeName) -> None:
        if older is None or not older.is_live:
            return
        older.close(wire.Close.REPLACED, "a newer session of this node took over")
        if self._replacements.note(node, asyncio.get_running_loop().time()):
            log.warning("sessions of one node keep replacing each other", node=node)
            self._clash(node)

    def _remove(self, link: Link) -> None:
        self._inbox.drop(link)
        code, reason = link.ended_as
        self._metrics.ended.labels(code_label(code)).inc()
        tell = log.warning if code == wire.Close.PROTOCOL else log.info
        tell("session over", code=code, reason=reason)
        if self._opening.get(link.node) is link:
            del self._opening[link.node]
        if self._open.get(link.node) is link:
            del self._open[link.node]
            del self._claims[link.node]
            self._claims_changed()
            self._metrics.sessions.set(len(self._open))
            self._set_contact(link.node, connected=False)
        if link.node not in self._open:
            self._problems[link.node] = reason[:MAX_PROBLEM_CHARS]

    def _set_contact(self, node: NodeName, *, connected: bool) -> None:
        before = self._contacts.get(node)
        if before is not None and before.connected == connected:
            return  # one session took over from another
        self._contacts[node] = Contact(connected, self._utcnow())
        self._contact_changed(node)

    def _info(self, link: Link) -> SessionInfo:
        return SessionInfo(
            node=link.node,
            since=self._contacts[link.node].since,
            session=link.session_id,
            instance=link.instance,
            protocol_version=link.protocol_version,
            desired=self.desired_count(link.node),
            held=len(link.held),
            synced=link.synced,
            last_report_at=link.last_report_at,
        )


def code_label(code: int) -> str:
    """A close code as a metric's label: a peer may send any number, a metric must stay bounded."""
    return str(code) if code in set(wire.Close) else "other"
