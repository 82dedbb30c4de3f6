"""The life of a job, moment by moment: what the world is like each time its plan is recorded.

`spec`: what is said of the spec alone. `short`: made, running, reporting, lost, edited, deleted.
`full`: all that can become of its pods, its edges, its children and what it refers to.
`elastic`: each plan of a TrainingJob that is scaled, loses a worker and its launcher, and ends.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from common.wire import ReportBody
from edgeai.api.resources import DEPLOYMENTS, PODS, ObjectRef
from edgeai.ids import NodeName, WorkerName
from edgeai.times import rfc3339
from globalmanager.contract import WorkerReport
from tests.golden.cases import Case
from tests.golden.world import (
    CaseWorld,
    Json,
    Object,
    by_ref,
    in_api,
    kind_of,
    named,
    patched,
)
from tests.support.world import copied

Moment = tuple[str, CaseWorld]
"""What is the case, and the world in which it is."""

_LONG: Final = 1000.0
"""Seconds, beyond every grace period and waiting time."""
_FIRST: Final[Callable[[int], bool]] = lambda number: number == 0  # noqa: E731
_OTHERS: Final[Callable[[int], bool]] = lambda number: number > 0  # noqa: E731


def worlds(case: Case) -> Iterator[CaseWorld]:
    """One world for each job of the case, at its beginning: the job and all that is there."""
    there = by_ref(map(in_api, case.manifests))
    for ref in there:
        kind = kind_of(ref.type)
        if kind is not None:
            yield _complete(case, CaseWorld(kind, ref, there))


def _complete(case: Case, world: CaseWorld) -> CaseWorld:
    """All that the job refers to is there, but for what the case says is absent."""
    others = dict(world.others)
    for ref in sorted(world.references(), key=_order):
        others.setdefault(ref, in_api(_filler(ref)))
    for ref in sorted(world.kind.indirect_references(others), key=_order):
        others.setdefault(ref, in_api(named(ref)))
    absent = [ref for ref in others if f"{ref.type.kind}/{ref.name}" in case.absent]
    return world.but(others={ref: other for ref, other in others.items() if ref not in absent})


def _order(ref: ObjectRef) -> tuple[str, ...]:
    return ref.type.api_version, ref.type.kind, ref.namespace, ref.name


def _filler(ref: ObjectRef) -> Object:
    """What the manifests refer to and leave out."""
    specs = {
        "Model": {"url": f"/models/{ref.name}/model.onnx"},
        "Dataset": {"url": f"/data/{ref.name}.csv", "nodeName": f"node-of-{ref.name}"},
    }
    return {**named(ref), "spec": specs.get(ref.type.kind, {})}


def life(case: Case, world: CaseWorld) -> Iterator[Moment]:
    yield "nothing that it refers to exists", world.but(others={})
    yield "all that it refers to exists", world
    if case.life == "spec":
        return
    if case.life == "elastic":
        yield from _elastic(world)
    elif world.planned().actions:
        yield from _of_workers(case, world)
    else:
        yield from _without_workers(case, world)


# ---- with workers -------------------------------------------------------------------------------


def _of_workers(case: Case, world: CaseWorld) -> Iterator[Moment]:
    is_full = case.life == "full"
    made = world.settled().later(5)
    pods = made.deployed_pods().available()
    base = running(made)
    if is_full:
        yield "its children are made", made
        yield from _coming_up(pods)
    yield "its workers run, its edges are in contact", base
    base = base.settled()
    yield from _reports(case, base)
    if is_full:
        yield from _contacts(base)
    yield "its edges were lost long ago", lost(base).later(_LONG)
    if is_full:
        yield from _faults(base)
        yield from _ends(case, base)
        yield from _refusals(world, base)
        yield from _children(base)
        yield from _references(base)
    yield from _edits(case, base, is_full=is_full)
    yield "it is being deleted", base.but().delete()


def running(made: CaseWorld) -> CaseWorld:
    """All pods run, and all edges are in contact."""
    status = {
        "phase": "Running",
        "hostIP": "192.0.2.1",
        "podIP": "10.1.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "state": {"running": {}}, "ready": True}],
    }
    world = made.deployed_pods().with_pods(status).available("edge", "cloud")
    return world.in_contact(world.nodes_assigned())


def lost(world: CaseWorld) -> CaseWorld:
    return world.in_contact(world.nodes_assigned(), connected=False)


def _coming_up(pods: CaseWorld) -> Iterator[Moment]:
    no_room = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient memory.",
    }
    pending = {"phase": "Pending", "conditions": [no_room]}
    yield "its pods cannot be scheduled", pods.with_pods(pending, scheduled=False)
    pulling = _waiting("ContainerCreating", "")
    yield "its pods' images are pulled", pods.with_pods(pulling)
    absent = _waiting("ImagePullBackOff", 'Back-off pulling image "registry.test/absent:1"')
    yield "its pods' images cannot be pulled", pods.with_pods(absent)
    one = running(pods).with_pods(pulling, only=_OTHERS).available()
    yield "one of its pods runs, nothing was heard of its edges", one.but(contacts={})


def _waiting(reason: str, message: str, **last: Json) -> dict[str, Json]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "main", "state": state, **last}],
    }


def _contacts(base: CaseWorld) -> Iterator[Moment]:
    yield "its edges were lost 10 s ago", lost(base).later(10)
    nodes = sorted(base.nodes_assigned())
    yield (
        "one of its edges was lost long ago",
        base.in_contact(nodes[:1], connected=False).later(60),
    )
    unheard = base.but(contacts={})
    yield "the manager has just started", unheard
    yield "the manager has started and no edge came", unheard.settled().later(_LONG)
    yield "its edges are back", lost(base).later(_LONG).settled().in_contact(nodes)


def _faults(base: CaseWorld) -> Iterator[Moment]:
    ended = {"exitCode": 1, "reason": "Error", "message": "no such file: model\n"}
    looping = _waiting(
        "CrashLoopBackOff",
        "back-off 5m0s restarting failed container=main pod=a",
        lastState={"terminated": ended},
    )
    one = base.with_pods({**looping, "phase": "Running"}, only=_FIRST)
    yield "one of its pods is in a crash loop", one.but().available()
    yield "one of its pods is in a crash loop, another is there", one
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "node was low on memory"}
    failed = base.with_pods(evicted).available()
    yield "its pods were evicted at once", failed
    yield "its pods were evicted long after they were made", failed.later(_LONG)
    initial = {"initContainerStatuses": [{"name": "storage-initializer", "state": {}}]}
    initial["initContainerStatuses"][0]["state"] = {"terminated": ended}
    init = base.with_pods({"phase": "Pending", **initial}).available()
    yield "what its pods need cannot be fetched", init
    late = {"phase": "Failed", "reason": "DeadlineExceeded", "message": "was active too long"}
    yield "one of its pods has exceeded its deadline", base.with_pods(late, only=_FIRST)
    ending = base.changed_children(_being_deleted, PODS)
    gone = ending.but(deployed=tuple(map(_being_deleted, base.deployed)))
    yield "its pods are being deleted", gone


def _ends(case: Case, base: CaseWorld) -> Iterator[Moment]:
    done = {"phase": "Succeeded"}
    first = base.with_pods(done, only=_FIRST)
    yield "one of its pods has succeeded", first
    yield "one of its pods has succeeded long ago", first.settled().later(_LONG)
    yield "all but one of its pods have succeeded", base.with_pods(done, only=_OTHERS)
    all_done = base.with_pods(done)
    yield "all of its pods have succeeded", all_done
    ended = all_done.settled()
    kept = {ref: child for ref, child in ended.children.items() if ref.type != PODS}
    collected = ended.but(deployed=(), children=kept)
    yield "all have succeeded, their pods are collected", collected
    yield "all have succeeded, it is edited", _edited(case, ended)
    report = _default_reports(ended)[:1]
    yield "all have succeeded, a report comes late", _folded(ended, report)


def _refusals(world: CaseWorld, base: CaseWorld) -> Iterator[Moment]:
    taken = "Service digits is taken by somebody else's: delete it or rename the job"
    yield "the API refused the first plan", world.refused("NameConflict", taken)
    forbidden = "pods are forbidden: exceeded quota: free the quota or ask for more"
    yield "the API refused a plan while it ran", base.refused("Forbidden", forbidden)
    old = "Pod of an earlier job of this name is still ending: wait"
    yield "the API refused the first plan for now", world.refused("Waiting", old)


def _children(base: CaseWorld) -> Iterator[Moment]:
    (ref, first), *rest = base.children.items()
    yield "a child was deleted", base.but(children=dict(rest))
    ending = {ref: _being_deleted(first), **dict(rest)}
    yield "a child is being deleted", base.but(children=ending)
    other = {**first, "metadata": {**first["metadata"], "name": "left-over", "uid": "left-over"}}
    more = {**base.children, msgspec.structs.replace(ref, name="left-over"): other}
    yield "it has a child too many", base.but(children=more)
    yield "its children were made by an older manager", base.changed_children(_older)
    yield "somebody has changed its children", base.changed_children(_tampered)
    for replicas in (0, 3):
        scaled = base.changed_children(_scaled(replicas), DEPLOYMENTS)
        if scaled.children != base.children:
            yield f"its Deployments are scaled to {replicas}", scaled.deployed_pods()


def _older(child: Object) -> Object:
    """Another hash and another label of ours, and what others have added."""
    known = child["metadata"]["annotations"]
    annotations = {**dict.fromkeys(known, "older"), "deployment.kubernetes.io/revision": "3"}
    metadata = {"annotations": annotations, "labels": {"added": "by-others", "edgeai.io/name": "x"}}
    return patched(child, {"metadata": metadata})


def _tampered(child: Object) -> Object:
    """Fields of ours have other values, but the hash of the desired object is still there."""
    relabelled = {"metadata": {"labels": {"edgeai.io/role": "other"}}}
    if child["kind"] == "Secret":
        return patched(child, {"data": dict.fromkeys(child["data"], "dGFtcGVyZWQ="), **relabelled})
    spec = copied(child["spec"])
    if child["kind"] == "Service":
        spec["ports"][0]["port"] = 1
    if child["kind"] in ("Deployment", "Pod"):
        pod = spec["template"]["spec"] if child["kind"] == "Deployment" else spec
        pod["containers"][0]["image"] = "registry.test/tampered:1"
    return patched(child, {"spec": spec, **relabelled})


def _scaled(replicas: int) -> Callable[[Object], Object]:
    return lambda deployment: patched(deployment, {"spec": {"replicas": replicas}})


def _being_deleted(object_: Object) -> Object:
    return patched(object_, {"metadata": {"deletionTimestamp": "2026-01-02T03:04:06Z"}})


def _references(base: CaseWorld) -> Iterator[Moment]:
    yield "what it refers to is gone while it runs", base.but(others={})
    data = {"spec": {"url": "https://store.test/new/file.bin"}}
    moved = {
        ref: patched(other, data) if ref.type.kind in ("Model", "Dataset") else other
        for ref, other in base.others.items()
    }
    yield "its data has moved", base.but(others=moved)


# ---- a job that is scaled -----------------------------------------------------------------------


def _elastic(world: CaseWorld) -> Iterator[Moment]:
    """Each plan after each change, until the plans rest."""
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "node was low on memory"}
    failed = {"phase": "Failed", "containerStatuses": [_ended(1)]}
    up = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    done = {"phase": "Succeeded"}
    every = ("",)
    events: tuple[tuple[str, dict[str, Json], tuple[str, ...]], ...] = (
        ("its workers run", up, every),
        ("its launcher runs", up, every),
        ("the new workers run", up, every),
        ("worker 0 is evicted", evicted, ("-worker-0",)),
        ("all workers run", up, every),
        ("its launcher fails", failed, ("-launcher",)),
        ("its launcher runs again", up, every),
        ("its launcher succeeds", done, ("-launcher",)),
    )
    world = yield from _until_rest("it is new", world)
    for about, status, suffixes in events:  # the ends of the names of the pods
        chosen = [pod["metadata"]["name"].endswith(suffixes) for pod in world.all_pods]
        changed = world.with_pods(status, only=chosen.__getitem__)
        world = yield from _until_rest(about, changed.later(20))


def _ended(code: int) -> dict[str, Json]:
    return {"name": "main", "state": {"terminated": {"exitCode": code, "reason": "Error"}}}


def _until_rest(about: str, world: CaseWorld) -> Generator[Moment, None, CaseWorld]:
    """Each plan until one changes nothing. The time passes that the plans wait for."""
    for number in range(1, 30):
        yield f"{about}, plan {number}", world
        plan = world.planned()
        if plan.actions or plan.status is not None:
            world = world.but().apply(plan)
        elif (wait_s := plan.requeue_after_s) is not None and wait_s <= 30:
            world = world.later(wait_s)
        else:
            return world
    raise AssertionError(f"{world.object['metadata']['name']} does not come to rest")


# ---- without workers ----------------------------------------------------------------------------


def _without_workers(case: Case, world: CaseWorld) -> Iterator[Moment]:
    """A Model or a Dataset; or a job that waits for what is not there."""
    base = world.settled().later(5)
    nodes = base.nodes_assigned()
    if nodes:
        base = base.in_contact(nodes)
        yield "its edges are in contact", base
        base = base.settled()
        yield from _reports(case, base)
        yield "its edges were lost long ago", lost(base).later(_LONG)
    yield from _edits(case, base, is_full=False)
    yield "it is being deleted", base.but().delete()


# ---- edits --------------------------------------------------------------------------------------


def _edits(case: Case, base: CaseWorld, *, is_full: bool) -> Iterator[Moment]:
    edited = _edited(case, base)
    yield "it is edited", edited
    if not is_full:
        return
    yield "it is edited, one plan was carried out", edited.but().apply(edited.planned())
    for field in sorted(base.object["spec"]):
        yield f"{field} is edited away", base.edited({field: None})


def _edited(case: Case, base: CaseWorld) -> CaseWorld:
    edit = _DEFAULT_EDITS[base.object["kind"]] if case.edit is None else case.edit
    return _complete(case, base.edited(edit))


_CHANGED: Final = {
    "spec": {
        "nodeName": "edge9",
        "containers": [{"name": "changed", "image": "registry.test/changed:2"}],
    }
}
_DEFAULT_EDITS: Final[Mapping[str, dict[str, Any]]] = {
    "JointInferenceService": {
        "edgeWorker": {"nodeName": None, "workerSpec": None, "template": _CHANGED}
    },
    "FederatedLearningJob": {
        "aggregationWorker": {"nodeName": None, "workerSpec": None, "template": _CHANGED}
    },
    "IncrementalLearningJob": {"evalSpec": {"template": _CHANGED}},
    "Dataset": {"url": "/data/changed.csv", "nodeName": "edge9"},
    "Model": {"url": "ftp://store.test/model"},
}


# ---- reports ------------------------------------------------------------------------------------


def _reports(case: Case, base: CaseWorld) -> Iterator[Moment]:
    reports = _default_reports(base) if case.reports is None else case.reports
    if reports:
        told = _folded(base, reports)
        yield "its edges have reported", told
        yield "after its reports it rests", told.settled()


def _folded(base: CaseWorld, reports: Sequence[Mapping[str, Any]]) -> CaseWorld:
    """After all reports; what each one changed is recorded by `folds`."""
    base = base.but()
    for report in reports:
        base.receive(_report_of(report))
    return base


def _report_of(told: Mapping[str, Any]) -> WorkerReport:
    return WorkerReport(
        node=NodeName(told["node"]),
        ledger_id=told["instance"],
        worker=WorkerName(told["worker"]),
        attempt=told["attempt"],
        body=msgspec.convert(told["body"], ReportBody),
    )


def folds(case: Case, world: CaseWorld) -> list[dict[str, Json]]:
    """Each report of the case, and what it changes."""
    if case.life in ("spec", "elastic"):
        return []
    base = running(world.settled().later(5)).settled()
    reports = _default_reports(base) if case.reports is None else case.reports
    return [{"report": each, "patch": base.receive(_report_of(each))} for each in reports]


_COUNTS: Final[Mapping[str, dict[str, float]]] = {
    "JointInferenceService": {
        "seen": 100, "hard": 40, "uploaded": 30, "answeredByCloud": 25, "fallbacks": 5,
    },
    "FederatedLearningJob": {
        "currentRound": 2, "rounds": 5, "sampleCount": 300, "metrics.accuracy": 0.875,
    },
    "Dataset": {"numberOfSamples": 1234},
}  # fmt: skip


def _default_reports(base: CaseWorld) -> list[dict[str, Any]]:
    """Of the first workers that nodes are granted: counts, again, from a new ledger, the end."""
    counts = _COUNTS.get(base.object["kind"], {})
    fewer = {name: value // 2 for name, value in counts.items()}
    told: list[dict[str, Any]] = []
    at = rfc3339(base.now + timedelta(seconds=1))
    for node, assignment in base.kind.assignments(base.observed()).items():
        for worker in assignment.body.workers:
            generation = str(base.object["metadata"]["generation"])
            first = {
                "phase": "inference",
                "status": "running",
                "taskInfo": counts,
                "details": {"generation": generation, "updateTime": at},
                "observedAt": at,
            }
            lost_ = {**first, "status": "lost", "reason": "no word for 90 s", "taskInfo": fewer}
            end = {**first, "status": "completed", "phase": "done"}
            told += [
                {"node": node, "worker": worker, "instance": ledger, "attempt": n, "body": body}
                for ledger, n, body in (
                    *(("ledger-1", 1, first), ("ledger-1", 1, first), ("ledger-2", 1, lost_)),
                    *(("ledger-2", 2, end), ("ledger-2", 2, first)),
                )
            ]
    return told[:10]
