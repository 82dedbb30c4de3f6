"""Elastic TrainingJobs: as many workers as there is room for, and the others wait."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeai.api.specs import InvalidSpec
from globalmanager.kinds.elastic.trainingjob.spec import read
from tests.globalmanager.kinds.elastic.room import FULL, ElasticCluster, elastic
from tests.globalmanager.kinds.elastic.world import JOB, LAUNCHER, example, worker


def true_conditions(cluster: ElasticCluster) -> list[str]:
    return [one["type"] for one in cluster.status["conditions"] if one["status"] == "True"]


def set_replicas(cluster: ElasticCluster, number: int) -> ElasticCluster:
    spec = {**cluster.object["spec"]}
    replicas = spec["etReplicaSpecs"]
    worker_form = {**replicas["worker"], "replicas": number}
    cluster.change({**spec, "etReplicaSpecs": {**replicas, "worker": worker_form}})
    return cluster


# ---- room comes and goes ------------------------------------------------------------------------


def test_a_full_cluster_starts_the_job_with_min_replicas_and_one_worker_waits() -> None:
    cluster = ElasticCluster(elastic(low=2), room=3).rest()
    assert cluster.status["phase"] == "Running"
    assert cluster.running() == [0, 1]
    assert cluster.hosts() == [worker(0), worker(1)]
    assert cluster.told() == {
        "ready": 2,
        "waiting": 1,
        "reason": "Unschedulable",
        "message": f"pod {worker(2)}: Unschedulable: {FULL}",
        "lastScaleTime": cluster.told()["lastScaleTime"],
    }


def test_a_waiting_worker_stalls_no_job_however_long_it_waits() -> None:
    cluster = ElasticCluster(elastic(low=2), room=3).rest()
    cluster.now += 86400
    cluster.rest()
    assert true_conditions(cluster)[-1] == "Running"
    assert "Stalled" not in true_conditions(cluster)
    assert cluster.status["nextWorkerIndex"] == 3


def test_a_job_below_min_replicas_stalls() -> None:
    cluster = ElasticCluster(elastic(low=2), room=1).rest()
    cluster.now += 120
    cluster.rest()
    assert cluster.status["phase"] == "WorkersCreated"
    assert true_conditions(cluster)[0] == "Stalled"
    assert cluster.status["targetWorkers"] == [worker(0), worker(1)]


def test_the_launcher_gets_room_before_the_workers_above_min_replicas() -> None:
    cluster = ElasticCluster(elastic(low=1), room=1).rest()
    assert sorted(cluster.pods_of_job()) == [LAUNCHER, worker(0)]
    cluster.room = 2
    cluster.rest()
    assert cluster.status["phase"] == "Running"
    assert cluster.queue() == [worker(1)]


def test_the_job_grows_with_the_room_up_to_max_replicas() -> None:
    cluster = ElasticCluster(elastic(low=1, high=4), room=2).rest()
    for room, running in ((3, [0, 1]), (10, [0, 1, 2, 3])):
        cluster.room = room
        cluster.rest()
        assert cluster.running() == running
        assert cluster.hosts() == [worker(index) for index in running]
    assert cluster.queue() == []
    assert cluster.told()["waiting"] == 0


def test_as_many_workers_wait_as_max_queued_says() -> None:
    assert len(ElasticCluster(elastic(high=6, queued=3), room=3).rest().queue()) == 3
    assert len(ElasticCluster(elastic(high=6, queued=9), room=3).rest().queue()) == 4


def test_a_preempted_worker_leaves_and_the_training_goes_on() -> None:
    cluster = ElasticCluster(elastic(low=1, high=4), room=5).rest()
    cluster.preempt(2).rest()
    assert cluster.status["phase"] == "Running"
    assert cluster.hosts() == [worker(0), worker(1)]
    assert cluster.queue() == [worker(4)]
    assert "Stalled" not in true_conditions(cluster)
    assert "restartCount" not in cluster.status
    cluster.room += 2
    assert cluster.rest().running() == [0, 1, 4, 5]


def test_the_worker_that_waits_takes_the_place_of_a_lost_one() -> None:
    cluster = ElasticCluster(elastic(low=1, high=4), room=3).rest()
    assert cluster.queue() == [worker(2)]
    cluster.preempt().rest()
    assert (cluster.running(), cluster.queue()) == ([0], [worker(2)])
    assert cluster.status["nextWorkerIndex"] == 3


def test_after_the_loss_of_all_workers_as_many_wait_as_the_job_needs() -> None:
    cluster = ElasticCluster(elastic(low=2, high=6), room=7).rest()
    cluster.preempt(6).rest()
    assert len(cluster.queue()) == 2
    assert len(cluster.status["targetWorkers"]) == 2


def test_a_worker_that_the_launcher_never_had_is_made_again_under_its_name() -> None:
    cluster = ElasticCluster(elastic(low=1, high=4), room=2).rest()
    refused = {"phase": "Failed", "reason": "OutOfcpu", "conditions": []}
    for _ in range(8):
        cluster.set(worker(1), {"spec": {"nodeName": "node"}, "status": refused})
        cluster.rest()
    assert worker(1) in cluster.queue()
    assert cluster.status["nextWorkerIndex"] == 3  # beside worker 1 another one waits


def test_a_node_that_starts_no_pod_keeps_no_room_from_further_workers() -> None:
    cluster = ElasticCluster(elastic(low=1, high=4), room=2).rest()
    cluster.broken.add(worker(1))
    cluster.room = 9
    cluster.rest()
    assert cluster.hosts() == [worker(0), worker(2), worker(3)]
    assert cluster.told()["waiting"] == 1
    assert cluster.told()["reason"] == "ImagePullBackOff"


@pytest.mark.parametrize("queued", [1, 3])
def test_nodes_that_start_no_pod_get_a_bounded_number_of_them(queued: int) -> None:
    cluster = ElasticCluster(elastic(low=1, high=20, queued=queued), room=2)
    cluster.broken.update(worker(index) for index in range(1, 20))
    cluster.rest()
    cluster.room = 30
    cluster.rest()
    assert cluster.told()["waiting"] == 2 * queued
    cluster.broken.clear()
    cluster.rest()
    assert len(cluster.hosts()) == 20
    assert cluster.status["nextWorkerIndex"] == 20


def test_workers_that_a_node_refuses_are_made_again_ever_more_slowly() -> None:
    cluster = ElasticCluster(elastic(low=1, high=4), room=2).rest()
    refused = {"phase": "Failed", "reason": "OutOfcpu", "conditions": []}
    before = cluster.now
    for _ in range(20):
        cluster.set(worker(1), {"spec": {"nodeName": "node"}, "status": refused})
        cluster.rest()
    assert cluster.now - before > 10 * 60


def test_the_message_of_the_scheduler_stays_while_the_reason_does() -> None:
    cluster = ElasticCluster(elastic(low=2), room=3).rest()
    entry = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    entry |= {"message": "0/9 nodes are available: 9 Insufficient memory." * 50}
    cluster.set(worker(2), {"status": {"conditions": [entry]}})
    made = cluster.planned()
    assert (made.actions, made.status) == ((), None)


def test_from_index_1000_on_workers_are_added_slowly_unless_the_job_needs_them() -> None:
    cluster = ElasticCluster(elastic(low=1, high=4), room=2).rest()
    cluster.object["status"]["nextWorkerIndex"] = 1000
    cluster.room, before = 5, cluster.now
    cluster.rest()
    assert len(cluster.running()) == 4
    assert cluster.now - before > 1190
    cluster.preempt(4)
    before = cluster.now
    while len(cluster.queue()) < 1:
        cluster.tick()
        cluster.planned()
        cluster.now += 0.1
    assert cluster.now - before < 60


def test_a_suspended_job_resumes_with_the_workers_that_it_needs() -> None:
    cluster = ElasticCluster(elastic(low=2, high=6), room=9).rest()
    marks = cluster.object["metadata"]
    marks["annotations"] = {"job-supervisor.kube-ai.io/job-suspended": "true"}
    cluster.rest()
    assert cluster.pods_of_job() == {}
    assert cluster.told()["ready"] == 0
    marks = cluster.object["metadata"]
    marks["annotations"] = {}
    cluster.room = 3
    cluster.rest()
    assert (len(cluster.running()), len(cluster.queue())) == (2, 1)


# ---- the limits ---------------------------------------------------------------------------------


def test_kubectl_scale_sets_the_limit_and_surplus_workers_go_gently() -> None:
    cluster = ElasticCluster(elastic(low=1, high=6), room=6).rest()
    assert len(cluster.running()) == 5
    set_replicas(cluster, 3)
    while not cluster.executions:
        cluster.tick()
        cluster.planned()
        cluster.now += 1
    assert cluster.ended == []  # not before the launcher has let go of them
    cluster.end(exit_code=0)
    cluster.rest()
    assert cluster.running() == [0, 1, 2]
    assert cluster.queue() == []
    assert cluster.told()["limit"] == 3
    assert cluster.state(f"{JOB}-scale-2")["phase"] == "ScaleSucceeded"
    set_replicas(cluster, 6).rest()
    assert len(cluster.running()) == 5
    assert "limit" not in cluster.told()


@pytest.mark.parametrize("number", [9, 1])
def test_kubectl_scale_beyond_the_limits_fails_and_changes_nothing(number: int) -> None:
    cluster = ElasticCluster(elastic(low=2, high=6), room=4).rest()
    before = cluster.status["targetWorkers"]
    set_replicas(cluster, number).rest()
    assert cluster.state(f"{JOB}-scale-2")["phase"] == "ScaleFailed"
    assert cluster.status["targetWorkers"] == before


def test_a_lower_max_replicas_takes_waiting_workers_back_and_others_gently() -> None:
    cluster = ElasticCluster(elastic(low=1, high=6), room=4).rest()
    job = elastic(low=1, high=2)
    cluster.change(job["spec"])
    while not cluster.executions:
        cluster.tick()
        cluster.planned()
        cluster.now += 1
    cluster.end(exit_code=0)
    cluster.rest()
    assert cluster.running() == [0, 1]
    assert cluster.queue() == []


def test_scalers_of_an_elastic_job_fail_and_say_what_to_do() -> None:
    cluster = ElasticCluster(elastic(low=1, high=6), room=4).rest()
    cluster.scale_out(1).scale_in(count=1).rest()
    for name in ("out", "in"):
        assert cluster.state(name)["phase"] == "ScaleFailed"
        assert "spec.elastic" in cluster.state(name)["message"]
        assert "kubectl scale" in cluster.state(name)["message"]
    assert cluster.running() == [0, 1, 2]


def test_a_running_job_becomes_elastic_and_ceases_to_be() -> None:
    job = elastic(low=1, high=4)
    plain = {key: value for key, value in job["spec"].items() if key != "elastic"}
    cluster = ElasticCluster({**job, "spec": plain}, room=9).rest()
    assert cluster.running() == [0]
    cluster.change(job["spec"]).wait = None
    assert cluster.rest().running() == [0, 1, 2, 3]
    cluster.change(plain)
    cluster.rest()
    assert cluster.running() == [0, 1, 2, 3]
    assert "elastic" not in cluster.status


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"minReplicas": None}, "worker.minReplicas"),
        ({"maxReplicas": None}, "worker.maxReplicas"),
        ({"minReplicas": 5, "maxReplicas": 4}, "worker.minReplicas"),
        ({"restartPolicy": "Never"}, "worker.restartPolicy"),
    ],
)
def test_an_elastic_job_needs_limits_and_replaced_workers(
    changes: dict[str, Any], field: str
) -> None:
    job = example(elastic={}, worker={"minReplicas": 1, "maxReplicas": 4, **changes})
    form = job["spec"]["etReplicaSpecs"]["worker"]
    for key in [key for key, value in form.items() if value is None]:
        del form[key]
    fault = read(job).start_fault
    assert fault is not None
    assert fault.path == f"spec.etReplicaSpecs.{field}"
    assert "spec.elastic" in str(fault) or "maxReplicas" in str(fault)


@pytest.mark.parametrize("number", [0, 101])
def test_max_queued_has_limits(number: int) -> None:
    with pytest.raises(InvalidSpec) as refused:
        read(elastic(queued=number))
    assert refused.value.path == "spec.elastic.maxQueued"


# ---- any order of events ------------------------------------------------------------------------


def happen(cluster: ElasticCluster, random_: random.Random) -> int:
    """One event. Returns: how many workers it can cost"""
    workers = [name for name in cluster.bound() if name != LAUNCHER]
    events = ["more", "less", "evict", "delete", "refuse", "launcher", "time", "tick", "tick"]
    match random_.choice(events):
        case "more":
            cluster.room += random_.randint(1, 4)
        case "less":
            lost = random_.randint(1, 4)
            cluster.preempt(min(lost, cluster.room))
            return lost
        case "evict" if workers:
            state = {"phase": "Failed", "reason": "Evicted"}
            cluster.set(random_.choice(workers), {"status": state})
            return 1
        case "delete" if cluster.queue():
            cluster.gone("Pod", random_.choice(cluster.queue()))
        case "refuse" if cluster.queue():
            name = random_.choice(cluster.queue())
            state = {"phase": "Failed", "reason": "OutOfcpu"}
            if name in cluster.pods_of_job():
                cluster.set(name, {"spec": {"nodeName": "node"}, "status": state})
        case "launcher" if LAUNCHER in cluster.bound():
            cluster.fail(LAUNCHER, 1)
        case "time":
            cluster.now += random_.choice([1.0, 10.0, 100.0])
        case _:
            cluster.tick()
    return 0


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    low=st.integers(1, 3),
    more=st.integers(0, 5),
    queued=st.integers(1, 3),
)
def test_room_comes_and_goes(seed: int, low: int, more: int, queued: int) -> None:
    random_ = random.Random(seed)
    high, lost = low + more, 0
    job = elastic(low=low, high=high, queued=queued, restartPolicy="OnFailure", backoffLimit=1000)
    cluster = ElasticCluster(job, room=random_.randint(0, 9))
    taken_back: set[str] = set()
    """Workers that had no room when the job decided to do without them."""
    for _ in range(25):
        lost += happen(cluster, random_)
        made = cluster.plan(cluster.clock)
        wanted = (made.status or {}).get("targetWorkers", cluster.queue())
        taken_back.update(name for name in cluster.queue() if name not in wanted)
        if random_.random() < 0.2:  # the GlobalManager is killed
            cluster.apply(made, actions=random_.randint(0, 2))
            cluster.crash()
            continue
        cluster.apply(made)
        assert low <= len(cluster.status["targetWorkers"]) <= high
        waiting = cluster.told()["waiting"]
        assert waiting <= 2 * queued or len(cluster.status["targetWorkers"]) <= low
        for name in cluster.ended:  # only for the launcher the job gives up room
            assert name in taken_back or LAUNCHER not in cluster.bound()
        taken_back.update(cluster.ended)
    cluster.rest()
    writes = cluster.plan(cluster.clock)
    assert (writes.actions, writes.status, writes.requeue_after_s) == ((), None, None)
    room = max(cluster.room - 1, 0)
    assert LAUNCHER in cluster.bound() or room < low
    if LAUNCHER in cluster.bound():
        assert len(cluster.running()) == min(room, high)
        if cluster.running():  # a list is never empty again
            assert sorted(cluster.hosts()) == sorted(map(worker, cluster.running()))
    assert cluster.status["phase"] != "Failed"
    assert cluster.status["nextWorkerIndex"] <= high + lost + len(taken_back)


# ---- what does not count ------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [None, 1, 9])
def test_replicas_do_not_count_at_the_start(replicas: int | None) -> None:
    job = elastic(low=2, high=4)
    form = job["spec"]["etReplicaSpecs"]["worker"]
    if replicas is None:
        del form["replicas"]
    else:
        form["replicas"] = replicas
    cluster = ElasticCluster(job, room=9).rest()
    assert cluster.status["phase"] == "Running"
    assert len(cluster.running()) == 4


def test_a_time_in_the_future_holds_up_no_growth() -> None:
    cluster = ElasticCluster(elastic(low=1, high=4), room=2).rest()
    cluster.object["status"]["nextWorkerIndex"] = 1000
    cluster.object["status"]["elastic"]["lastScaleTime"] = "2099-01-01T00:00:00Z"
    cluster.room = 3
    cluster.tick()
    written = cluster.plan(cluster.clock).status
    assert written is not None
    assert written["nextWorkerIndex"] == 1001
