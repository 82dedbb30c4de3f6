"""The state of a worker in the table: what its pod does, and what the launcher knows of it."""

import msgspec
import pytest

from edgeai.api.training import RestartPolicy
from globalmanager.kinds.elastic.trainingjob.table import Worker, WorkerState, observe
from tests.globalmanager.kinds.elastic.trainingjob.test_room_rules import Row, job_of
from tests.globalmanager.kinds.elastic.world import worker

S = WorkerState


def row_of(
    letter: str, *, is_listed: bool = False, is_reserved: bool = False, **spec: object
) -> Worker:
    """The row of a worker whose pod does what the letter of STATES_OF_PODS says."""
    job = job_of(Row(letter, []))
    job = job._replace(spec=msgspec.structs.replace(job.spec, **spec))
    name = worker(0)
    table = observe(job, [name] if is_listed else [], [name] if is_reserved else [])
    return table.workers[name]


@pytest.mark.parametrize(
    ("letter", "new", "listed"),
    [
        ("R", S.PLACED, S.PLACED),
        ("U", S.PLACED, S.PLACED),
        ("P", S.WAITING, S.PLACED),
        ("S", S.WAITING, S.PLACED),
        ("N", S.WAITING, S.MISSING),
        ("E", S.WAITING, S.LOST),
        ("F", S.RETRYABLE, S.LOST),
    ],
)
def test_the_state_follows_from_the_pod_and_the_list_of_hosts(
    letter: str, new: WorkerState, listed: WorkerState
) -> None:
    assert row_of(letter).state is new
    assert row_of(letter, is_listed=True).state is listed
    assert row_of(letter, is_listed=True, is_reserved=True).state is S.RESERVED


def test_without_elastic_a_failed_worker_gets_a_successor_also_when_nobody_used_it() -> None:
    assert row_of("F", max_queued=None).state is S.LOST


def test_the_policy_never_replaces_no_worker() -> None:
    never = RestartPolicy.NEVER
    assert row_of("F", worker_policy=never).state is S.TERMINAL
    assert row_of("E", is_listed=True, worker_policy=never).state is S.GONE


def test_only_a_worker_that_the_launcher_never_had_needs_a_pod() -> None:
    assert row_of("N").needs_pod
    assert not row_of("N", is_listed=True).needs_pod
    assert not row_of("N", is_listed=True, is_reserved=True).needs_pod
    assert not row_of("N")._replace(state=S.PAUSED).needs_pod
    assert not row_of("R").needs_pod


@pytest.mark.parametrize("state", [S.TERMINAL, S.DRAINING])
def test_a_worker_that_ended_or_goes_leaves_the_list_of_hosts(state: WorkerState) -> None:
    assert not row_of("R")._replace(state=state).is_host


@pytest.mark.parametrize("state", [S.PAUSED, S.HIDDEN])
def test_a_worker_that_gives_up_its_room_or_is_not_ready_yet_joins_no_list(
    state: WorkerState,
) -> None:
    assert row_of("R").is_new_host
    assert not row_of("R")._replace(state=state).is_new_host
    assert not row_of("U").is_new_host
