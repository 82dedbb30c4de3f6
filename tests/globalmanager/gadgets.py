"""A job kind just for tests: a Gadget owns one ConfigMap and is assigned to spec.node.

It waits for the Part that spec.part names, and what it is told to do wrong, it does wrong.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from common.wire import AssignmentBody, WorkerGrant
from edgeai.api.definitions import Definition
from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.api.schemas import Column
from edgeai.api.specs import parse
from edgeai.ids import NodeName, Uid, WorkerName
from globalmanager.contract import (
    Action,
    Assignment,
    Create,
    Event,
    Job,
    Kind,
    Observed,
    Plan,
    Replace,
    Severity,
    UpdateRule,
    WorkerReport,
    task_key,
)
from globalmanager.kinds.shared.objects import owner_reference
from tests.globalmanager.objects import GADGETS

PARTS = ResourceType("test.edgeai.io", "v1", "parts", "Part")
CONFIGMAPS = ResourceType("", "v1", "configmaps", "ConfigMap")


class GadgetSpec(msgspec.Struct, frozen=True):
    node: str = ""
    data: str = ""
    part: str = ""
    bug: str = ""


class NoStatus(msgspec.Struct, frozen=True):
    pass


def read(object_: Object) -> GadgetSpec:
    return parse(object_.get("spec") or {}, GadgetSpec)


def references(job: Job) -> frozenset[ObjectRef]:
    part = job.spec.part if job.spec else ""
    return frozenset({ObjectRef(PARTS, job.ref.namespace, part)} if part else ())


def config_ref(observed: Observed) -> ObjectRef:
    return ObjectRef(CONFIGMAPS, observed.ref.namespace, f"{observed.ref.name}-config")


def wanted_config(observed: Observed) -> Object:
    ref = config_ref(observed)
    return {
        "metadata": {
            "name": ref.name,
            "namespace": ref.namespace,
            "labels": {
                "app.kubernetes.io/managed-by": "edgeai",
                "edgeai.io/uid": observed.uid,
                "edgeai.io/kind": str(observed.type),
                "edgeai.io/name": observed.ref.name,
            },
            "ownerReferences": [owner_reference(observed)],
        },
        "data": {"data": observed.spec.data},
    }


def actions(observed: Observed) -> tuple[Action, ...]:
    wanted = wanted_config(observed)
    existing = observed.children.get(config_ref(observed))
    if existing is None:
        return (Create(CONFIGMAPS, wanted),)
    if existing["data"] != wanted["data"]:
        return (Replace(CONFIGMAPS, {**existing, "data": wanted["data"]}),)
    return ()


def plan(observed: Observed, _now: datetime) -> Plan:
    spec: GadgetSpec = observed.spec
    if spec.bug == "plan":
        raise RuntimeError("a bug in plan")
    status: dict[str, Any] = {"observedGeneration": observed.generation, "pods": len(observed.pods)}
    if spec.part and not observed.references:
        return Plan(status={**status, "phase": "Waiting"})
    phase = (observed.object.get("status") or {}).get("phase")
    if observed.refusal is not None:
        refusal = observed.refusal
        told = Event(Severity.WARNING, refusal.reason, refusal.message)
        events = (told,) if phase != refusal.reason else ()
        return Plan(status={**status, "phase": refusal.reason}, events=events)
    contact = observed.contacts.get(NodeName(spec.node))
    status["connected"] = contact.connected if contact else None
    ready = Event(Severity.NORMAL, "Ready", "the gadget is ready")
    requeue_after_s = 0.05 if spec.bug == "restless" else None
    return Plan(
        stages=(actions(observed),),
        status={**status, "phase": "Ready"},
        events=(ready,) if phase != "Ready" else (),
        requeue_after_s=requeue_after_s,
    )


def assignments(observed: Observed) -> Mapping[NodeName, Assignment]:
    spec: GadgetSpec = observed.spec
    if spec.bug == "assignments":
        raise RuntimeError("a bug in assignments")
    if not spec.node:
        return {}
    body = AssignmentBody(
        namespace=observed.ref.namespace,
        name=observed.ref.name,
        workers={WorkerName("w"): WorkerGrant("0" * 64)},
    )
    key, uid = task_key(observed.ref), Uid(observed.uid)
    return {NodeName(spec.node): Assignment(key, uid, observed.generation, body)}


class GadgetFold:
    def __init__(self, _status: Mapping[str, Any]) -> None:
        self._workers: dict[str, Any] = {}

    def add(self, report: WorkerReport) -> None:
        self._workers[report.worker] = {"status": report.body.status}

    def patch(self) -> Mapping[str, Any]:
        return {"workers": self._workers}


GADGET = Kind(
    definition=Definition(types=(GADGETS,), spec=GadgetSpec, status=NoStatus),
    columns=(Column("Phase", "string", ".status.phase"),),
    read=read,
    owns={CONFIGMAPS: UpdateRule.REPLACE},
    references=references,
    plan=plan,
    assignments=assignments,
    fold=GadgetFold,
)


def with_types(kind: Kind, *types: ResourceType) -> Kind:
    """The kind, under these types instead of its own."""
    definition = msgspec.structs.replace(kind.definition, types=types)
    return msgspec.structs.replace(kind, definition=definition)


def counting(kind: Kind) -> tuple[Kind, Counter[str]]:
    """The kind, and how often it was asked for a plan, by the job's name.

    One job is never reconciled twice at a time: when its plan is asked for again, all that the plan
    before asked for has been done.
    """
    plans: Counter[str] = Counter()

    def counted(observed: Observed, now: datetime) -> Plan:
        plans[observed.ref.name] += 1
        return kind.plan(observed, now)

    return msgspec.structs.replace(kind, plan=counted), plans


def crd_of(type_: ResourceType) -> Object:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": free, "status": free}}
    version = {
        "name": type_.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "metadata": {"name": str(type_)},
        "spec": {
            "group": type_.group,
            "scope": "Namespaced",
            "names": {
                "plural": type_.plural,
                "singular": type_.kind.lower(),
                "kind": type_.kind,
                "listKind": f"{type_.kind}List",
            },
            "versions": [version],
        },
    }


def gadget(name: str, *, namespace: str = "default", **spec: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
