"""Elastic TrainingJobs in a full cluster: the launcher gets room before further workers."""

import pytest

from tests.globalmanager.kinds.elastic.room import FULL, ElasticCluster, elastic
from tests.globalmanager.kinds.elastic.world import LAUNCHER, worker
from tests.support.world import merged


def full(*, low: int = 1, workers: int = 2, queued: int = 1) -> ElasticCluster:
    """A job that runs with so many workers, and more of them wait for room."""
    job = elastic(low=low, high=9, queued=queued, restartPolicy="OnFailure", backoffLimit=1000)
    cluster = ElasticCluster(job, room=workers + 1).rest()
    assert cluster.status["phase"] == "Running"
    assert cluster.queue() == [worker(workers + index) for index in range(queued)]
    cluster.now += 3600
    return cluster


def lose_launcher(cluster: ElasticCluster) -> ElasticCluster:
    """Other pods take the room of the launcher."""
    cluster.room -= 1
    cluster.disrupt(LAUNCHER)
    return cluster


# ---- room for the launcher ----------------------------------------------------------------------


@pytest.mark.parametrize("queued", [1, 3])
def test_a_launcher_that_restarts_gets_the_room_back_that_a_waiting_worker_took(
    queued: int,
) -> None:
    cluster = full(queued=queued)
    cluster.fail(LAUNCHER, 1).tick()
    assert cluster.running() == [0, 1, 2]
    cluster.rest()
    assert cluster.status["phase"] == "Running"
    assert cluster.running() == [0, 1]
    assert cluster.hosts() == [worker(0), worker(1)]
    assert len(cluster.queue()) == queued


def test_a_launcher_that_loses_its_room_takes_the_room_of_the_last_worker() -> None:
    cluster = lose_launcher(full(workers=4)).rest()
    assert cluster.status["phase"] == "Running"
    assert cluster.hosts() == [worker(0), worker(1), worker(2)]
    assert cluster.ended == [worker(3)]
    (told,) = cluster.told_of("WorkerTakenBack")
    assert worker(3) in told
    assert cluster.queue() == [worker(4)]


def test_the_launcher_takes_no_room_of_the_workers_that_the_job_needs() -> None:
    cluster = lose_launcher(full(low=2)).rest()
    cluster.now += 7200
    cluster.rest()
    assert cluster.status["phase"] == "Restarting"
    assert cluster.running() == [0, 1]
    assert cluster.ended == []
    assert cluster.stalled()[0] == "Unschedulable"


def waiting_launcher(reason: str) -> ElasticCluster:
    """A job of eight workers whose launcher has no node."""
    cluster = full(workers=8)
    cluster.room = 8
    cluster.disrupt(LAUNCHER)
    for _ in range(200):
        cluster.tick()
        pod = cluster.pods_of_job().get(LAUNCHER)
        if pod is not None and "nodeName" not in pod["spec"]:
            break
        cluster.planned()
        cluster.now += 1
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": FULL}
    cluster.set(LAUNCHER, {"status": {"conditions": [condition]}})
    return cluster


def taken_back(cluster: ElasticCluster, seconds: int) -> list[str]:
    """The workers that end within this time, in which nothing else changes."""
    for _ in range(0, seconds, 5):
        cluster.planned()
        cluster.now += 5
    return cluster.ended


@pytest.mark.parametrize(("seconds", "number"), [(40, 1), (60, 2), (105, 3), (400, 7)])
def test_the_scheduler_has_time_between_two_workers_that_are_taken_back(
    seconds: int, number: int
) -> None:
    """30 s for the end of a pod, and 15 s for the scheduler."""
    assert len(taken_back(waiting_launcher("Unschedulable"), seconds)) == number


def test_a_worker_with_a_long_grace_period_has_the_time_to_end() -> None:
    cluster = waiting_launcher("Unschedulable")
    grace = {"spec": {"terminationGracePeriodSeconds": 100}}
    edit = {"etReplicaSpecs": {"worker": {"template": grace}}}
    cluster.change(merged(cluster.object["spec"], edit))
    assert len(taken_back(cluster, 105)) == 1
    assert len(taken_back(cluster, 20)) == 2


def test_a_launcher_that_waits_for_something_else_than_room_takes_none() -> None:
    assert taken_back(waiting_launcher("SchedulingGated"), 100) == []


def test_a_clock_that_was_set_back_holds_up_no_launcher() -> None:
    cluster = waiting_launcher("Unschedulable")
    cluster.object["status"]["elastic"]["lastScaleTime"] = "2099-01-01T00:00:00Z"
    assert "WorkerTakenBack" in {event.reason for event in cluster.planned().events}


# ---- the queue stays the same -------------------------------------------------------------------


@pytest.mark.parametrize("queued", [1, 3])
def test_the_queue_keeps_its_names_however_often_the_launcher_restarts(queued: int) -> None:
    cluster = full(queued=queued)
    before = cluster.status["targetWorkers"]
    for number in range(1, 8):
        cluster.fail(LAUNCHER, 1).rest()
        assert cluster.status["restartCount"] == number
        assert cluster.status["targetWorkers"] == before
    assert cluster.status["nextWorkerIndex"] == len(before)


def test_no_further_worker_waits_while_the_launcher_does() -> None:
    cluster = full(low=1, workers=1, queued=2)
    lose_launcher(cluster).rest()
    assert cluster.status["phase"] == "Restarting"
    assert sorted(cluster.pods_of_job()) == [LAUNCHER, worker(0)]
    assert cluster.status["targetWorkers"] == [worker(0), worker(1), worker(2)]
    assert cluster.told()["waiting"] == 2
    assert cluster.told()["reason"] == "LauncherPending"
    cluster.room = 2
    cluster.rest()
    assert sorted(cluster.pods_of_job()) == [LAUNCHER, worker(0), worker(1), worker(2)]
    assert cluster.told()["reason"] == "Unschedulable"


def test_the_workers_that_the_launcher_needs_wait_before_it_starts() -> None:
    cluster = full(low=3, workers=3, queued=2)
    cluster.disrupt(worker(0))
    cluster.room -= 1
    lose_launcher(cluster).rest()
    waiting = [name for name in cluster.pods_of_job() if name not in cluster.bound()]
    assert waiting == [worker(3)]
    assert cluster.told()["waiting"] == 2


def test_a_lost_worker_says_that_the_launcher_gets_room_first() -> None:
    cluster = full(workers=4)
    cluster.object["status"]["targetWorkers"].pop()  # nobody waits
    cluster.gone("Pod", worker(4))
    cluster.room -= 1
    cluster.disrupt(worker(3))
    lose_launcher(cluster).planned()
    (told,) = cluster.told_of("WorkerLost")
    assert "the launcher gets room first" in told


def test_a_worker_that_came_while_the_launcher_was_away_is_listed_when_it_is_back() -> None:
    cluster = full()
    cluster.room += 1
    cluster.fail(LAUNCHER, 1)
    for _ in range(200):
        cluster.tick()
        cluster.planned()
        cluster.now += 0.2
        if LAUNCHER in cluster.bound():
            break
        assert worker(2) not in cluster.hosts()
    cluster.rest()
    assert cluster.hosts() == [worker(0), worker(1), worker(2)]
    assert cluster.ended == []
