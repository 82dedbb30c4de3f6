"""The sessions of this replica: one live session for each node.

The edge server gives each authenticated connection to `serve`. The newer connection of a node
wins; nodes whose connections keep replacing each other (two LocalControllers with one name) are
held off. Each open session is a claim in contacts, and a newer claim of another replica ends it.
What a node must hold comes from DesiredSets, and reports go to the inbox. REST reads `snapshot`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
from websockets.asyncio.server import ServerConnection

from common import wire
from common.cloud_session import Desired
from common.ids import NodeName, TaskKey
from common.logs import bind, get_logger
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.downstream import DesiredSets
from globalmanager.edge.sessions.driver import DriverTiming, SessionDriver
from globalmanager.edge.sessions.inbox import Inbox
from globalmanager.ha.claims import Claim, fingerprint
from globalmanager.ha.contacts import Contacts

log = get_logger(__name__)

# So many replacements within this time show two LocalControllers with one name.
FLAP_COUNT: Final = 3
FLAP_WINDOW_S: Final = 60.0
FLAP_RETRY_AFTER_S: Final = 30
MAX_PROBLEM_CHARS: Final = 256  # a peer may have written it
REMEMBERED_LEDGERS: Final = 8  # of each node; see Rivals


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What REST shows of a live session. `desired`, `held`: numbers of tasks."""

    node: NodeName
    session: str
    ledger_id: str
    protocol_version: int
    desired: int
    held: int
    synced: bool
    last_report_at: datetime | None


class Replacements:
    """When connections of a node were replaced by newer ones: the last FLAP_COUNT times."""

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
    """Finds two LocalControllers of one name: they replace each other in turn.

    One LocalController that lost its ledger has a new one, and its old ledger never comes back.
    """

    def __init__(self) -> None:
        self._replaced: dict[NodeName, deque[str]] = {}  # ledgers whose live session was replaced

    def note(self, node: NodeName, *, older: str, newer: str) -> bool:
        """A session with the ledger `newer` took over from one with `older`.

        Returns: whether `newer` was replaced itself before
        """
        if older == newer:
            return False
        replaced = self._replaced.setdefault(node, deque(maxlen=REMEMBERED_LEDGERS))
        replaced.append(older)
        return newer in replaced


class Sessions:
    """All calls come from the event loop's thread.

    Args:
        contacts: told of each session here; tells of newer sessions at other replicas
        epoch: the GlobalManager's fencing epoch, asked at each welcome
        utcnow: UTC
    """

    def __init__(
        self,
        *,
        desired: DesiredSets,
        inbox: Inbox,
        contacts: Contacts,
        epoch: Callable[[], int],
        metrics: EdgeMetrics,
        timing: DriverTiming = DriverTiming(),  # noqa: B008 - frozen
        utcnow: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._desired = desired
        self._inbox = inbox
        self._contacts = contacts
        self._epoch = epoch
        self._metrics = metrics
        self._timing = timing
        self._utcnow = utcnow
        self._opening: dict[NodeName, SessionDriver] = {}  # connected, Hello not received yet
        self._open: dict[NodeName, SessionDriver] = {}
        self._problems: dict[NodeName, str] = {}  # of nodes without a session here
        self._replacements = Replacements()
        self._rivals = Rivals()
        self._last_id = 0
        desired.subscribe(self._on_desired)
        contacts.subscribe(newer_claim=self._on_newer_claim)

    def snapshot(self) -> Iterator[SessionInfo]:
        """The live sessions, in no order."""
        return (self._info(session) for session in self._open.values())

    def problem(self, node: NodeName) -> str:
        """Why the last connection of `node` ended; empty while it has a session here."""
        return self._problems.get(node, "")

    def desired_count(self, node: NodeName) -> int:
        """Tasks that `node` is to hold, whether or not it has a session."""
        return len(self._desired.for_node(node))

    def must_wait_s(self, node: NodeName) -> int | None:
        """Seconds that a new connection of `node` must stay away; None: it may come."""
        now = asyncio.get_running_loop().time()
        has_session = node in self._open or node in self._opening
        if not has_session or not self._replacements.is_flapping(node, now):
            return None
        return FLAP_RETRY_AFTER_S

    async def serve(self, node: NodeName, websocket: ServerConnection) -> None:
        """Serve one authenticated connection until it ends."""
        self._last_id += 1
        session = SessionDriver(
            node=node,
            session_id=f"{node}-{self._last_id}",
            websocket=websocket,
            on_hello=self._on_hello,
            on_report=self._on_report,
            timing=self._timing,
            metrics=self._metrics,
        )
        with bind(node=node, session=session.session_id):
            self._replace(self._opening.get(node), node)
            self._opening[node] = session
            try:
                await session.run()
            finally:
                self._remove(session)

    def revoke(self, node: NodeName, websocket: ServerConnection) -> None:
        """End the session on this connection: what it was admitted with is no longer good."""
        for session in (self._opening.get(node), self._open.get(node)):
            if session is not None and session.is_on(websocket):
                session.close(wire.Close.REVOKED, "the credential is no longer good")

    # ---- what a session tells ----

    def _on_hello(self, session: SessionDriver) -> None:
        # A session that was replaced is closed and tells nothing more, so this one is opening.
        del self._opening[session.node]
        self._take_over(self._open.get(session.node), session)
        self._claim(session)
        self._open[session.node] = session
        self._problems.pop(session.node, None)
        session.welcome(epoch=self._epoch(), desired=self._desired.for_node(session.node))
        self._metrics.sessions.set(len(self._open))
        log.info(
            "session open",
            ledger_id=session.ledger_id,
            held=len(session.held),
            protocol_version=session.protocol_version,
        )

    def _on_report(self, session: SessionDriver, report: wire.Report) -> bool:
        session.last_report_at = self._utcnow()
        return self._inbox.offer(session, report)

    # ---- news ----

    def _on_desired(self, node: NodeName, key: TaskKey, task: Desired | None) -> None:
        session = self._open.get(node)
        if session is not None:
            session.desire(key, task)

    def _on_newer_claim(self, node: NodeName, claim: Claim) -> None:
        session = self._open.get(node)
        if session is not None and session.is_live:
            self._rivals.note(node, older=fingerprint(session.ledger_id), newer=claim.ledger)
            session.close(wire.Close.REPLACED, "a newer session of this node at another replica")

    # ---- which session of a node is the one ----

    def _take_over(self, older: SessionDriver | None, newer: SessionDriver) -> None:
        if older is None or not older.is_live:
            return
        self._note_rival(newer, older=fingerprint(older.ledger_id))
        self._replace(older, newer.node)

    def _claim(self, session: SessionDriver) -> None:
        """Say that the node's session is here. A replica with an older session ends that one."""
        other = self._contacts.elsewhere(session.node)
        if other is not None:
            self._note_rival(session, older=other.ledger)
        self._contacts.claim(session.node, ledger=fingerprint(session.ledger_id))

    def _note_rival(self, newer: SessionDriver, *, older: str) -> None:
        if self._rivals.note(newer.node, older=older, newer=fingerprint(newer.ledger_id)):
            log.warning("two LocalControllers use one name", node=newer.node)
            self._contacts.clash(newer.node)

    def _replace(self, older: SessionDriver | None, node: NodeName) -> None:
        if older is None or not older.is_live:
            return
        older.close(wire.Close.REPLACED, "a newer session of this node took over")
        if self._replacements.note(node, asyncio.get_running_loop().time()):
            log.warning("sessions of one node keep replacing each other", node=node)
            self._contacts.clash(node)

    def _remove(self, session: SessionDriver) -> None:
        self._inbox.drop(session)
        code, reason = session.ended_as
        self._metrics.ended.labels(code_label(code)).inc()
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
            desired=self.desired_count(session.node),
            held=len(session.held),
            synced=session.synced,
            last_report_at=session.last_report_at,
        )


def code_label(code: int) -> str:
    """A close code as a metric's label: a peer may send any number, a metric must stay bounded."""
    return str(code) if code in set(wire.Close) else "other"
