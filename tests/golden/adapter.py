"""The only part of the golden files that knows the GlobalManager: plain JSON in, plain JSON out.

When modules are renamed or `Observed` gets other fields this is what follows; the recorded files
stay as they are.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from common.wire import ReportBody
from edgeai.api.resources import NODES, ObjectRef, ResourceType, ref_of
from edgeai.ids import NodeName, WorkerName
from globalmanager.contract import (
    Action,
    Adopt,
    Annotate,
    Contact,
    Create,
    Delete,
    Event,
    Job,
    Kind,
    Observed,
    PatchStatus,
    Refusal,
    Replace,
    WorkerReport,
    WorkerSettings,
)
from globalmanager.kinds import KINDS
from tests.golden.world import Json, Object, Snapshot, identity

SETTINGS: Final = WorkerSettings(
    root_key=b"the golden files' fixed root key",
    framework_images={
        "tensorflow:1.18": "registry.test/tensorflow:1.18",
        "pytorch:2.4": "registry.test/pytorch:2.4",
    },
)

_TYPES: Final = {
    (type_.api_version, type_.kind): type_
    for kind in KINDS
    for type_ in (*kind.definition.types, *kind.owns, NODES)
}


def is_job(object_: Object) -> bool:
    """Whether one of the kinds plans for it."""
    return any(_type_of(object_) in kind.definition.types for kind in KINDS)


def references(job: Object) -> list[Object]:
    """What the job refers to, as objects that have a name only, in order."""
    return sorted(map(_named, _kind_of(job).references(_decoded(job))), key=identity)


def indirect_references(job: Object, others: Iterable[Object]) -> list[Object]:
    """What the job refers to through `others`, as `references` gives it."""
    found = _kind_of(job).indirect_references(_by_ref(others))
    return sorted(map(_named, found), key=identity)


def plan(world: Snapshot) -> dict[str, Json]:
    made = _kind_of(world.job).plan(_observed(world), world.now)
    return {
        "actions": [_action(action) for action in made.actions],
        "status": made.status,
        "events": [_event(event) for event in made.events],
        "requeueAfterSeconds": made.requeue_after_s,
    }


def assignments(world: Snapshot) -> dict[str, Json]:
    """By node."""
    made = _kind_of(world.job).assignments(_observed(world))
    return {
        node: {
            "key": one.key,
            "uid": one.uid,
            "version": one.version,
            "body": msgspec.to_builtins(one.body),
        }
        for node, one in made.items()
    }


def fold(world: Snapshot, report: Mapping[str, Any]) -> Json:
    """Args: report: node, instance, worker, attempt, body"""
    taken = WorkerReport(
        node=NodeName(report["node"]),
        ledger_id=report["instance"],
        worker=WorkerName(report["worker"]),
        attempt=report["attempt"],
        body=msgspec.convert(report["body"], ReportBody),
        group=world.job["apiVersion"].partition("/")[0],
    )
    fold = _kind_of(world.job).fold(world.status)
    fold.add(taken)
    return fold.patch() or None


def _type_of(object_: Object) -> ResourceType | None:
    return _TYPES.get((object_["apiVersion"], object_["kind"]))


def _kind_of(job: Object) -> Kind:
    return next(kind for kind in KINDS if _type_of(job) in kind.definition.types)


def _decoded(job: Object) -> Job:
    type_ = _type_of(job)
    assert type_ is not None
    return _kind_of(job).decode(type_, job)


def _by_ref(objects: Iterable[Object]) -> dict[ObjectRef, Object]:
    """Those of known types."""
    return {ref_of(type_, one): one for one in objects if (type_ := _type_of(one))}


def _observed(world: Snapshot) -> Observed:
    """In the order in which the engine lists: children by type and name, pods by name."""
    kind, job = _kind_of(world.job), _decoded(world.job)
    children, others = _by_ref(world.children), _by_ref(world.others)
    assert len(children) == len(world.children)
    order = sorted(children, key=lambda ref: (list(kind.owns).index(ref.type), ref.name))
    wanted = kind.references(job)
    named = {ref: other for ref, other in others.items() if ref in wanted}
    wanted |= kind.indirect_references(named)
    contacts = {NodeName(node): Contact(**entry) for node, entry in world.contacts.items()}
    return Observed(
        type=job.type,
        object=job.object,
        spec=job.spec,
        invalid=job.invalid,
        children={ref: children[ref] for ref in order},
        pods=world.pods,
        references={ref: other for ref, other in others.items() if ref in wanted},
        contacts=contacts,
        settings=SETTINGS,
        refusal=Refusal(**world.refusal) if world.refusal else None,
        scalers={
            ref: other
            for ref, other in others.items()
            if ref.type in kind.scalers and kind.scalers[ref.type](other) == job.ref.name
        },
    )


def _named(ref: ObjectRef) -> Object:
    namespace = {"namespace": ref.namespace} if ref.namespace else {}
    return {
        "apiVersion": ref.type.api_version,
        "kind": ref.type.kind,
        "metadata": {**namespace, "name": ref.name},
    }


def _action(action: Action) -> dict[str, Json]:
    match action:
        case Create(object=object_):
            return {"create": object_}
        case Replace(object=object_):
            return {"replace": object_}
        case Delete(ref=ref, uid=uid):
            return {"delete": {**_named(ref), "uid": uid}}
        case Adopt(ref=ref, uid=uid):
            return {"adopt": {**_named(ref), "uid": uid}}
        case Annotate(ref=ref, uid=uid, annotations=annotations):
            return {"annotate": {**_named(ref), "uid": uid, "annotations": dict(annotations)}}
        case PatchStatus(ref=ref, uid=uid, status=status):
            return {"patchStatus": {**_named(ref), "uid": uid, "status": status}}


def _event(event: Event) -> dict[str, str]:
    return {
        "type": event.severity.value,
        "reason": event.reason,
        "message": event.message,
    }
