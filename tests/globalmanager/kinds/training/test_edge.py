"""Training jobs across the edge: reports of a replica's node, disconnections, the grace time."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from common.wire import THE_NODE_ITSELF
from edgeai.api.resources import PODS, ObjectRef
from edgeai.times import rfc3339
from globalmanager.contract import Assignment, Delete, Kind, Plan, ReportRefused, WorkerReport
from globalmanager.kinds.training import pytorchjob, tfjob
from globalmanager.kinds.training.edge_placement import GRACE
from globalmanager.kinds.training.edge_reports import MAX_WORKERS_BYTES
from tests.globalmanager.kinds.training.samples import (
    conditions,
    numbers,
    pods,
    pytorch_spec,
    template,
    tf_spec,
)
from tests.support.world import NOW, World, at, job, report

KIND = pytorchjob.KIND
MASTER, WORKER_0, WORKER_1 = "mnist-master-0", "mnist-worker-0", "mnist-worker-1"
OUT = "ReplicasOutOfContact"


def edge_job(
    policy: str = "ExitCode",
    *,
    grace: str | None = "60",
    run: dict[str, Any] | None = None,
    kind: Kind = KIND,
    spec: dict[str, Any] | None = None,
) -> World:
    """A job with a master on cloud0 and workers on edge0 and edge1, all of them running."""
    object_ = job("mnist", spec or pytorch_spec(policy=policy, run=run))
    if grace is not None:
        object_["metadata"]["annotations"] = {GRACE: grace}
    world = World(kind, object_).settle()
    for name in pods(world):
        bind(world, name, {"0": "edge0", "1": "edge1"}[name[-1]] if "worker" in name else "cloud0")
    world.pods_become("Running", conditions=[ready("True", NOW)])
    return world.contact("edge0").contact("edge1").settle()


def ref(name: str) -> ObjectRef:
    return ObjectRef(PODS, "default", name)


def bind(world: World, name: str, node: str) -> None:
    pod = world.children[ref(name)]
    world.children[ref(name)] = {**pod, "spec": {**pod["spec"], "nodeName": node}}


def ready(truth: str, since: datetime, reason: str = "") -> dict[str, Any]:
    given = {"reason": reason} if reason else {}
    return {"type": "Ready", "status": truth, "lastTransitionTime": rfc3339(since), **given}


def silent(world: World, name: str = WORKER_0, since: datetime = NOW) -> World:
    """The node controller marks the pod, because its kubelet does not renew its Lease."""
    return world.pods_become("Running", name, conditions=[ready("False", since)])


def cut(world: World, name: str = WORKER_0, node: str = "edge0", since: datetime = NOW) -> World:
    """Kubelet and LocalController of the node have no contact."""
    return silent(world, name, since).contact(node, connected=False, since=since)


def delete(world: World, name: str, seconds: float = 300) -> None:
    """Somebody deletes the pod, for example the taint manager."""
    pod = world.children[ref(name)]
    metadata = {**pod["metadata"], "deletionTimestamp": rfc3339(at(seconds))}
    world.children[ref(name)] = {**pod, "metadata": metadata}


def told(
    world: World,
    status: Any = "running",
    name: str = WORKER_0,
    *,
    node: str = "edge0",
    uid: str = "",
    created: str = "2026-01-01T00:00:00Z",
    codes: str = "",
    **fields: Any,
) -> WorkerReport:
    """A report about the replica's present pod, as a LocalController makes it."""
    pod = world.children.get(ref(name), {"metadata": {"uid": "gone"}})
    details = {"podUid": uid or pod["metadata"]["uid"], "podCreatedAt": created}
    given = {"exitCodes": codes} if codes else {}
    return report(worker=name, node=node, status=status, details=details | given, **fields)


def contact(world: World) -> tuple[str, str]:
    found = world.condition("EdgeConnected")
    return found.get("status", ""), found.get("reason", "")


def held(world: World) -> dict[str, Assignment]:
    by_node = world.kind.assignments(world.observed())
    return {str(node): assignment for node, assignment in by_node.items()}


def deletions(plan: Plan) -> dict[str, bool]:
    """Pod -> whether its deletion is forced."""
    actions = (action for action in plan.actions if isinstance(action, Delete))
    return {one.ref.name: one.is_forced for one in actions if one.ref.type == PODS}


# ---- what a node holds ----


def test_a_node_with_a_pod_holds_the_job() -> None:
    world = edge_job()
    nodes = held(world)
    assert [*nodes] == ["cloud0", "edge0", "edge1"]
    assert nodes["edge0"].body.workers == dict.fromkeys(
        [MASTER, WORKER_0, WORKER_1], THE_NODE_ITSELF
    )
    assert nodes["edge0"].version == 1
    assert nodes["edge0"].body is nodes["edge1"].body, "one body is encoded once"


def test_a_replica_whose_template_names_a_node_is_granted_there_alone() -> None:
    spec = pytorch_spec()
    spec["pytorchReplicaSpecs"]["Master"]["template"] = template(nodeName="cloud0")
    world = edge_job(spec=spec)
    nodes = held(world)
    assert [*nodes["cloud0"].body.workers] == [WORKER_0, WORKER_1, MASTER]
    assert [*nodes["edge0"].body.workers] == [WORKER_0, WORKER_1]


def test_an_assignment_depends_on_generation_and_node_alone() -> None:
    """Its version is the generation: another body under the same version would not be sent."""
    world = edge_job()
    before = held(world)["edge0"]
    world.pods_become("Failed", WORKER_1).gone("Pod", WORKER_1)
    assert held(world)["edge0"] == before


def test_a_node_holds_the_job_until_the_pod_is_gone() -> None:
    world = edge_job()
    world.pods_become("Succeeded", WORKER_0)
    assert "edge0" in held(world)
    world.gone("Pod", WORKER_0)
    assert "edge0" not in held(world)


def test_a_job_that_is_deleted_or_has_no_pods_is_held_by_no_node() -> None:
    assert held(World(KIND, job("mnist", pytorch_spec()))) == {}
    assert held(edge_job().delete()) == {}


def test_a_node_still_holds_a_job_whose_spec_was_made_wrong() -> None:
    world = edge_job().change({"pytorchReplicaSpecs": {}})
    assert [*held(world)["edge0"].body.workers] == [WORKER_0]


def test_the_localcontroller_finds_the_replica_by_its_label() -> None:
    labels = edge_job().child("Pod", WORKER_0)["metadata"]["labels"]
    assert (labels["edgeai.io/worker"], labels["edgeai.io/uid"]) == (WORKER_0, "uid-1")


# ---- where a replica goes ----

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
EDGE = "node-role.kubernetes.io/edge"


def affinity(key: str, operator: str, field: str = "matchExpressions") -> dict[str, Any]:
    terms = [{field: [{"key": key, "operator": operator}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


ALL, OUTAGE = [EDGE, UNREACHABLE, NOT_READY], [UNREACHABLE, NOT_READY]
PLACES: dict[str, tuple[dict[str, Any], str | None, Sequence[str | None]]] = {
    # the pod template's spec, the job's annotation, the keys of the tolerations
    "anywhere": ({}, None, []),
    "anywhere, with a grace time": ({}, "600", OUTAGE),
    "a node by name": ({"nodeName": "edge0"}, None, ALL),
    "a node by its label": ({"nodeSelector": {"kubernetes.io/hostname": "edge0"}}, None, ALL),
    "edge nodes by label": ({"nodeSelector": {EDGE: ""}}, None, ALL),
    "other nodes by label": ({"nodeSelector": {"gpu": "yes"}}, None, []),
    "edge nodes by affinity": (affinity(EDGE, "Exists"), None, ALL),
    "no edge nodes by affinity": (affinity(EDGE, "DoesNotExist"), None, []),
    "edge nodes by toleration": (
        {"tolerations": [{"key": EDGE, "operator": "Exists"}]},
        None,
        [UNREACHABLE, NOT_READY, EDGE],
    ),
    "with a toleration of its own": (
        {"nodeName": "edge0", "tolerations": [{"key": UNREACHABLE, "tolerationSeconds": 5}]},
        None,
        [EDGE, NOT_READY, UNREACHABLE],
    ),
    "tolerates all": (
        {"nodeName": "edge0", "tolerations": [{"operator": "Exists"}]},
        None,
        [None],
    ),
}


@pytest.mark.parametrize("case", PLACES)
def test_replicas_on_edge_nodes_tolerate_a_disconnection(case: str) -> None:
    given, grace, expected = PLACES[case]
    spec = pytorch_spec(None)
    spec["pytorchReplicaSpecs"]["Master"]["template"] = template(**given)
    object_ = job("mnist", spec)
    if grace is not None:
        object_["metadata"]["annotations"] = {GRACE: grace}
    made = World(KIND, object_).settle().child("Pod", MASTER)["spec"]
    assert [one.get("key") for one in made.get("tolerations", [])] == expected


# ---- reports ----


def test_a_report_says_how_the_replica_does() -> None:
    world = edge_job()
    world.receive(told(world, observed_at="2026-01-01T00:00:00Z"))
    entry = world.status["workers"][WORKER_0]
    assert entry == {
        "node": "edge0",
        "instance": "ledger-1",
        "attempt": 1,
        "status": "running",
        "details": {
            "podUid": world.child("Pod", WORKER_0)["metadata"]["uid"],
            "podCreatedAt": "2026-01-01T00:00:00Z",
        },
        "observedAt": "2026-01-01T00:00:00Z",
    }
    assert world.receive(told(world, observed_at="2026-01-01T00:00:09Z")) is None


def test_a_success_counts_while_the_status_of_the_pod_is_stale() -> None:
    world = silent(edge_job())
    world.receive(told(world, "completed", codes="pytorch=0"))
    world.settle(at(400))
    assert world.status["finished"] == [WORKER_0]
    assert numbers(world)["Worker"] == {"active": 1, "succeeded": 1}
    assert pods(world) == [MASTER, WORKER_0, WORKER_1]


CODES = {137: "retried", 1: "final"}


@pytest.mark.parametrize("code", CODES)
def test_a_failure_counts_with_its_exit_code(code: int) -> None:
    world = silent(edge_job())
    world.receive(told(world, "failed", codes=f"side=0,pytorch={code}", reason="it broke"))
    world.apply(world.plan(at(5)))
    if CODES[code] == "final":
        assert conditions(world)[-1] == "Failed"
        assert "it broke" in world.condition("Failed")["message"]
        return
    assert world.status["restarts"] == {WORKER_0: 1}
    assert deletions(world.plan(at(5))) == {WORKER_0: True}, "no kubelet confirms the deletion"
    world.settle(at(5))
    assert world.child("Pod", WORKER_0)["metadata"]["annotations"]["edgeai.io/attempt"] == "1"


def test_a_failure_by_the_node_before_the_kubelets_own_is_deleted_gracefully() -> None:
    world = edge_job()
    world.receive(told(world, "failed", codes="pytorch=137"))
    world.apply(world.plan(at(5)))
    assert deletions(world.plan(at(5))) == {WORKER_0: False}


def test_the_kubelets_exit_code_counts_more_than_a_report() -> None:
    world = edge_job()
    world.receive(told(world, "completed", codes="pytorch=0"))
    ended = {"name": "pytorch", "state": {"terminated": {"exitCode": 3}}}
    world.pods_become("Failed", WORKER_0, containerStatuses=[ended])
    world.apply(world.plan(at(5)))
    assert conditions(world)[-1] == "Failed"


def test_a_report_counts_more_than_a_controller_that_gave_the_pod_up() -> None:
    world = edge_job()
    world.receive(told(world, "completed", codes="pytorch=0"))
    world.pods_become("Failed", WORKER_0, reason="NodeLost")
    assert world.settle(at(5)).status["finished"] == [WORKER_0]


FOREIGN: dict[str, dict[str, Any]] = {
    "of another node": {"node": "edge1"},
    "of an earlier pod": {"uid": "an earlier pod"},
    "of a pod without a uid": {"uid": "\x00"},
    "of no replica": {"name": "mnist-worker-7"},
}


@pytest.mark.parametrize("case", FOREIGN)
@pytest.mark.parametrize("status", ["completed", "failed", "running", "lost"])
def test_a_report_that_is_not_about_the_pod_there_changes_nothing(case: str, status: str) -> None:
    world = edge_job()
    before = {**world.status}
    world.receive(told(world, status, codes="pytorch=1", **FOREIGN[case]))
    plan = world.plan(at(5))
    assert not plan.actions
    world.apply(plan)
    assert {**world.status, "workers": None} == {**before, "workers": None}


def test_a_late_report_of_the_former_node_does_not_hide_the_present_one() -> None:
    world = edge_job()
    world.receive(told(world, "completed", codes="pytorch=0", created="2026-01-01T00:05:00Z"))
    late = told(world, "failed", node="edge1", uid="former", ledger_id="ledger-2", attempt=9)
    assert world.receive(late) is None
    assert world.settle(at(5)).status["finished"] == [WORKER_0]


def test_a_younger_pod_is_heard_whatever_the_ledger_counts() -> None:
    """The ledger forgets workers of tasks that left the node, and counts from 1 again."""
    world = edge_job()
    world.receive(told(world, "failed", uid="former", attempt=7))
    world.receive(told(world, "running", created="2026-01-01T00:05:00Z", attempt=1))
    assert world.status["workers"][WORKER_0]["status"] == "running"


def test_the_end_of_a_pod_is_final() -> None:
    world = edge_job()
    world.receive(told(world, "completed", codes="pytorch=0"))
    assert world.receive(told(world, "running")) is None


def test_a_pod_that_is_being_deleted_says_nothing_through_its_node_either() -> None:
    world = edge_job()
    delete(world, WORKER_0)
    world.receive(told(world, "failed", codes="pytorch=1"))
    plan = world.plan(at(5))
    assert not plan.actions
    assert conditions(world)[-1] == "Running"


def test_a_report_after_the_end_of_the_job_changes_no_state() -> None:
    world = edge_job()
    world.pods_become("Succeeded", MASTER).settle(at(5))
    ended = conditions(world)
    assert ended[-1] == "Succeeded"
    world.receive(told(world, "failed", codes="pytorch=1"))
    world.settle(at(10))
    assert conditions(world) == ended


def test_entries_of_replicas_that_the_spec_no_longer_has_are_removed() -> None:
    world = edge_job()
    world.receive(told(world, name=WORKER_1, node="edge1"))
    world.receive(told(world))
    world.change(pytorch_spec(1, policy="ExitCode")).settle(at(5))
    assert [*world.status["workers"]] == [WORKER_0]


def test_many_large_reports_do_not_fill_the_object() -> None:
    spec = pytorch_spec(1000, policy="ExitCode")
    world = World(KIND, job("mnist", spec))
    refused = 0
    for index in range(1000):
        try:
            world.receive(
                told(
                    world,
                    "failed",
                    f"mnist-worker-{index}",
                    node="n" * 250,
                    uid="<" * 100,
                    codes="pytorch=1," * 100,
                    reason="<&>\x00ü" * 200,
                    ledger_id="l" * 1000,
                    observed_at="x" * 1000,
                    counts={f"{'k' * 60}{number}": 1.5 for number in range(30)},
                )
            )
        except ReportRefused:
            refused += 1
    assert refused == 1000 - len(world.status["workers"])
    stored = json.dumps(world.status["workers"]).replace("<", "\\u003c")
    assert 0.9 * MAX_WORKERS_BYTES < len(stored) < 1.3 * MAX_WORKERS_BYTES
    told_back = world.receive(told(world, "running", uid="next", created="2027", ledger_id="m"))
    assert told_back is not None, "a known replica is still heard"


def test_each_of_a_thousand_replicas_is_heard() -> None:
    world = World(KIND, job("mnist", pytorch_spec(999, policy="ExitCode")))
    for index in range(999):
        uid = f"00000000-0000-0000-0000-{index:012}"
        name = f"mnist-worker-{index}"
        reason = f"pod {name} succeeded without a final message"
        world.receive(told(world, "completed", name, uid=uid, reason=reason, codes="pytorch=0"))
    assert len(world.status["workers"]) == 999


# ---- out of contact ----


def test_within_the_grace_time_the_job_goes_on() -> None:
    world = cut(edge_job(), since=at(100)).settle(at(120))
    assert contact(world) == ("False", OUT)
    message = world.condition("EdgeConnected")["message"]
    assert f"{WORKER_0} since {rfc3339(at(100))}, lost at {rfc3339(at(160))}" in message
    assert conditions(world)[1:] == ["Created", "Running"]
    assert numbers(world)["Worker"] == {"active": 2}
    plan = world.plan(at(150))
    assert (plan.actions, plan.status, plan.requeue_after_s) == ((), None, 10.0)


STALE: dict[str, dict[str, Any]] = {
    "marked by the node controller": {"conditions": [ready("False", at(100))]},
    "phase Unknown": {"phase": "Unknown", "reason": "NodeLost"},
}


@pytest.mark.parametrize("case", STALE)
@pytest.mark.parametrize("is_evicted", [False, True])
def test_a_stale_pod_is_neither_failed_nor_made_anew(case: str, is_evicted: bool) -> None:
    world = edge_job().contact("edge0", connected=False, since=at(100))
    state = dict(STALE[case])
    world.pods_become(state.pop("phase", "Running"), WORKER_0, **state)
    if is_evicted:
        delete(world, WORKER_0)
    plan = world.plan(at(130))
    assert not plan.actions
    world.apply(plan)
    assert "restarts" not in world.status
    assert conditions(world)[-1] == "Running"


def test_after_the_grace_time_the_replica_is_lost_and_made_anew() -> None:
    world = cut(edge_job(), since=at(100)).settle(at(120))
    world.apply(world.plan(at(160)))
    assert world.status["restarts"] == {WORKER_0: 1}
    assert conditions(world)[-1] == "Restarting"
    assert "NodeLost" in world.condition("Restarting")["message"]
    assert deletions(world.plan(at(160))) == {WORKER_0: True}
    world.settle(at(160))
    made = world.child("Pod", WORKER_0)
    assert made["metadata"]["annotations"]["edgeai.io/attempt"] == "1"
    assert "nodeName" not in made["spec"]
    assert "outOfContact" not in world.status
    assert world.status["restarts"] == {WORKER_0: 1}, "the loss counts once"


def test_a_lost_pod_that_kubernetes_evicts_is_removed_by_force() -> None:
    world = cut(edge_job(), since=at(100)).settle(at(120))
    delete(world, WORKER_0)
    world.apply(world.plan(at(160)))
    assert deletions(world.plan(at(160))) == {WORKER_0: True}


POLICIES = {"Always": True, "OnFailure": True, "ExitCode": True, "Never": False}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_replica_is_retryable_but_for_never(policy: str) -> None:
    world = cut(edge_job(policy), since=at(100)).settle(at(120))
    world.apply(world.plan(at(160)))
    assert (conditions(world)[-1] == "Restarting") is POLICIES[policy]
    assert (conditions(world)[-1] == "Failed") is not POLICIES[policy]


def test_tensorflow_jobs_wait_as_well() -> None:
    spec = tf_spec(policy="ExitCode", Chief=1, Worker=2)
    world = cut(edge_job(kind=tfjob.KIND, spec=spec), since=at(100)).settle(at(120))
    assert contact(world) == ("False", OUT)
    world.apply(world.plan(at(160)))
    assert world.status["restarts"] == {WORKER_0: 1}


def test_contact_again_within_the_grace_time_is_as_if_nothing_happened() -> None:
    world = cut(edge_job(), since=at(100)).settle(at(120))
    world.contact("edge0", since=at(130))
    world.pods_become("Running", WORKER_0, conditions=[ready("True", at(130))])
    world.settle(at(170))
    assert contact(world) == ("True", "Connected")
    assert "outOfContact" not in world.status
    assert "restarts" not in world.status
    assert conditions(world)[-1] == "Running"


GRACES: list[tuple[str | None, float]] = [(None, 300), ("0", 0), ("60", 60), ("soon", 300)]


@pytest.mark.parametrize(("text", "seconds"), GRACES)
def test_the_job_sets_the_grace_time(text: str | None, seconds: float) -> None:
    world = cut(edge_job(grace=text), since=at(100)).settle(at(100 + seconds - 1))
    assert "restarts" not in world.status
    world.apply(world.plan(at(100 + seconds)))
    assert world.status["restarts"] == {WORKER_0: 1}


def test_a_wrong_grace_time_is_told() -> None:
    world = edge_job(grace="-5")
    assert f"the annotation {GRACE} is '-5'" in world.condition("EdgeConnected")["message"]


def test_a_longer_grace_time_holds_at_once() -> None:
    world = cut(edge_job(), since=at(100)).settle(at(120))
    world.object["metadata"]["annotations"][GRACE] = "600"
    assert not world.settle(at(200)).plan(at(200)).actions
    assert "restarts" not in world.status


def test_a_live_localcontroller_keeps_the_replicas_of_its_node() -> None:
    world = silent(edge_job(), since=at(100))
    world.receive(told(world))
    assert not world.settle(at(9000)).plan(at(9000)).actions
    assert contact(world) == ("True", "Connected")


def test_a_live_kubelet_keeps_the_replicas_of_its_node() -> None:
    world = edge_job()
    world.receive(told(world))
    world.contact("edge0", connected=False, since=at(100))
    assert not world.settle(at(9000)).plan(at(9000)).actions
    assert contact(world) == ("False", "NoContact")
    assert conditions(world)[-1] == "Running"


@pytest.mark.parametrize("reason", ["ContainersNotReady", "ReadinessGatesNotReady"])
def test_a_replica_that_is_not_ready_is_in_contact(reason: str) -> None:
    world = edge_job().contact("edge0", connected=False, since=at(100))
    world.pods_become("Running", WORKER_0, conditions=[ready("False", at(100), reason)])
    assert not world.plan(at(9000)).actions


BOUND: dict[str, Any] = {"type": "PodScheduled", "status": "True"}


def test_a_pod_that_its_node_never_accepted_is_made_anew() -> None:
    """It tolerates the silence of its node, so Kubernetes would leave it there for ever."""
    world = edge_job().contact("edge0", connected=False, since=at(0))
    world.pods_become("Pending", WORKER_0, conditions=[BOUND])
    assert world.settle(at(30)).plan(at(30)).requeue_after_s == 10.0  # contact, then the pod
    assert world.settle(at(45)).plan(at(45)).requeue_after_s == 15.0
    assert "outOfContact" not in world.status
    assert world.settle(at(70)).status["outOfContact"] == {WORKER_0: rfc3339(at(60))}
    world.apply(world.plan(at(120)))
    assert world.status["restarts"] == {WORKER_0: 1}
    assert deletions(world.plan(at(130))) == {WORKER_0: True}


NOT_SILENT: dict[str, tuple[bool, dict[str, Any]]] = {
    # whether the LocalController has a session, the status of the pod
    "accepted": (False, {"startTime": rfc3339(at(1)), "conditions": [BOUND]}),
    "with a live LocalController": (True, {"conditions": [BOUND]}),
    "whose template names the node": (False, {"conditions": []}),
}


@pytest.mark.parametrize("case", NOT_SILENT)
def test_a_pod_that_starts_slowly_is_left_alone(case: str) -> None:
    is_connected, state = NOT_SILENT[case]
    world = edge_job().contact("edge0", connected=is_connected, since=at(0))
    world.pods_become("Pending", WORKER_0, **state).settle(at(9000))
    assert "restarts" not in world.status


def test_a_kubelet_that_gives_no_reason_for_containers_that_are_not_ready_is_heard() -> None:
    world = edge_job().contact("edge0", connected=False, since=at(100))
    waiting = {"type": "ContainersReady", "status": "False"}
    world.pods_become("Running", WORKER_0, conditions=[ready("False", at(100)), waiting])
    assert not world.plan(at(9000)).actions


def test_a_restarted_globalmanager_neither_shortens_nor_renews_the_grace_time() -> None:
    world = edge_job()
    world.receive(told(world))
    cut(world, since=at(100)).settle(at(120))
    world.contacts.clear()  # it has not heard of any node yet
    world.settle(at(150))
    assert "restarts" not in world.status
    world.apply(world.plan(at(160)))
    assert world.status["restarts"] == {WORKER_0: 1}


def test_a_restarted_globalmanager_waits_for_a_node_that_was_in_contact() -> None:
    world = silent(edge_job(), since=at(100))
    world.receive(told(world))
    world.settle(at(9000)).contacts.clear()
    assert not world.settle(at(9001)).plan(at(9001)).actions
    world.contact("edge0", since=at(9010))
    world.settle(at(9999))
    assert "restarts" not in world.status
    assert contact(world) == ("True", "Connected")


def test_a_lost_node_without_a_localcontroller_is_treated_alike() -> None:
    world = silent(edge_job(), MASTER, since=at(100)).settle(at(120))
    assert contact(world) == ("True", "Connected"), "cloud0 is no edge node"
    assert world.status["outOfContact"] == {MASTER: rfc3339(at(100))}
    world.apply(world.plan(at(160)))
    assert world.status["restarts"] == {MASTER: 1}


def test_a_lost_replica_restarts_the_whole_job_once() -> None:
    world = cut(edge_job(run={"restartScope": "Job"}), since=at(100)).settle(at(120))
    world.apply(world.plan(at(160)))
    assert world.status["jobRestarts"] == 1
    assert deletions(world.plan(at(160))) == {MASTER: False, WORKER_0: True, WORKER_1: False}
    assert world.settle(at(160)).status["jobRestarts"] == 1


def test_a_suspended_job_deletes_each_pod_once() -> None:
    world = cut(edge_job(), since=at(100)).settle(at(120))
    world.change(pytorch_spec(policy="ExitCode", run={"suspend": True}))
    assert deletions(world.plan(at(130)))[WORKER_0] is False
    delete(world, WORKER_0)
    assert WORKER_0 not in deletions(world.plan(at(130)))


# ---- the quota of a suspended job ----


def suspended(world: World, seconds: float = 130) -> World:
    """The job is suspended, and no node has confirmed the end of a pod."""
    world.terminates = True
    return world.change(pytorch_spec(policy="Never", run={"suspend": True})).settle(at(seconds))


def resumed(world: World, seconds: float) -> World:
    return world.change(pytorch_spec(policy="Never")).settle(at(seconds))


def test_a_replica_at_the_edge_is_active_until_its_node_confirms_its_end() -> None:
    """The line may be down although nobody has noticed yet. A node in the cloud is as upstream."""
    world = suspended(edge_job("Never"))
    assert numbers(world) == {"Master": {}, "Worker": {"active": 2}}
    world.gone("Pod", WORKER_0).settle(at(131))
    assert numbers(world)["Worker"] == {"active": 1}
    world.end_deleted().settle(at(132))
    assert numbers(world) == {"Master": {}, "Worker": {}}


def test_a_suspended_replica_out_of_contact_is_active_however_long_that_lasts() -> None:
    world = suspended(cut(edge_job("Never"), since=at(100)))
    world.end_deleted(WORKER_0).settle(at(9000))
    assert numbers(world)["Worker"] == {"active": 1}
    assert deletions(world.plan(at(9000))) == {}, "no force frees what a process uses"
    assert conditions(world)[-1] == "Suspended"
    assert contact(world) == ("False", OUT)
    message = world.condition("EdgeConnected")["message"]
    assert message == (
        f"out of contact, may still run and counts as active: {WORKER_0} since {rfc3339(at(100))}"
    )


def test_a_report_that_the_replica_has_ended_frees_a_suspended_job() -> None:
    world = suspended(cut(edge_job("Never"), since=at(100)))
    world.receive(told(world, "failed", codes="main=143"))
    assert deletions(world.plan(at(140))) == {WORKER_0: True}
    assert numbers(world.settle(at(140)))["Worker"] == {"active": 1}, "worker 1 ends"


def test_a_lost_node_without_a_localcontroller_keeps_its_part_of_the_quota() -> None:
    world = silent(edge_job("Never"), MASTER, since=at(100)).settle(at(120))
    assert numbers(suspended(world))["Master"] == {"active": 1}


def test_a_resumed_job_takes_a_replica_of_before_for_no_failure() -> None:
    world = suspended(cut(edge_job("Never"), since=at(100))).end_deleted(WORKER_0)
    resumed(world.settle(at(140)), 150)
    assert "deletionTimestamp" in world.child("Pod", WORKER_0)["metadata"], "its grace time"
    world.settle(at(160))
    assert "restarts" not in world.status
    assert conditions(world)[-1] != "Failed"
    assert "deletionTimestamp" not in world.child("Pod", WORKER_0)["metadata"], "a new pod"
    world.pods_become("Running", conditions=[ready("True", NOW)]).settle(at(170))
    assert conditions(world)[-1] == "Running"


def test_a_job_that_is_resumed_after_the_grace_time_waits_no_longer() -> None:
    world = suspended(cut(edge_job("Never"), since=at(100))).end_deleted(WORKER_0)
    resumed(world.settle(at(9000)), 9010)
    assert "restarts" not in world.status
    assert "deletionTimestamp" not in world.child("Pod", WORKER_0)["metadata"]


def test_the_end_of_the_job_removes_what_was_said_about_contact() -> None:
    world = cut(edge_job(), since=at(100)).settle(at(120))
    world.pods_become("Succeeded", MASTER).settle(at(130))
    assert conditions(world) == [
        "Created",
        "Running=False:PyTorchJobRunning",
        "Succeeded",
    ]
    assert "outOfContact" not in world.status
    assert not world.plan(at(9000)).actions, "an ended job makes nothing anew"


def test_a_job_in_the_cloud_has_no_condition_about_contact() -> None:
    world = World(KIND, job("mnist", pytorch_spec())).settle()
    world.pods_become("Running", conditions=[ready("True", NOW)]).settle()
    assert conditions(world) == ["Created", "Running"]


def test_many_replicas_out_of_contact_give_a_short_message() -> None:
    spec = pytorch_spec(200, policy="ExitCode")
    object_ = job("mnist", spec)
    world = World(KIND, object_).settle()
    for name in pods(world):
        bind(world, name, "edge0")
    world.contact("edge0", connected=False, since=at(100))
    world.pods_become("Running", conditions=[ready("False", at(100))]).settle(at(120))
    message = world.condition("EdgeConnected")["message"]
    assert "and 191 more" in message
    assert len(world.status["outOfContact"]) == 201
