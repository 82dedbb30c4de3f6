"""The GlobalManager's end of a session with one LocalController. It does no I/O (sans-I/O).

The caller gives the session the desired set of the node as (key -> Desired), and then each change
of this set. The session sends the fewest frames that bring the LocalController to this set. Events:
EdgeSynced, TaskAcked, Closed, and two frames: Hello, after which the caller calls `welcome`, and
Report, whose seq the caller acknowledges after the report has taken effect.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from common import wire
from common.session import WINDOW, Session, Timing
from common.window import SendWindow
from edgeai.errors import ProtocolError
from edgeai.ids import TaskKey, Uid

MAX_HELD_BYTES: Final = 12 * 1024 * 1024  # of the keys and uids of the tasks that a node holds
MAX_UNACKNOWLEDGED_REPORTS: Final = 4 * WINDOW  # a peer with more ignores its window


class Desired(msgspec.Struct, frozen=True):
    """A task that the LocalController must hold. `body` is an encoded wire.AssignmentBody."""

    uid: Uid
    version: int
    body: bytes


class TaskAcked(msgspec.Struct, frozen=True):
    """The LocalController holds the task `key` durably at `version`; None: it dropped the task.

    If `refusal` is not "", the LocalController refused the frame, and `refusal` says why.
    """

    key: TaskKey
    uid: Uid
    version: int | None
    refusal: str


class EdgeSynced(msgspec.Struct, frozen=True):
    """The LocalController holds the desired set of the time of `welcome`, or a newer one."""


class CloudSession(Session):
    def __init__(self, *, now: float, timing: Timing) -> None:
        super().__init__(now=now, timing=timing)
        self.task_versions: dict[TaskKey, wire.TaskVersion] = {}  # as the LocalController says
        self._held_bytes = 0  # of the names in `task_versions` at the handshake
        self._desired: dict[TaskKey, Desired] = {}
        self._window: SendWindow[TaskKey, wire.Assign | wire.Withdraw] = SendWindow(WINDOW)
        self._synced: wire.Synced | None = None  # the Synced that was sent
        self._dropped_keys: frozenset[TaskKey] = frozenset()  # tasks that Synced does not name
        self._unacknowledged_reports = 0

    def welcome(self, *, epoch: int, session: str, desired: Mapping[TaskKey, Desired]) -> None:
        """Answer Hello, send the frames that the LocalController needs, then send Synced."""
        if self.closed is not None:
            return
        self.is_open = True
        self._send(wire.Welcome(self.version, epoch, session))
        for key, task in desired.items():
            self.desire(key, task)

    def desire(self, key: TaskKey, task: Desired | None) -> None:
        """Change the desired set. `task` None: the LocalController must not hold the task."""
        if task is None:
            self._desired.pop(key, None)
        else:
            self._desired[key] = task
        frame = self._frame_towards(key, task)
        if frame is None:
            self._window.discard(key)
        else:
            self._window.put(key, frame)

    def _frame_towards(
        self, key: TaskKey, task: Desired | None
    ) -> wire.Assign | wire.Withdraw | None:
        """The frame that `key` needs after the frame in flight has arrived; None: no frame.

        The frame has seq 0 until the window gives it a number.
        """
        edge = self._held_after_flight(key)
        if task is None:
            return None if edge is None else wire.Withdraw(0, key, Uid(edge.uid))
        # The LocalController may hold a newer version than this replica knows: send no older one.
        if edge is not None and edge.uid == task.uid and edge.version >= task.version:
            return None
        return wire.Assign(0, key, task.uid, task.version, task.body)

    def assigns_in_flight(self) -> Iterator[wire.Assign]:
        """What was sent and is not acknowledged yet."""
        for frame in self._window.all_in_flight():
            if isinstance(frame, wire.Assign):
                yield frame

    def _held_after_flight(self, key: TaskKey) -> wire.TaskVersion | None:
        match self._window.in_flight(key):
            case wire.Assign() as frame:
                return wire.TaskVersion(frame.uid, frame.version)
            case wire.Withdraw():
                return None
        return None if key in self._dropped_keys else self.task_versions.get(key)

    def acknowledge(self, seq: int, *, refusal: str = "") -> None:
        self._unacknowledged_reports -= 1
        super().acknowledge(seq, refusal=refusal)

    def _flush(self, now: float) -> None:
        if not self.is_open or self.closed is not None:
            return
        for seq, frame in self._window.take(now):
            self._send(msgspec.structs.replace(frame, seq=seq))
        if self._synced is None and not self._window.waiting:
            *parts, last = wire.parts_of(self._desired)
            for part in parts:
                self._send(wire.SyncedPart(part))
            self._synced = wire.Synced(self._window.next_seq(), last)
            self._dropped_keys = frozenset(self.task_versions.keys() - self._desired.keys())
            self._send(self._synced)

    def _handle(self, frame: wire.AnyFrame) -> list[msgspec.Struct]:
        if not self.is_open:
            return self._on_hello(frame)
        match frame:
            case wire.Beat():
                return []
            case wire.Ack():
                return self._on_ack(frame)
            case wire.Report():
                return self._on_report(frame)
        raise self._unexpected(frame)

    def _on_hello(self, frame: wire.AnyFrame) -> list[msgspec.Struct]:
        if not isinstance(frame, wire.Hello | wire.HeldPart) or self.version:
            raise self._unexpected(frame)
        self._note_held(frame.tasks)
        if isinstance(frame, wire.HeldPart):
            return []
        self.version = _newest_common(frame.versions)
        return [frame]

    def _note_held(self, tasks: Mapping[TaskKey, wire.TaskVersion]) -> None:
        """Raises: ProtocolError, so that a node cannot fill the memory by what it says it holds"""
        self._held_bytes += sum(len(key) + len(task.uid) for key, task in tasks.items())
        count = len(self.task_versions) + len(tasks)
        if count > wire.MAX_HELD or self._held_bytes > MAX_HELD_BYTES:
            raise ProtocolError(
                wire.Close.TOO_BIG,
                f"more than {wire.MAX_HELD} tasks held, or {MAX_HELD_BYTES} bytes of their names",
            )
        self.task_versions.update(tasks)

    def _on_ack(self, ack: wire.Ack) -> list[msgspec.Struct]:
        flight = self._window.on_ack(ack.seq)
        if flight is None:
            return self._on_synced_ack(ack)
        frame = flight.value
        version = frame.version if isinstance(frame, wire.Assign) else None
        if not ack.refused:
            self._record_held(frame.key, frame.uid, version)
        return [TaskAcked(frame.key, frame.uid, version, ack.refused)]

    def _on_synced_ack(self, ack: wire.Ack) -> list[msgspec.Struct]:
        if self._synced is None or ack.seq != self._synced.seq:
            return []  # a repeated acknowledgement
        for key in self._dropped_keys:
            self.task_versions.pop(key, None)
        self._dropped_keys = frozenset()
        return [EdgeSynced()]

    def _record_held(self, key: TaskKey, uid: Uid, version: int | None) -> None:
        self._dropped_keys -= {key}  # this frame decides about the task, not Synced
        if version is None:
            self.task_versions.pop(key, None)
        else:
            self.task_versions[key] = wire.TaskVersion(uid, version)

    def _on_report(self, report: wire.Report) -> list[msgspec.Struct]:
        self._unacknowledged_reports += 1
        if self._unacknowledged_reports > MAX_UNACKNOWLEDGED_REPORTS:
            raise ProtocolError(wire.Close.PROTOCOL, "more reports than the window allows")
        return [report]


def _newest_common(versions: Collection[int]) -> int:
    """Raises: ProtocolError, which names the versions of both sides and the side to upgrade"""
    common_versions = set(versions) & set(wire.VERSIONS)
    if common_versions:
        return max(common_versions)
    older = "GlobalManager" if max(versions) > max(wire.VERSIONS) else "LocalController"
    raise ProtocolError(
        wire.Close.PROTOCOL,
        f"no common protocol version: LocalController {sorted(versions)}, "
        f"GlobalManager {sorted(wire.VERSIONS)}; upgrade the {older}",
    )
