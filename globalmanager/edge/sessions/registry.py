"""The live sessions of this replica, at most one for each node.

A new connection of a node replaces the older one. When the connections of a node replace each other
again and again, two LocalControllers use the node's name, and the node must wait. Each open session
is a claim in Contacts. A newer claim of another replica closes the session.
"""

import math
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import Final, Protocol

import msgspec

from common import wire
from common.clock import SYSTEM_CLOCK, Clock, loop_time
from common.logs import bind, get_logger
from common.ratelimit import TokenBucket
from edgeai.ids import NodeName, TaskKey
from edgeai.newest import NewestKeys
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.cloud_session import Desired
from globalmanager.edge.sessions.connection import SessionConnection
from globalmanager.edge.sessions.desired_sets import DesiredSets
from globalmanager.edge.sessions.driver import DriverTiming, SessionDriver, frame_rate
from globalmanager.edge.sessions.inbox import Inbox
from globalmanager.ha.claims import Claim, day_of, fingerprint
from globalmanager.ha.contacts import Contacts, ContactSubscriber
from globalmanager.traces import NO_TRACES, TaskTraces

log = get_logger(__name__)

# A node flaps when FLAP_COUNT of its sessions were replaced within FLAP_WINDOW_S seconds.
FLAP_COUNT: Final = 3
FLAP_WINDOW_S: Final = 60.0
FLAP_RETRY_AFTER_S: Final = 30  # seconds that a connection of a flapping node must stay away
MAX_PROBLEM_CHARS: Final = 256  # of a close reason, because the peer may have written the reason
REMEMBERED_LEDGERS: Final = 8  # for each node; see DuplicateNodes
REMEMBERED_RATES: Final = 20_000  # nodes whose rate of frames is remembered


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A live session, as REST shows it. `desired` and `held` are numbers of tasks."""

    node: NodeName
    session: str
    ledger_id: str
    protocol_version: int
    release: str
    """Of the LocalController, as it tells; "" when it does not."""
    desired: int
    held: int
    synced: bool
    opened_at: datetime | None
    last_report_at: datetime | None


class Reign(Protocol):
    """The highest known epoch, of the reign of this or another replica."""

    epoch: int


class Replacements:
    """Remembers when the sessions of each node were replaced, in order to find nodes that flap."""

    def __init__(self) -> None:
        self._at: dict[NodeName, deque[float]] = {}

    def note(self, node: NodeName, now: float) -> bool:
        """Note a replacement at `now`, monotonic seconds. Returns: whether the node flaps now"""
        times = self._at.setdefault(node, deque(maxlen=FLAP_COUNT))
        times.append(now)
        return self.is_flapping(node, now)

    def is_flapping(self, node: NodeName, now: float) -> bool:
        times = self._at.get(node)
        if times is None or len(times) < FLAP_COUNT:
            return False
        return now < times[0] + FLAP_WINDOW_S


class DuplicateNodes:
    """Finds two LocalControllers that use one name. Their sessions replace each other alternately.

    A single LocalController never returns to an earlier ledger. When it loses its ledger, it makes
    a new one. So two ledgers that come back alternately belong to two LocalControllers.
    """

    def __init__(self) -> None:
        # ledgers of sessions that another session replaced
        self._old_ledgers: dict[NodeName, deque[str]] = {}

    def note(self, node: NodeName, *, older: str, newer: str) -> bool:
        """Note that a session with the ledger `newer` has replaced one with `older`. Returns:
        whether one with `newer` was replaced before, so that two LocalControllers use the name
        """
        if older == newer:
            return False
        ledgers = self._old_ledgers.setdefault(node, deque(maxlen=REMEMBERED_LEDGERS))
        ledgers.append(older)
        return newer in ledgers


class Sessions(ContactSubscriber):
    """The live sessions by node. All calls come from the event loop's thread."""

    def __init__(
        self,
        *,
        desired: DesiredSets,
        inbox: Inbox,
        contacts: Contacts,
        elector: Reign,
        metrics: EdgeMetrics,
        timing: DriverTiming = DriverTiming(),  # noqa: B008 - frozen
        clock: Clock = SYSTEM_CLOCK,
        traces: TaskTraces = NO_TRACES,
    ) -> None:
        self._desired = desired
        self._traces = traces
        self._inbox = inbox
        self._contacts = contacts
        self._elector = elector
        self._metrics = metrics
        self._timing = timing
        self._clock = clock
        self._opening: dict[NodeName, SessionDriver] = {}  # sessions that wait for the Hello
        self._open: dict[NodeName, SessionDriver] = {}
        self._problems: dict[NodeName, str] = {}  # node -> why its last session ended
        self._replacements = Replacements()
        self._duplicates = DuplicateNodes()
        # of each node; a bucket outlives its session, so a new session brings no new burst
        self._frame_rates = NewestKeys[NodeName, TokenBucket](REMEMBERED_RATES)
        self._last_id = 0
        metrics.assignment_oldest_s.set_function(self._assignment_oldest_s)
        desired.subscribe(self._on_desired)
        contacts.subscribe(self)

    def snapshot(self) -> Iterator[SessionInfo]:
        """The live sessions, in no particular order."""
        return (self._info(session) for session in self._open.values())

    def problem(self, node: NodeName) -> str:
        """Why the last connection of `node` ended; "" while it has a session at this replica."""
        return self._problems.get(node, "")

    def _assignment_oldest_s(self) -> float:
        sinces = (session.unacknowledged_since for session in self._open.values())
        since = min(sinces, default=math.inf)
        return 0.0 if math.isinf(since) else loop_time() - since

    def desired_count(self, node: NodeName) -> int:
        """The number of tasks that `node` must hold, whether or not the node has a session."""
        return len(self._desired.for_node(node))

    def must_wait_s(self, node: NodeName) -> int | None:
        """Seconds for which `node` must not connect, because it flaps; None when it may."""
        now = loop_time()
        has_session = node in self._open or node in self._opening
        if not has_session or not self._replacements.is_flapping(node, now):
            return None
        return FLAP_RETRY_AFTER_S

    async def serve(self, node: NodeName, websocket: SessionConnection) -> None:
        """Serve one authenticated connection of `node` until the connection ends."""
        self._last_id += 1
        rate = self._frame_rates.get(node) or frame_rate(self._timing)
        self._frame_rates[node] = rate
        session = SessionDriver(
            node=node,
            session_id=f"{node}-{self._last_id}",
            websocket=websocket,
            release=websocket.release,
            certificate_end=day_of(websocket.certificate_expires_at),
            owner=self,
            timing=self._timing,
            frames=rate,
            metrics=self._metrics,
            traces=self._traces,
        )
        with bind(node=node, session=session.session_id):
            self._replace(self._opening.get(node), node)
            self._opening[node] = session
            try:
                await session.run()
            finally:
                self._remove(session)

    def synced_nodes(self) -> Iterator[NodeName]:
        """The nodes that hold their whole desired set. The oldest session comes first."""
        return (node for node, session in self._open.items() if session.is_live and session.synced)

    def move(self, node: NodeName, url: str) -> None:
        """Send `node` to the replica at `url`; "": it dials the GlobalManager as configured."""
        self._open[node].close(wire.Close.MOVED, url)

    def revoke(self, node: NodeName, websocket: SessionConnection) -> None:
        """Close the session on this connection, because its credential is no longer good."""
        for session in (self._opening.get(node), self._open.get(node)):
            if session is not None and session.is_on(websocket):
                session.close(wire.Close.REVOKED, "the credential is no longer good")

    # ---- called by a session ----

    def on_hello(self, session: SessionDriver) -> None:
        # `_opening` has this session and no other: a replaced one is closed and sends no Hello.
        del self._opening[session.node]
        older = self._open.get(session.node)
        if older is not None and older.is_live:
            self._note_duplicate(session, older=fingerprint(older.ledger_id))
            self._replace(older, session.node)
        self._claim(session)
        self._open[session.node] = session
        session.opened_at = self._clock.utcnow()
        self._problems.pop(session.node, None)
        desired = self._desired.for_node(session.node)
        # Before the Welcome, which the node's reports wait for: no ledger that the node makes later
        # is among them.
        uids = (task.uid for task in desired.values())
        session.replaces = self._inbox.ledgers_of(session.node, uids)
        session.welcome(epoch=self._elector.epoch, desired=desired)
        self._metrics.sessions.set(len(self._open))
        log.info(
            "session open",
            ledger_id=session.ledger_id,
            held=len(session.task_versions),
            protocol_version=session.protocol_version,
        )

    def on_report(self, session: SessionDriver, report: wire.Report) -> bool:
        session.last_report_at = self._clock.utcnow()
        return self._inbox.offer(session, report)

    # ---- called by DesiredSets and Contacts ----

    def _on_desired(self, node: NodeName, key: TaskKey, task: Desired | None) -> None:
        session = self._open.get(node)
        if session is not None:
            session.desire(key, task)

    def newer_claim(self, node: NodeName, claim: Claim) -> None:
        session = self._open.get(node)
        if session is not None and session.is_live:
            self._duplicates.note(node, older=fingerprint(session.ledger_id), newer=claim.ledger)
            session.close(wire.Close.REPLACED, "a newer session of this node at another replica")

    # ---- one session for each node ----

    def _claim(self, session: SessionDriver) -> None:
        """Claim the node for this replica. Another replica then closes its older session."""
        other = self._contacts.elsewhere(session.node)
        if other is not None:
            self._note_duplicate(session, older=other.ledger)
        ledger, end = fingerprint(session.ledger_id), session.certificate_end
        self._contacts.claim(session.node, ledger=ledger, certificate_end=end)

    def _note_duplicate(self, newer: SessionDriver, *, older: str) -> None:
        if self._duplicates.note(newer.node, older=older, newer=fingerprint(newer.ledger_id)):
            log.warning("two LocalControllers use one name", node=newer.node)
            self._contacts.clash(newer.node)

    def _replace(self, older: SessionDriver | None, node: NodeName) -> None:
        if older is None or not older.is_live:
            return
        older.close(wire.Close.REPLACED, "a newer session of this node took over")
        if self._replacements.note(node, loop_time()):
            log.warning("sessions of one node keep replacing each other", node=node)
            self._contacts.clash(node)

    def _remove(self, session: SessionDriver) -> None:
        self._inbox.drop(session)
        code, reason = session.ended_as
        self._metrics.ends.labels(code_label(code)).inc()
        tell = log.warning if code == wire.Close.PROTOCOL else log.info
        tell("session over", code=code, reason=reason)
        if self._opening.get(session.node) is session:
            del self._opening[session.node]
        if self._open.get(session.node) is session:
            del self._open[session.node]
            self._metrics.sessions.set(len(self._open))
            self._contacts.release(session.node)
        if session.node not in self._open:
            self._problems[session.node] = reason[:MAX_PROBLEM_CHARS]

    def _info(self, session: SessionDriver) -> SessionInfo:
        return SessionInfo(
            node=session.node,
            session=session.session_id,
            ledger_id=session.ledger_id,
            protocol_version=session.protocol_version,
            release=session.release,
            desired=self.desired_count(session.node),
            held=len(session.task_versions),
            synced=session.synced,
            opened_at=session.opened_at,
            last_report_at=session.last_report_at,
        )


def code_label(code: int) -> str:
    """The metric label of a close code. All codes that a peer invents share one label."""
    return str(code) if code in set(wire.Close) else "other"
