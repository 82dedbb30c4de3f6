"""The LocalController's end of the channel to the GlobalManager. Sans-I/O.

Events: Welcomed, the GM's own Assign, Withdraw and Synced frames, ReportAcked, and Closed. The
driver commits what a frame asks for and then acknowledges its seq.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from common import wire
from common.errors import ProtocolError
from common.ids import TaskKey, Uid, WorkerName
from common.session import WINDOW, Session, Timing
from common.window import SendWindow

REPORTS_OF_A_WORKER: Final = 8
"""Reports of one worker that may be unacknowledged. A report waits at the GlobalManager while the
API server is slow, and a newer one replaces it there; so the newer one must not wait for its
acknowledgement. The bound keeps room in the window for the node's other workers."""


class Welcomed(msgspec.Struct, frozen=True):
    """The session is open; `epoch` must be made durable before it counts as seen."""

    epoch: int
    session: str
    version: int


class Outgoing(msgspec.Struct, frozen=True):
    """A worker's latest state. `revision` is the ledger's number of this state."""

    uid: Uid
    worker: WorkerName
    attempt: int
    revision: int
    body: bytes


class ReportAcked(msgspec.Struct, frozen=True):
    """`report` has taken effect in the cloud, or was `refused` for good."""

    report: Outgoing
    refused: str


class ReportKey(NamedTuple):
    """Reports of one worker coalesce."""

    uid: Uid
    worker: WorkerName


class EdgeSession(Session):
    """Args: epoch: highest epoch ever seen. A GlobalManager with a lower one is refused."""

    def __init__(
        self,
        *,
        now: float,
        timing: Timing,
        instance: str,
        held: Mapping[TaskKey, wire.Held],
        epoch: int,
    ) -> None:
        super().__init__(now=now, timing=timing)
        self._epoch = epoch
        self._window: SendWindow[ReportKey, Outgoing] = SendWindow(
            WINDOW, per_key=REPORTS_OF_A_WORKER
        )
        self._send(wire.Hello(list(wire.VERSIONS), instance, dict(held)))

    def report(self, report: Outgoing) -> None:
        """Send this state, in place of an older one of the same worker that still waits."""
        self._window.put(ReportKey(report.uid, report.worker), report)

    def _flush(self) -> None:
        if not self.is_open or self.closed is not None:
            return
        for seq, out in self._window.take():
            self._send(wire.Report(seq, out.uid, out.worker, out.attempt, out.body))

    def _handle(self, frame: wire.AnyFrame) -> list[msgspec.Struct]:
        if not self.is_open:
            return self._on_welcome(frame)
        match frame:
            case wire.Beat():
                return []
            case wire.Assign() | wire.Withdraw() | wire.Synced():
                return [frame]
            case wire.Ack():
                return self._on_ack(frame)
        raise self._unexpected(frame)

    def _on_welcome(self, frame: wire.AnyFrame) -> list[msgspec.Struct]:
        if not isinstance(frame, wire.Welcome):
            raise self._unexpected(frame)
        if frame.version not in wire.VERSIONS:
            raise ProtocolError(
                wire.Close.PROTOCOL,
                f"GlobalManager chose protocol version {frame.version}, offered were "
                f"{list(wire.VERSIONS)}",
            )
        if frame.epoch < self._epoch:
            raise ProtocolError(
                wire.Close.STALE_EPOCH,
                f"GlobalManager's epoch {frame.epoch} is older than {self._epoch}, seen before",
            )
        self._epoch = frame.epoch
        self.version = frame.version
        self.is_open = True
        return [Welcomed(frame.epoch, frame.session, frame.version)]

    def _on_ack(self, ack: wire.Ack) -> list[msgspec.Struct]:
        sent = self._window.acknowledge(ack.seq)
        return [] if sent is None else [ReportAcked(sent.value, ack.refused)]
