"""The state machine of a TrainingJob: `.status.phase` and how one phase follows another.

The machine reads the whole situation each time and nothing of what happened before but the present
state, so a job goes on from any state after a restart of the GlobalManager.
docs/kinds/trainingjob.md has a diagram of TRANSITIONS.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple


class State(enum.StrEnum):
    """`.status.phase`, and the type of the condition that becomes True with it."""

    NEW = ""
    CREATED = "Created"
    WORKERS_CREATED = "WorkersCreated"
    WORKERS_READY = "WorkersReady"
    LAUNCHER_CREATED = "LauncherCreated"
    RUNNING = "Running"
    SCALING = "Scaling"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


ENDS: Final = (State.SUCCEEDED, State.FAILED)


class Launcher(enum.Enum):
    """What the launcher does. A launcher of an earlier attempt counts as ABSENT."""

    ABSENT = "absent"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    """The launcher was there, and its pod is gone."""


class Situation(NamedTuple):
    """What the machine knows about a job."""

    are_workers_created: bool = False
    """All wanted workers have a pod; of an elastic job, as many as it needs."""
    are_enough_ready: bool = False
    """Enough workers are ready for the launcher to start."""
    cannot_start: bool = False
    """Too many workers have failed for good before the launcher could start."""
    launcher: Launcher = Launcher.ABSENT
    may_restart: bool = False
    """The policy allows one more start of the launcher."""
    is_scaling: bool = False
    """A scaler is being executed."""


# A launcher may start and succeed between two plans.
_HAS_RUN: Final = (Launcher.RUNNING, Launcher.SUCCEEDED)
# In the et-operator a job whose launcher is deleted stays Running for ever.
_HAS_FAILED: Final = (Launcher.FAILED, Launcher.LOST)


def states_ahead(state: State, situation: Situation) -> Iterator[State]:
    """The states through which a job that is not suspended goes now, from the one after `state`.
    The last one is the state in which the job stays until the situation changes. A restart is the
    last of them, because the launcher of the next attempt does not exist yet.
    """
    while (following := _next(state, situation)) is not None:
        yield following
        if following is State.RESTARTING:
            return
        state = following


def _next(state: State, now: Situation) -> State | None:
    """The state after `state`; None while the job stays in `state`."""
    return None if state in ENDS else _AFTER[state](now)


def _after_created(now: Situation) -> State | None:
    # A launcher that exists proves that there were workers, also when the status lost the phase.
    if now.are_workers_created or now.launcher is not Launcher.ABSENT:
        return State.WORKERS_CREATED
    return State.FAILED if now.cannot_start else None


def _after_workers_created(now: Situation) -> State | None:
    if now.are_enough_ready or now.launcher is not Launcher.ABSENT:
        return State.WORKERS_READY
    # Nobody replaces these workers, so a job that waits for them would wait for ever.
    return State.FAILED if now.cannot_start else None


def _after_workers_ready(now: Situation) -> State | None:
    if now.launcher is not Launcher.ABSENT:
        return State.LAUNCHER_CREATED
    # horovodrun waits for its workers only for a limited time, so the job waits first.
    return None if now.are_enough_ready else State.WORKERS_CREATED


def _after_launcher_created(now: Situation) -> State | None:
    if now.launcher in _HAS_RUN:
        return State.RUNNING
    return _after_failure(now)


# As in the et-operator, the launcher alone decides about success and failure: elastic training
# survives the loss of workers.
def _after_running(now: Situation) -> State | None:
    if now.launcher is Launcher.SUCCEEDED:
        return State.SUCCEEDED
    return _after_failure(now) or (State.SCALING if now.is_scaling else None)


# The end of the launcher does not wait for the scaler. The plan of the ended job fails the scaler.
def _after_scaling(now: Situation) -> State | None:
    if now.launcher is Launcher.SUCCEEDED:
        return State.SUCCEEDED
    return _after_failure(now) or (None if now.is_scaling else State.RUNNING)


def _after_restarting(now: Situation) -> State | None:
    if now.launcher in _HAS_RUN:
        return State.RUNNING
    if now.launcher is Launcher.ABSENT:
        # A launcher of this attempt that is gone before it ran is made again.
        return State.FAILED if now.cannot_start else None
    return _after_failure(now)


def _after_failure(now: Situation) -> State | None:
    if now.launcher not in _HAS_FAILED:
        return None
    # A launcher that is gone counts like one that failed: nobody knows how it ended.
    return State.RESTARTING if now.may_restart else State.FAILED


_AFTER: Final[Mapping[State, Callable[[Situation], State | None]]] = {
    State.NEW: lambda _now: State.CREATED,
    # The children of a suspended job are deleted, so a resumed job starts from the beginning. The
    # et-operator has no way back.
    State.SUSPENDED: lambda _now: State.CREATED,
    State.CREATED: _after_created,
    State.WORKERS_CREATED: _after_workers_created,
    State.WORKERS_READY: _after_workers_ready,
    State.LAUNCHER_CREATED: _after_launcher_created,
    State.RUNNING: _after_running,
    State.SCALING: _after_scaling,
    State.RESTARTING: _after_restarting,
}

TRANSITIONS: Final[Mapping[State, Mapping[State, str]]] = {
    State.NEW: {State.CREATED: "the GlobalManager sees the job"},
    State.CREATED: {
        State.WORKERS_CREATED: "all workers have a pod",
        State.FAILED: "too many workers have failed",
        State.SUSPENDED: "suspended",
    },
    State.WORKERS_CREATED: {
        State.WORKERS_READY: "enough workers are ready",
        State.FAILED: "too many workers have failed",
        State.SUSPENDED: "suspended",
    },
    State.WORKERS_READY: {
        State.LAUNCHER_CREATED: "the launcher has a pod",
        State.WORKERS_CREATED: "a worker is lost before the launcher starts",
        State.SUSPENDED: "suspended",
    },
    State.LAUNCHER_CREATED: {
        State.RUNNING: "the launcher runs",
        State.RESTARTING: "the launcher fails or is lost",
        State.FAILED: "the launcher fails for good",
        State.SUSPENDED: "suspended",
    },
    State.RUNNING: {
        State.SUCCEEDED: "the launcher succeeds",
        State.SCALING: "a scaler begins",
        State.RESTARTING: "the launcher fails or is lost",
        State.FAILED: "the launcher fails for good",
        State.SUSPENDED: "suspended",
    },
    State.SCALING: {
        State.RUNNING: "the scaler is done",
        State.SUCCEEDED: "the launcher succeeds",
        State.RESTARTING: "the launcher fails or is lost",
        State.FAILED: "the launcher fails for good",
        State.SUSPENDED: "suspended",
    },
    State.RESTARTING: {
        State.RUNNING: "the new launcher runs",
        State.RESTARTING: "the new launcher fails too",
        State.FAILED: "the launcher fails for good, or too many workers have failed",
        State.SUSPENDED: "suspended",
    },
    State.SUSPENDED: {State.CREATED: "resumed"},
}
"""State -> the states that can follow it, and why, for docs and tests; `_AFTER` decides. SUCCEEDED
and FAILED are final.
"""
