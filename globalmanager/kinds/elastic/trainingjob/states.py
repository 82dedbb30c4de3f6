"""The state machine of a TrainingJob: `.status.phase` and how one phase follows another.

The machine reads the whole situation each time and nothing of what happened before but the present
state, so a job goes on from any state after a restart of the GlobalManager.
docs/kinds/trainingjob.md has a diagram of the states; a test compares it with `_AFTER`.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple


class JobState(enum.StrEnum):
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


ENDS: Final = (JobState.SUCCEEDED, JobState.FAILED)


class Launcher(enum.Enum):
    """What the launcher does. A launcher of an earlier attempt counts as ABSENT."""

    ABSENT = "absent"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    """The launcher was there, and its pod is gone."""


class MachineInputs(NamedTuple):
    """What the machine knows about a job."""

    are_workers_created: bool = False
    """All wanted workers have a pod; of an elastic job, as many as it needs."""
    are_enough_ready: bool = False
    """Enough workers are ready for the launcher to start."""
    cannot_start: bool = False
    """Too many workers have failed for good for a start, or restart, of a launcher that is away."""
    launcher: Launcher = Launcher.ABSENT
    may_restart: bool = False
    """The policy allows one more start of the launcher."""
    is_scaling: bool = False
    """A scaler is being executed."""


# A launcher may start and succeed between two plans.
_HAS_RUN: Final = (Launcher.RUNNING, Launcher.SUCCEEDED)
# In the et-operator a job whose launcher is deleted stays Running for ever.
_HAS_FAILED: Final = (Launcher.FAILED, Launcher.LOST)


def states_ahead(state: JobState, inputs: MachineInputs) -> Iterator[JobState]:
    """The states through which a job that is not suspended goes now, from the one after `state`.
    The last one is the state in which the job stays until the situation changes. A restart is the
    last of them, because the launcher of the next attempt does not exist yet.
    """
    while state not in ENDS and (following := _AFTER[state](inputs)) is not None:
        yield following
        if following is JobState.RESTARTING:
            return
        state = following


def _after_created(inputs: MachineInputs) -> JobState | None:
    # A launcher that exists proves that there were workers, also when the status lost the phase.
    if inputs.are_workers_created or inputs.launcher is not Launcher.ABSENT:
        return JobState.WORKERS_CREATED
    return JobState.FAILED if inputs.cannot_start else None


def _after_workers_created(inputs: MachineInputs) -> JobState | None:
    if inputs.are_enough_ready or inputs.launcher is not Launcher.ABSENT:
        return JobState.WORKERS_READY
    # Nobody replaces these workers, so a job that waits for them would wait for ever.
    return JobState.FAILED if inputs.cannot_start else None


def _after_workers_ready(inputs: MachineInputs) -> JobState | None:
    if inputs.launcher is not Launcher.ABSENT:
        return JobState.LAUNCHER_CREATED
    # horovodrun waits for its workers only for a limited time, so the job waits first. The way back
    # deletes the list of hosts and the launcher's rights, which no launcher has read or used.
    return None if inputs.are_enough_ready else JobState.WORKERS_CREATED


def _after_launcher_created(inputs: MachineInputs) -> JobState | None:
    if inputs.launcher in _HAS_RUN:
        return JobState.RUNNING
    return _after_failure(inputs)


# As in the et-operator, a launcher that is there decides alone: elastic training loses workers.
def _after_running(inputs: MachineInputs) -> JobState | None:
    if inputs.launcher is Launcher.SUCCEEDED:
        return JobState.SUCCEEDED
    return _after_failure(inputs) or (JobState.SCALING if inputs.is_scaling else None)


# The end of the launcher does not wait for the scaler. The plan of the ended job fails the scaler.
def _after_scaling(inputs: MachineInputs) -> JobState | None:
    if inputs.launcher is Launcher.SUCCEEDED:
        return JobState.SUCCEEDED
    return _after_failure(inputs) or (None if inputs.is_scaling else JobState.RUNNING)


def _after_restarting(inputs: MachineInputs) -> JobState | None:
    if inputs.launcher in _HAS_RUN:
        return JobState.RUNNING
    if inputs.launcher is Launcher.ABSENT:
        # A launcher that is gone before it ran is made again, workers that failed for good are not.
        return JobState.FAILED if inputs.cannot_start else None
    return _after_failure(inputs)


def _after_failure(inputs: MachineInputs) -> JobState | None:
    if inputs.launcher not in _HAS_FAILED:
        return None
    # A launcher that is gone counts like one that failed: nobody knows how it ended.
    return JobState.RESTARTING if inputs.may_restart else JobState.FAILED


# State -> the one after it, or None while the job stays.
_AFTER: Final[Mapping[JobState, Callable[[MachineInputs], JobState | None]]] = {
    JobState.NEW: lambda _inputs: JobState.CREATED,
    # A suspended job's children are deleted, so it starts anew. The et-operator has no way back.
    JobState.SUSPENDED: lambda _inputs: JobState.CREATED,
    JobState.CREATED: _after_created,
    JobState.WORKERS_CREATED: _after_workers_created,
    JobState.WORKERS_READY: _after_workers_ready,
    JobState.LAUNCHER_CREATED: _after_launcher_created,
    JobState.RUNNING: _after_running,
    JobState.SCALING: _after_scaling,
    JobState.RESTARTING: _after_restarting,
}
