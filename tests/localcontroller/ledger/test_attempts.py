"""The pure rules by which messages and observations change the state of a worker."""

from typing import Any

import pytest

from common.wire import WorkerStatus
from localcontroller.ledger.attempts import (
    MAX_COUNTS,
    MAX_WORKER_PROCESSES,
    NEW_RECORD,
    ProcessMessage,
    TooManyCounts,
    TooManyProcesses,
    WorkerRecord,
    after_message,
    after_observation,
)
from tests.localcontroller.builders import worker_message


def after(*events: ProcessMessage | tuple[WorkerStatus, str]) -> WorkerRecord:
    worker = NEW_RECORD
    for event in events:
        worker = (
            after_message(worker, event)
            if isinstance(event, ProcessMessage)
            else after_observation(worker, *event)
        )
    return worker


def test_totals_are_the_sum_over_processes() -> None:
    worker = after(
        worker_message(10), worker_message(3, instance="p2"), worker_message(5, instance="p2")
    )
    assert worker.totals == {"seen": 15}


def test_the_newest_total_of_a_process_replaces_the_one_before() -> None:
    assert after(worker_message(10), worker_message(12)).totals == {"seen": 12}


def test_counts_of_any_name_are_summed_over_processes() -> None:
    first = worker_message(counts={"frames": 10}, numbers={"loss": 0.5})
    second = worker_message(instance="p2", counts={"frames": 3}, numbers={"loss": 0.25})
    assert after(first, second).report("").task_info == {"loss": 0.25, "frames": 13}


def test_a_name_that_was_a_count_stays_a_count() -> None:
    """Otherwise the value of one process would replace the total of the worker."""
    uncounted = worker_message(instance="p2", counts={}, numbers={"frames": 3})
    worker = after(worker_message(counts={"frames": 10}), uncounted)
    assert worker.report("").task_info == {"frames": 10}
    assert after_message(worker, uncounted) is worker


def test_a_worker_has_no_more_counts_than_a_report_can_carry() -> None:
    """Processes may use different names of counts, and the worker keeps all of them."""
    worker = after(
        *(worker_message(instance=f"p{n}", counts={f"count {n}": 1}) for n in range(MAX_COUNTS))
    )
    with pytest.raises(TooManyCounts, match="33"):
        after_message(worker, worker_message(instance="last", counts={"one more": 1}))
    assert (
        after_message(worker, worker_message(instance="last", counts={"count 0": 1})).totals[
            "count 0"
        ]
        == 2
    )


def test_each_new_process_is_an_attempt() -> None:
    assert (
        after(
            worker_message(1), worker_message(1, instance="p2"), worker_message(1, instance="p3")
        ).attempt
        == 3
    )


def test_an_older_process_still_counts_but_no_longer_sets_the_status() -> None:
    worker = after(
        worker_message(1), worker_message(1, instance="p2"), worker_message(9, status="failed")
    )
    assert (worker.status, worker.totals, worker.attempt) == ("running", {"seen": 10}, 2)


STALE: dict[str, tuple[ProcessMessage, ProcessMessage]] = {
    "older": (worker_message(10, sequence=5), worker_message(9, sequence=4)),
    "the same again": (worker_message(10, sequence=5), worker_message(9, sequence=5)),
}


@pytest.mark.parametrize("case", STALE)
def test_a_message_of_an_older_sequence_changes_nothing(case: str) -> None:
    first, second = STALE[case]
    worker = after(first)
    assert after_message(worker, second) is worker


NEWS_FREE: dict[str, dict[str, Any]] = {
    "the same": {},
    "a higher sequence": {"sequence": 7},
    "another update time": {"details": {"updateTime": "2031-01-01T00:00:00Z"}},
}


@pytest.mark.parametrize("case", NEWS_FREE)
def test_a_message_that_changes_nothing_returns_the_same_object(case: str) -> None:
    worker = after(worker_message(3, sequence=6, details={"updateTime": "2030-01-01T00:00:00Z"}))
    assert after_message(worker, worker_message(3, **NEWS_FREE[case])) is worker


NEWS: dict[str, dict[str, Any]] = {
    "a count": {"counts": {"seen": 4}},
    "a number": {"numbers": {"accuracy": 0.9}},
    "a text": {"details": {"model": "v2"}},
    "the phase": {"phase": "train"},
    "the promise": {"heartbeat_s": 5.0},
    "the status": {"status": "completed"},
}


@pytest.mark.parametrize("case", NEWS)
def test_each_other_difference_changes_the_state(case: str) -> None:
    worker = after(worker_message(3))
    assert after_message(worker, worker_message(3, **NEWS[case])) is not worker


@pytest.mark.parametrize("final", ["completed", "failed"])
def test_a_final_state_ignores_later_messages_of_its_process(final: WorkerStatus) -> None:
    worker = after(worker_message(3, status=final))
    for later in ("running", "completed", "failed"):
        assert after_message(worker, worker_message(9, status=later)) is worker


@pytest.mark.parametrize("final", ["completed", "failed"])
def test_a_new_process_runs_after_a_final_state(final: WorkerStatus) -> None:
    worker = after(worker_message(3, status=final), worker_message(1, instance="p2"))
    assert (worker.status, worker.attempt, worker.totals) == ("running", 2, {"seen": 4})


def test_a_lost_worker_is_back_with_its_next_message() -> None:
    worker = after(worker_message(1), ("lost", "no heartbeat for 3 s"), worker_message(1))
    assert (worker.status, worker.reason, worker.attempt) == ("running", "", 1)


def test_a_message_with_heartbeats_disproves_an_observed_end() -> None:
    """The message begins a new attempt, because the cloud keeps the final state of an attempt."""
    first = worker_message(3, sequence=1, heartbeat_s=10.0)
    worker = after(
        first, ("failed", "pod spoofed failed"), worker_message(4, sequence=2, heartbeat_s=10.0)
    )
    assert (worker.status, worker.reason, worker.attempt) == ("running", "", 2)
    assert worker.totals == {"seen": 4}
    worker = after_message(worker, worker_message(5, sequence=3, heartbeat_s=10.0))
    assert (worker.attempt, worker.totals) == (2, {"seen": 5})


LATE: dict[str, ProcessMessage] = {
    "sent before its end was seen": worker_message(3, sequence=1, heartbeat_s=10.0),
    "that promises no other": worker_message(4, sequence=2),
}


@pytest.mark.parametrize("case", LATE)
def test_a_late_message_disproves_no_observed_end(case: str) -> None:
    worker = after(worker_message(3, sequence=1, heartbeat_s=10.0), ("completed", "pod succeeded"))
    assert after_message(worker, LATE[case]) is worker


def test_a_finished_worker_cannot_be_lost() -> None:
    worker = after(worker_message(1, status="completed"))
    assert after_observation(worker, "lost", "pod gone") is worker


def test_a_worker_may_be_observed_dead_before_its_first_message() -> None:
    worker = after(("lost", "image cannot run"))
    assert (worker.attempt, worker.status) == (1, "lost")
    assert after(("lost", "image cannot run"), worker_message(1)).attempt == 1


def test_a_running_pod_brings_back_only_a_worker_without_heartbeats() -> None:
    silent = after(worker_message(1), ("lost", "exited"), ("running", ""))
    promised = after(worker_message(1, heartbeat_s=5.0), ("lost", "exited"), ("running", ""))
    assert (silent.status, promised.status) == ("running", "lost")


def test_a_process_without_a_name_is_new_after_the_one_before_was_observed_dead() -> None:
    worker = after(
        worker_message(5, instance=""), ("failed", "exit code 1"), worker_message(2, instance="")
    )
    assert (worker.attempt, worker.status, worker.totals) == (2, "running", {"seen": 7})


RESTARTED: dict[str, tuple[ProcessMessage, ProcessMessage]] = {
    "a count fell": (worker_message(5, instance=""), worker_message(2, instance="")),
    "it runs after its end": (
        worker_message(5, instance="", status="completed"),
        worker_message(2, instance="", status="running"),
    ),
}


@pytest.mark.parametrize("case", RESTARTED)
def test_messages_that_show_a_new_process_without_a_name(case: str) -> None:
    worker = after(*RESTARTED[case])
    assert (worker.attempt, worker.status, worker.totals) == (2, "running", {"seen": 7})


CONTINUED: dict[str, tuple[ProcessMessage, ProcessMessage]] = {
    "more was counted": (worker_message(5, instance=""), worker_message(7, instance="")),
    "a count is not told": (worker_message(7, instance=""), worker_message(instance="", counts={})),
    "it was overtaken": (
        worker_message(7, instance="", sequence=2),
        worker_message(5, instance="", sequence=1),
    ),
    "its end is told again": (
        worker_message(7, instance="", status="completed"),
        worker_message(7, instance="", status="completed"),
    ),
}


@pytest.mark.parametrize("case", CONTINUED)
def test_messages_that_show_the_same_process_without_a_name(case: str) -> None:
    assert after(*CONTINUED[case]).attempt == 1


def test_a_process_that_may_still_speak_counts_once_however_many_there_are() -> None:
    names = [f"p{n}" for n in range(MAX_WORKER_PROCESSES)]
    messages = [worker_message(seen, instance=name) for seen in (1, 2, 3) for name in names]
    assert after(*messages).totals == {"seen": 3 * MAX_WORKER_PROCESSES}
    with pytest.raises(TooManyProcesses, match="256 processes"):
        after(*messages, worker_message(1, instance="one more"))


def test_processes_are_bounded_and_counts_of_ended_processes_stay() -> None:
    worker = NEW_RECORD
    names = ["alive", *(f"p{n}" for n in range(3 * MAX_WORKER_PROCESSES)), "alive"]
    for seen, name in enumerate(names, start=1):
        message = worker_message(seen if name == "alive" else 1, instance=name)
        worker = after_message(worker, message, may_speak=lambda instance: instance == "alive")
    assert len(worker.processes) == MAX_WORKER_PROCESSES
    assert worker.totals == {"seen": 3 * MAX_WORKER_PROCESSES + len(names)}
    assert worker.attempt == 3 * MAX_WORKER_PROCESSES + 1


def test_numbers_that_are_not_counts_come_from_the_newest_process() -> None:
    worker = after(
        worker_message(numbers={"round": 7}), worker_message(instance="p2", numbers={"round": 1})
    )
    assert worker.report("").task_info == {"round": 1, "seen": 0}


def test_another_end_of_a_worker_that_names_no_process_is_that_of_a_new_one() -> None:
    """Sedna's library sends one message for each round that it trains."""

    def end(url: str) -> ProcessMessage:
        return ProcessMessage(phase="train", status="completed", details={"results.0.url": url})

    first = after(end("/out/1/model"))
    assert after(end("/out/1/model"), end("/out/1/model")) == first
    second = after(end("/out/1/model"), end("/out/2/model"))
    assert (second.attempt, second.details) == (2, {"results.0.url": "/out/2/model"})


def test_another_end_of_a_worker_that_counts_adds_nothing() -> None:
    """Sedna's library sends such a message in each period of an inference worker."""

    def end(count: int) -> ProcessMessage:
        details = {"updateTime": str(count)}
        return ProcessMessage(status="completed", counts={"seen": count}, details=details)

    assert after(end(10), end(20), end(30)).totals["seen"] == 10


def test_an_end_that_comes_again_with_another_time_is_the_same() -> None:
    ends = [
        ProcessMessage(phase="train", status="completed", details={"updateTime": time})
        for time in ("a", "b")
    ]
    assert after(*ends).attempt == 1
