"""The LocalController's end of a session with the GlobalManager. It does no I/O (sans-I/O).

Events: ReportAcked, Closed, and the GlobalManager's frames Welcome, Assign, Withdraw and Synced.
The caller stores the epoch of Welcome durably. It commits the change that another frame asks for,
and then acknowledges the frame's seq.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from common import wire
from common.session import WINDOW, Session, Timing
from common.window import SendWindow
from edgeai.errors import ProtocolError
from edgeai.ids import TaskKey
from localcontroller.ledger.outbox import Outgoing, ReportAcked, WorkerKey

REPORTS_OF_A_WORKER: Final = 8
"""Most unacknowledged reports of one worker. While the API server is slow, a report waits at the
GlobalManager, and a newer report of the worker replaces the waiting report there. So the newer
report must not wait for the acknowledgement of the older report. The limit keeps space in the
window for other workers of the node."""
GAP_S: Final = 0.3
"""Least seconds between two reports of one worker of which the first is not acknowledged."""


class EdgeSession(Session):
    """Args: epoch: largest known epoch. The session refuses a GlobalManager with a smaller one."""

    def __init__(
        self,
        *,
        now: float,
        timing: Timing,
        instance: str,
        tasks: Mapping[TaskKey, wire.TaskVersion],
        epoch: int,
    ) -> None:
        super().__init__(now=now, timing=timing)
        self._epoch = epoch
        self._window: SendWindow[WorkerKey, Outgoing] = SendWindow(
            WINDOW, per_key=REPORTS_OF_A_WORKER, gap_s=GAP_S
        )
        self._synced_keys: list[TaskKey] = []  # of SyncedParts, until Synced
        *parts, last = wire.parts_of(tasks)
        for part in parts:
            self._send(wire.HeldPart({key: tasks[key] for key in part}))
        self._send(wire.Hello(list(wire.VERSIONS), instance, {key: tasks[key] for key in last}))

    def report(self, report: Outgoing) -> None:
        """Send this report, in place of a waiting older report of the same worker."""
        self._window.put(WorkerKey(report.uid, report.worker), report)

    def next_tick(self) -> float:
        due_at = self._window.next_at()
        return super().next_tick() if due_at is None else min(due_at, super().next_tick())

    def _flush(self, now: float) -> None:
        if not self.is_open or self.closed is not None:
            return
        for seq, out in self._window.take(now):
            self._send(wire.Report(seq, out.uid, out.worker, out.attempt, out.body, out.revision))

    def _handle(self, frame: wire.AnyFrame) -> list[msgspec.Struct]:
        if not self.is_open:
            return self._on_welcome(frame)
        match frame:
            case wire.Beat():
                return self._on_beat()
            case wire.Assign() | wire.Withdraw():
                return [frame]
            case wire.SyncedPart():
                self._synced_keys += frame.keys
                return []
            case wire.Synced():
                keys, self._synced_keys = self._synced_keys + frame.keys, []
                return [wire.Synced(frame.seq, keys)]
            case wire.Ack():
                sent = self._window.on_ack(frame.seq)
                return [] if sent is None else [ReportAcked(sent.value, frame.refused)]
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
        return [frame]

    def _on_beat(self) -> list[msgspec.Struct]:
        """Answer with a Beat, unless this side has just sent something.

        The GlobalManager sends the Beats of many sessions together. So the answers come together
        too, and one wake-up of the GlobalManager reads many of them.
        """
        if self._last_received >= self._last_sent + self._timing.beat_s / 2 and not self._out:
            self._send(wire.Beat())
        return []
