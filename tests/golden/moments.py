"""The life of a job, moment by moment: what the world is like each time its plan is recorded.

`spec`: what is said of the spec alone. `short`: made, running, reporting, lost, edited, deleted.
`full`: all that can become of its pods, its edges, its children and what it refers to.
`elastic`: each plan of a TrainingJob that is scaled, loses a worker and its launcher, and ends.
"""

import copy
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from tests.golden import adapter
from tests.golden.cases import Case
from tests.golden.world import Json, Object, Snapshot, identity, in_api, patched, timestamp

Moment = tuple[str, Snapshot]
"""What is the case, and the world in which it is."""

_LONG: Final = 1000.0
"""Seconds, beyond every grace period and waiting time."""
_FIRST: Final[Callable[[int], bool]] = lambda number: number == 0  # noqa: E731
_OTHERS: Final[Callable[[int], bool]] = lambda number: number > 0  # noqa: E731


def worlds(case: Case) -> Iterator[Snapshot]:
    """One world for each job of the case, at its beginning: the job and all that is there."""
    there = [in_api(manifest) for manifest in case.manifests]
    jobs = [one for one in there if adapter.is_job(one)]
    for job in jobs:
        yield _complete(case, Snapshot(job=job, others=tuple(there)))


def _complete(case: Case, world: Snapshot) -> Snapshot:
    """All that the job refers to is there, but for what the case says is absent."""
    known = {identity(one) for one in world.others}
    wanted = (in_api(_filler(named)) for named in adapter.references(world.job))
    others = [*world.others, *(one for one in wanted if identity(one) not in known)]
    indirect = map(in_api, adapter.indirect_references(world.job, others))
    others += [one for one in indirect if identity(one) not in known]
    return replace(world, others=tuple(one for one in others if not _is_absent(one, case)))


def _is_absent(object_: Object, case: Case) -> bool:
    return f"{object_['kind']}/{object_['metadata']['name']}" in case.absent


def _filler(named: Object) -> Object:
    """What the manifests refer to and leave out."""
    name = named["metadata"]["name"]
    specs = {
        "Model": {"url": f"/models/{name}/model.onnx"},
        "Dataset": {"url": f"/data/{name}.csv", "nodeName": f"node-of-{name}"},
    }
    return {**named, "spec": specs.get(named["kind"], {})}


def life(case: Case, world: Snapshot) -> Iterator[Moment]:
    yield "nothing that it refers to exists", replace(world, others=())
    yield "all that it refers to exists", world
    if case.life == "spec":
        return
    plan = adapter.plan(world)
    if case.life == "elastic":
        yield from _elastic(world)
    elif plan["actions"]:
        yield from _of_workers(case, world)
    else:
        yield from _without_workers(case, world)


# ---- with workers -------------------------------------------------------------------------------


def _of_workers(case: Case, world: Snapshot) -> Iterator[Moment]:
    is_full = case.life == "full"
    made = settled(world).later(5)
    pods = made.deployed_pods().available(is_so=False)
    base = running(made)
    if is_full:
        yield "its children are made", made
        yield from _coming_up(pods)
    yield "its workers run, its edges are in contact", base
    base = settled(base)
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
    yield "it is being deleted", base.deleted()


def running(made: Snapshot) -> Snapshot:
    """All pods run, and all edges are in contact."""
    status = {
        "phase": "Running",
        "hostIP": "192.0.2.1",
        "podIP": "10.1.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "state": {"running": {}}, "ready": True}],
    }
    world = made.deployed_pods().pods_become(status).available(is_so=True)
    return world.contact(adapter.assignments(world), connected=True)


def settled(world: Snapshot) -> Snapshot:
    """Plans are carried out until one changes nothing."""
    for _ in range(6):
        plan = adapter.plan(world)
        if not plan["actions"] and plan["status"] is None:
            return world
        world = world.carried_out(plan)
    raise AssertionError(f"{identity(world.job)} does not settle")


def lost(world: Snapshot) -> Snapshot:
    return world.contact(adapter.assignments(world), connected=False)


def _coming_up(pods: Snapshot) -> Iterator[Moment]:
    no_room = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient memory.",
    }
    pending = {"phase": "Pending", "conditions": [no_room]}
    yield "its pods cannot be scheduled", pods.pods_become(pending, scheduled=False)
    pulling = _waiting("ContainerCreating", "")
    yield "its pods' images are pulled", pods.pods_become(pulling)
    absent = _waiting("ImagePullBackOff", 'Back-off pulling image "registry.test/absent:1"')
    yield "its pods' images cannot be pulled", pods.pods_become(absent)
    one = running(pods).pods_become(pulling, only=_OTHERS).available(is_so=False)
    yield "one of its pods runs, nothing was heard of its edges", replace(one, contacts={})


def _waiting(reason: str, message: str, **last: Json) -> dict[str, Json]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "main", "state": state, **last}],
    }


def _contacts(base: Snapshot) -> Iterator[Moment]:
    yield "its edges were lost 10 s ago", lost(base).later(10)
    nodes = sorted(adapter.assignments(base))
    yield "one of its edges was lost long ago", base.contact(nodes[:1], connected=False).later(60)
    unheard = replace(base, contacts={})
    yield "the manager has just started", unheard
    yield "the manager has started and no edge came", settled(unheard).later(_LONG)
    back = settled(lost(base).later(_LONG))
    yield "its edges are back", back.contact(nodes, connected=True)


def _faults(base: Snapshot) -> Iterator[Moment]:
    ended = {"exitCode": 1, "reason": "Error", "message": "no such file: model\n"}
    looping = _waiting(
        "CrashLoopBackOff",
        "back-off 5m0s restarting failed container=main pod=a",
        lastState={"terminated": ended},
    )
    one = base.pods_become({**looping, "phase": "Running"}, only=_FIRST)
    yield "one of its pods is in a crash loop", one.available(is_so=False)
    yield "one of its pods is in a crash loop, another is there", one
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "node was low on memory"}
    failed = base.pods_become(evicted).available(is_so=False)
    yield "its pods were evicted at once", failed
    yield "its pods were evicted long after they were made", failed.later(_LONG)
    initial = {"initContainerStatuses": [{"name": "storage-initializer", "state": {}}]}
    initial["initContainerStatuses"][0]["state"] = {"terminated": ended}
    init = base.pods_become({"phase": "Pending", **initial}).available(is_so=False)
    yield "what its pods need cannot be fetched", init
    late = {"phase": "Failed", "reason": "DeadlineExceeded", "message": "was active too long"}
    yield "one of its pods has exceeded its deadline", base.pods_become(late, only=_FIRST)
    ending = base.changed_children("Pod", _being_deleted)
    gone = replace(ending, deployed=tuple(_being_deleted(pod) for pod in base.deployed))
    yield "its pods are being deleted", gone


def _ends(case: Case, base: Snapshot) -> Iterator[Moment]:
    done = {"phase": "Succeeded"}
    first = base.pods_become(done, only=_FIRST)
    yield "one of its pods has succeeded", first
    yield "one of its pods has succeeded long ago", settled(first).later(_LONG)
    yield "all but one of its pods have succeeded", base.pods_become(done, only=_OTHERS)
    all_done = base.pods_become(done)
    yield "all of its pods have succeeded", all_done
    ended = settled(all_done)
    collected = replace(ended, deployed=())
    kept = tuple(one for one in collected.children if one["kind"] != "Pod")
    yield "all have succeeded, their pods are collected", replace(collected, children=kept)
    yield "all have succeeded, it is edited", _edited(case, ended)
    report = _default_reports(ended)[:1]
    yield "all have succeeded, a report comes late", _folded(ended, report)


def _refusals(world: Snapshot, base: Snapshot) -> Iterator[Moment]:
    taken = "Service digits is taken by somebody else's: delete it or rename the job"
    yield "the API refused the first plan", world.refused("NameConflict", taken)
    forbidden = "pods are forbidden: exceeded quota: free the quota or ask for more"
    yield "the API refused a plan while it ran", base.refused("Forbidden", forbidden)
    old = "Pod of an earlier job of this name is still ending: wait"
    yield "the API refused the first plan for now", world.refused("Waiting", old)


def _children(base: Snapshot) -> Iterator[Moment]:
    yield "a child was deleted", replace(base, children=base.children[1:])
    first = base.children[0]
    ending = (_being_deleted(first), *base.children[1:])
    yield "a child is being deleted", replace(base, children=ending)
    other = {**first, "metadata": {**first["metadata"], "name": "left-over", "uid": "left-over"}}
    yield "it has a child too many", replace(base, children=(*base.children, other))
    yield "its children were made by an older manager", _each_child(base, _older)
    yield "somebody has changed its children", _each_child(base, _tampered)
    for replicas in (0, 3):
        scaled = base.changed_children("Deployment", _scaled(replicas))
        if scaled.children != base.children:
            yield f"its Deployments are scaled to {replicas}", scaled.deployed_pods()


def _each_child(base: Snapshot, change: Callable[[Object], Object]) -> Snapshot:
    return replace(base, children=tuple(change(child) for child in base.children))


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
    spec = copy.deepcopy(child["spec"])
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


def _references(base: Snapshot) -> Iterator[Moment]:
    yield "what it refers to is gone while it runs", replace(base, others=())

    def moved(other: Object) -> Object:
        return patched(other, {"spec": {"url": "https://store.test/new/file.bin"}})

    yield (
        "its data has moved",
        base.changed_others(
            lambda other: moved(other) if other["kind"] in ("Model", "Dataset") else other
        ),
    )


# ---- a job that is scaled -----------------------------------------------------------------------


def _elastic(world: Snapshot) -> Iterator[Moment]:
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
        chosen = [pod["metadata"]["name"].endswith(suffixes) for pod in world.pods]
        changed = world.pods_become(status, only=chosen.__getitem__)
        world = yield from _until_rest(about, changed.later(20))


def _ended(code: int) -> dict[str, Json]:
    return {"name": "main", "state": {"terminated": {"exitCode": code, "reason": "Error"}}}


def _until_rest(about: str, world: Snapshot) -> Generator[Moment, None, Snapshot]:
    """Each plan until one changes nothing. The time passes that the plans wait for."""
    for number in range(1, 30):
        yield f"{about}, plan {number}", world
        plan = adapter.plan(world)
        if plan["actions"] or plan["status"] is not None:
            world = world.carried_out(plan)
        elif (wait_s := plan["requeueAfterSeconds"]) is not None and wait_s <= 30:
            world = world.later(wait_s)
        else:
            return world
    raise AssertionError(f"{identity(world.job)} does not come to rest")


# ---- without workers ----------------------------------------------------------------------------


def _without_workers(case: Case, world: Snapshot) -> Iterator[Moment]:
    """A Model or a Dataset; or a job that waits for what is not there."""
    base = settled(world).later(5)
    nodes = sorted(adapter.assignments(base))
    if nodes:
        base = base.contact(nodes, connected=True)
        yield "its edges are in contact", base
        base = settled(base)
        yield from _reports(case, base)
        yield "its edges were lost long ago", lost(base).later(_LONG)
    yield from _edits(case, base, is_full=False)
    yield "it is being deleted", base.deleted()


# ---- edits --------------------------------------------------------------------------------------


def _edits(case: Case, base: Snapshot, *, is_full: bool) -> Iterator[Moment]:
    edited = _edited(case, base)
    yield "it is edited", edited
    if not is_full:
        return
    yield "it is edited, one plan was carried out", edited.carried_out(adapter.plan(edited))
    for field in sorted(base.job["spec"]):
        yield f"{field} is edited away", base.edited({field: None})


def _edited(case: Case, base: Snapshot) -> Snapshot:
    edit = _DEFAULT_EDITS[base.job["kind"]] if case.edit is None else case.edit
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
    "Dataset": {"url": "/data/changed.csv", "nodeName": "edge9"},
    "Model": {"url": "ftp://store.test/model"},
}


# ---- reports ------------------------------------------------------------------------------------


def _reports(case: Case, base: Snapshot) -> Iterator[Moment]:
    reports = _default_reports(base) if case.reports is None else case.reports
    if reports:
        told = _folded(base, reports)
        yield "its edges have reported", told
        yield "after its reports it rests", settled(told)


def _folded(base: Snapshot, reports: Sequence[Mapping[str, Any]]) -> Snapshot:
    """After all reports; what each one changed is recorded by `folds`."""
    for report in reports:
        base = base.with_status(adapter.fold(base, report))
    return base


def folds(case: Case, world: Snapshot) -> list[dict[str, Json]]:
    """Each report of the case, and what it changes."""
    if case.life in ("spec", "elastic"):
        return []
    base = settled(world).later(5)
    base = settled(running(base))
    done = []
    for report in _default_reports(base) if case.reports is None else case.reports:
        patch = adapter.fold(base, report)
        base = base.with_status(patch)
        done.append({"report": report, "patch": patch})
    return done


_COUNTS: Final[Mapping[str, dict[str, float]]] = {
    "JointInferenceService": {
        "seen": 100, "hard": 40, "uploaded": 30, "answeredByCloud": 25, "fallbacks": 5,
    },
    "FederatedLearningJob": {
        "currentRound": 2, "rounds": 5, "sampleCount": 300, "metrics.accuracy": 0.875,
    },
    "Dataset": {"numberOfSamples": 1234},
}  # fmt: skip


def _default_reports(base: Snapshot) -> list[dict[str, Any]]:
    """Of the first workers that nodes are granted: counts, again, from a new ledger, the end."""
    counts = _COUNTS.get(base.job["kind"], {})
    fewer = {name: value // 2 for name, value in counts.items()}
    told: list[dict[str, Any]] = []
    at = timestamp(base.now + timedelta(seconds=1))
    for node, assignment in adapter.assignments(base).items():
        for worker in assignment["body"]["workers"]:
            generation = str(base.job["metadata"]["generation"])
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
