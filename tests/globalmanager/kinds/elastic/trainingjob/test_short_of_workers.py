"""Elastic TrainingJobs that cannot have the workers that they need: no index, ended for good."""

from typing import Any

import pytest

from tests.globalmanager.kinds.elastic.room import ElasticCluster, elastic
from tests.globalmanager.kinds.elastic.world import LAUNCHER, example, worker

NO_INDEX = "no index up to 9999 is left"


def at_the_last_index(job: dict[str, Any], *, room: int) -> ElasticCluster:
    """A job that runs, and for which no index is left."""
    cluster = ElasticCluster(job, room=room).rest()
    assert cluster.status["phase"] == "Running"
    cluster.object["status"]["nextWorkerIndex"] = 10_000
    return cluster


# ---- no index is left ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "room", "left"),
    [
        (1, 1, 2, NO_INDEX),  # nobody waits
        (1, 4, 3, "another worker waits for room"),
    ],
)
def test_the_event_about_a_lost_worker_says_whether_another_one_waits(
    low: int, high: int, room: int, left: str
) -> None:
    cluster = at_the_last_index(elastic(low=low, high=high), room=room)
    cluster.preempt().rest()
    (told,) = cluster.told_of("WorkerLost")
    assert left in told
    assert cluster.told_of("WorkerReplaced") == []


def test_the_status_says_that_no_index_is_left() -> None:
    cluster = at_the_last_index(elastic(low=1, high=4), room=3)
    cluster.room = 9
    cluster.rest()
    assert cluster.told()["reason"] == "NoIndexLeft"
    assert NO_INDEX in cluster.told()["message"]
    assert cluster.told()["waiting"] == 0


@pytest.mark.parametrize("job", [elastic(low=1, high=1), example(worker={"replicas": 1})])
def test_no_launcher_starts_without_workers(job: dict[str, Any]) -> None:
    job["spec"]["restartPolicy"] = "OnFailure"
    cluster = at_the_last_index(job, room=2)
    cluster.preempt().rest()
    assert cluster.status["targetWorkers"] == []
    cluster.fail(LAUNCHER, 1).rest()
    assert cluster.status["phase"] == "Failed"
    assert NO_INDEX in cluster.condition("Failed")["message"]


def test_no_launcher_starts_with_fewer_workers_than_min_replicas() -> None:
    cluster = at_the_last_index(elastic(low=2, high=2, restartPolicy="OnFailure"), room=3)
    cluster.preempt().rest()
    assert cluster.status["phase"] == "Running"
    cluster.fail(LAUNCHER, 1).rest()
    assert cluster.status["phase"] == "Failed"


def test_a_job_below_min_replicas_without_an_index_stalls() -> None:
    cluster = at_the_last_index(elastic(low=2, high=2), room=3)
    cluster.preempt().rest()
    reason, message = cluster.stalled()
    assert reason == "TooFewWorkers"
    assert NO_INDEX in message


# ---- workers that have ended for good -----------------------------------------------------------


def test_a_job_that_ended_workers_keep_below_min_replicas_stalls() -> None:
    cluster = ElasticCluster(elastic(low=2, high=2), room=3).rest()
    cluster.fail(worker(1), 1).rest()
    assert cluster.status["targetWorkers"] == [worker(0), worker(1)]
    assert cluster.status["phase"] == "Running"
    assert cluster.hosts() == [worker(0)]
    reason, message = cluster.stalled()
    assert reason == "TooFewWorkers"
    assert worker(1) in message
    assert "exit code 1" in message
    assert "the launcher needs 2" in message
    assert cluster.told_of("TrainingJobStalled") == [message]


def test_for_an_ended_worker_another_one_waits_up_to_max_replicas() -> None:
    cluster = ElasticCluster(elastic(low=2, high=3), room=3).rest()
    cluster.fail(worker(0), 1).fail(worker(1), 1)
    cluster.room = 1
    cluster.rest()
    assert cluster.status["targetWorkers"] == [worker(0), worker(1), worker(2)]
    assert cluster.told()["waiting"] == 1
    assert cluster.told()["ready"] == 0
    assert cluster.stalled()[0] == "TooFewWorkers"


def test_as_many_workers_wait_as_min_replicas_needs_without_those_that_ended() -> None:
    cluster = ElasticCluster(elastic(low=3, high=6), room=4).rest()
    cluster.fail(worker(0), 1).preempt(3).rest()
    assert cluster.told()["waiting"] == 3


def test_a_job_whose_workers_end_before_the_launcher_starts_has_failed() -> None:
    """As without spec.elastic."""
    cluster = ElasticCluster(elastic(low=2, high=6), room=1).rest()
    cluster.fail(worker(0), 1).rest()
    assert cluster.status["phase"] == "Failed"


# ---- after the end ------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "ready"), [("None", 2), ("Running", 0), ("All", 0)])
def test_after_the_end_the_status_counts_the_workers_that_are_there(
    policy: str, ready: int
) -> None:
    cluster = ElasticCluster(elastic(low=1, high=2, cleanPodPolicy=policy), room=3).rest()
    assert cluster.told()["ready"] == 2
    cluster.set(LAUNCHER, {"status": {"phase": "Succeeded"}})
    cluster.rest()
    assert cluster.status["phase"] == "Succeeded"
    assert (cluster.told()["ready"], cluster.told()["waiting"]) == (ready, 0)
    assert len(cluster.running()) == ready
