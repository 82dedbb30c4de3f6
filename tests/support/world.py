"""Builders for tests of pure rules: job resources, reports, and a world in which plans take effect.

`World` is the least API that plans can be applied to: it keeps objects and gives out uids, and
no controller runs in it. A test says itself what Deployments and pods become.
"""

import functools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import msgspec
import yaml

from common.wire import ReportBody, WorkerStatus
from edgeai.api.objects import LABEL_ROLE, labels_of
from edgeai.api.resources import (
    DEPLOYMENTS,
    NODES,
    PODS,
    SECRETS,
    Object,
    ObjectRef,
    ResourceType,
    ref_of,
)
from edgeai.api.rollouts import ModelVersion
from edgeai.ids import NodeName, WorkerName
from edgeai.labels import LABEL_UID, LABEL_WORKER
from edgeai.times import rfc3339
from globalmanager.contract import (
    Action,
    Adopt,
    Contact,
    Create,
    Delete,
    Fold,
    Job,
    Kind,
    Observed,
    Patch,
    PatchStatus,
    Plan,
    Refusal,
    Replace,
    WorkerReport,
    WorkerSettings,
)
from globalmanager.kinds.shared.workloads import WORKLOADS

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SETTINGS = WorkerSettings(
    root_key=b"k" * 32, framework_images={"tensorflow:1.18": "registry.test/tensorflow:1.18"}
)


def copied(value: Any) -> Any:
    """As copy.deepcopy of JSON, in a twentieth of the time."""
    return msgspec.to_builtins(value)


def at(seconds: float) -> datetime:
    """NOW and so many seconds."""
    return NOW + timedelta(seconds=seconds)


def job(
    name: str = "digits",
    spec: Any = None,
    *,
    status: Any = None,
    uid: str = "uid-1",
    generation: int = 1,
) -> Object:
    metadata = {"name": name, "namespace": "default", "uid": uid, "generation": generation}
    object_: Object = {"metadata": metadata, "spec": {} if spec is None else spec}
    return object_ if status is None else {**object_, "status": status}


def from_yaml(text: str) -> Object:
    """A manifest as the API server would hold it."""
    object_: Object = copied(_parsed(text))
    usual = {"namespace": "default", "uid": "uid-1", "generation": 1}
    object_["metadata"] = usual | object_["metadata"]
    return object_


_parsed: Final = functools.cache(yaml.safe_load)


def report(
    *,
    worker: str = "digits-edge",
    node: str = "edge0",
    ledger_id: str = "ledger-1",
    attempt: int = 1,
    revision: int = 0,
    status: WorkerStatus = "running",
    phase: str = "inference",
    reason: str = "",
    counts: Mapping[str, int | float] | None = None,
    details: Mapping[str, str] | None = None,
    observed_at: str = "",
    is_former: bool = False,
) -> WorkerReport:
    body = ReportBody(
        phase=phase,
        status=status,
        reason=reason,
        task_info=dict(counts or {}),
        details=dict(details or {}),
        observed_at=observed_at,
    )
    return WorkerReport(
        node=NodeName(node),
        ledger_id=ledger_id,
        worker=WorkerName(worker),
        attempt=attempt,
        revision=revision,
        is_former=is_former,
        body=body,
    )


def patch_of(fold: Fold, *reports: WorkerReport) -> Mapping[str, Any]:
    """What these reports change."""
    for one in reports:
        fold.add(one)
    return fold.patch()


def merged(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return copied(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


GRACE_S = 30


def terminating(pod: Object, began: datetime = NOW) -> Object:
    """The pod after its deletion began, with the usual grace period."""
    metadata = {
        "deletionTimestamp": rfc3339(began + timedelta(seconds=GRACE_S)),
        "deletionGracePeriodSeconds": GRACE_S,
    }
    marked: Object = merged(pod, {"metadata": metadata})
    return marked


class World:
    """One job, what its plans made, and what it refers to."""

    def __init__(self, kind: Kind, object_: Object, type_: ResourceType | None = None) -> None:
        self.kind = kind
        self.type = type_ or kind.definition.resources[0]
        self.object = object_
        self.settings = SETTINGS
        self.readers: Mapping[NodeName, ModelVersion | None] = {}
        self.absent: frozenset[ResourceType] = frozenset()
        self.refusal: Refusal | None = None
        self.overridden: dict[ObjectRef, tuple[str, ...]] = {}
        self.children: dict[ObjectRef, Object] = {}
        self.pods: list[Object] = []
        self.contacts: dict[NodeName, Contact] = {}
        self._others: dict[ObjectRef, Object] = {}
        self._uids = 0
        self._planned_at = NOW
        self.terminates = False
        """Whether deleted pods stay until `end_deleted`."""
        self.refuses = False
        """Whether the API accepts no deletion of a pod, as a webhook makes it. The rest of such a
        plan is left out, as the engine does."""

    # ---- the world around the job -----------------------------------------------------------

    def model(self, name: str, url: str = "/models/m.onnx", **spec: str) -> Self:
        type_ = ResourceType(self.type.group, self.type.version, "models", "Model")
        metadata = {"name": name, "namespace": "default", "uid": f"model-{name}"}
        other = {"metadata": metadata, "spec": {"url": url, **spec}}
        self._others[ref_of(type_, other)] = other
        return self

    def dataset(self, name: str, node: str, url: str = "/data/a.csv") -> Self:
        type_ = ResourceType(self.type.group, self.type.version, "datasets", "Dataset")
        metadata = {"name": name, "namespace": "default"}
        other = {"metadata": metadata, "spec": {"url": url, "nodeName": node}}
        self._others[ref_of(type_, other)] = other
        return self

    def secret(self, name: str, **annotations: str) -> Self:
        """A Secret of the user. `_` in the name of an annotation stands for "-"."""
        given = {key.replace("_", "-"): value for key, value in annotations.items()}
        metadata = {"name": name, "namespace": "default", "annotations": given}
        self._others[ObjectRef(SECRETS, "default", name)] = {"metadata": metadata}
        return self

    def workload(self, name: str, **conditions: str) -> Self:
        """A Workload of Kueue with these conditions: Admitted="True"."""
        ref = ObjectRef(WORKLOADS, "default", name)
        metadata = {"name": name, "namespace": "default", "uid": f"workload-{name}"}
        known = self._others.get(ref, {"metadata": metadata, "status": {}})
        others = [
            one for one in known["status"].get("conditions", ()) if one["type"] not in conditions
        ]
        new = [{"type": type_, "status": truth} for type_, truth in conditions.items()]
        self._others[ref] = {**known, "status": {**known["status"], "conditions": [*others, *new]}}
        return self

    def nodes(
        self, *names: str, labels: Mapping[str, str] | None = None, ready: str = "True"
    ) -> Self:
        """Nodes with exactly these labels, and with this condition Ready."""
        for name in names:
            metadata = {"name": name, "labels": dict(labels or {})}
            status = {"conditions": [{"type": "Ready", "status": ready}]}
            self._others[ObjectRef(NODES, "", name)] = {"metadata": metadata, "status": status}
        return self

    def _selected(self, job: Job) -> dict[NodeName, Object]:
        selector = self.kind.node_selector(job) if self.kind.node_selector else {}
        return {
            NodeName(ref.name): node
            for ref, node in self._others.items()
            if ref.type == NODES and selector and selector.items() <= labels_of(node).items()
        }

    def other(self, kind: str, name: str) -> Object:
        """What the job refers to."""
        return next(o for r, o in self._others.items() if (r.type.kind, r.name) == (kind, name))

    def without(self, kind: str, name: str) -> Self:
        gone = [ref for ref in self._others if (ref.type.kind, ref.name) == (kind, name)]
        for ref in gone:
            del self._others[ref]
        return self

    def contact(self, node: str, *, connected: bool = True, since: datetime = NOW) -> Self:
        self.contacts[NodeName(node)] = Contact(connected=connected, since=since)
        return self

    # ---- the job itself ---------------------------------------------------------------------

    def change(self, spec: Any) -> Self:
        """The user writes another spec."""
        metadata = {**self.object["metadata"], "generation": self._generation() + 1}
        self.object = {**self.object, "metadata": metadata, "spec": spec}
        return self

    def _generation(self) -> int:
        return int(self.object["metadata"]["generation"])

    def delete(self) -> Self:
        metadata = {**self.object["metadata"], "deletionTimestamp": rfc3339(NOW)}
        self.object = {**self.object, "metadata": metadata}
        return self

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.object.get("status") or {})

    def condition(self, type_: str) -> dict[str, Any]:
        known = self.status.get("conditions") or []
        return next((entry for entry in known if entry["type"] == type_), {})

    def receive(self, report: WorkerReport) -> Mapping[str, Any] | None:
        taken = msgspec.structs.replace(report, group=self.type.group)
        patch = patch_of(self.kind.fold(self.status), taken)
        self.object = {**self.object, "status": merged(self.status, patch)}
        return patch or None

    # ---- what became of the workers ---------------------------------------------------------

    def pod(
        self, role: str, node: str = "", *, worker: str = "", name: str = "", **state: Any
    ) -> Self:
        labels = {LABEL_UID: "uid-1", LABEL_ROLE: role}
        if worker:
            labels[LABEL_WORKER] = worker
        metadata = {"name": name or f"{role}-{len(self.pods)}", "labels": labels}
        spec = {"nodeName": node} if node else {}
        self.pods.append(
            {"metadata": metadata, "spec": spec, "status": {"phase": "Running", **state}}
        )
        return self

    def pods_become(self, phase: str, *names: str, **state: Any) -> Self:
        """These pods of the job, or all of them; created at NOW."""
        for ref, child in self.children.items():
            if ref.type == PODS and (not names or ref.name in names):
                metadata = {"creationTimestamp": rfc3339(NOW), **child["metadata"]}
                became = {"metadata": metadata, "status": {"phase": phase, **state}}
                self.children[ref] = {**child, **became}
        return self

    def end_deleted(self, *stay: str) -> Self:
        """The pods that are being deleted end, but those that stay."""
        self.children = {
            ref: child
            for ref, child in self.children.items()
            if "deletionTimestamp" not in child["metadata"] or ref.name in stay
        }
        return self

    def gone(self, kind: str, name: str) -> Self:
        """An object that somebody else deleted."""
        for ref in [ref for ref in self.children if (ref.type.kind, ref.name) == (kind, name)]:
            del self.children[ref]
        return self

    def available(self, *roles: str) -> Self:
        """The Deployments of these roles are available, those of others are not."""
        for ref, child in self.children.items():
            if ref.type == DEPLOYMENTS:
                is_up = child["metadata"]["labels"][LABEL_ROLE] in roles
                state = {"conditions": [{"type": "Available", "status": str(is_up)}]}
                self.children[ref] = {**child, "status": state}
        return self

    # ---- planning ---------------------------------------------------------------------------

    def observed(self) -> Observed:
        job = self.kind.decode(self.type, copied(self.object))
        wanted = self.kind.references(job)
        named = {ref: other for ref, other in self._others.items() if ref in wanted}
        wanted |= self.kind.indirect_references(named)
        return Observed(
            type=job.type,
            object=job.object,
            spec=job.spec,
            invalid=job.invalid,
            children={ref: copied(child) for ref, child in self.children.items()},
            pods=tuple(copied(self.pods)),
            references={ref: other for ref, other in self._others.items() if ref in wanted},
            nodes=self._selected(job),
            contacts=dict(self.contacts),
            settings=self.settings,
            absent=self.absent,
            readers=self.readers,
            refusal=self.refusal,
            overridden=self.overridden,
        )

    def plan(self, now: datetime = NOW) -> Plan:
        self._planned_at = now
        return self.kind.plan(self.observed(), now)

    def apply(self, plan: Plan, *, actions: int | None = None) -> Self:
        """Apply the whole plan, or crash after so many actions (and before the status)."""
        for action in plan.actions[:actions]:
            if self.refuses and isinstance(action, Delete) and action.ref.type == PODS:
                return self
            self._act(action)
        if actions is None and plan.status is not None:
            self.object = {**self.object, "status": merged(self.status, plan.status)}
        return self

    def _act(self, action: Action) -> None:
        match action:
            case Delete(ref, uid):
                child = self.children[ref]
                assert child["metadata"]["uid"] == uid
                if self.terminates and ref.type == PODS and not action.is_forced:
                    self.children[ref] = terminating(child, self._planned_at)
                else:
                    del self.children[ref]
            case PatchStatus(ref, uid, status):
                other = self._others[ref]
                assert other["metadata"].get("uid", "") == uid
                self._others[ref] = {**other, "status": merged(other.get("status"), status)}
            case Patch(ref, patch):
                objects = self.children if ref in self.children else self._others
                objects[ref] = merged(objects[ref], patch)
            case Adopt(ref):
                owner = {"uid": self.object["metadata"]["uid"], "controller": True}
                adopted = {"metadata": {"ownerReferences": [owner]}}
                self._others[ref] = merged(self._others[ref], adopted)
            case Create() | Replace():
                self._put(action)

    def _put(self, action: Create | Replace) -> None:
        ref, object_ = ref_of(action.type, action.object), copied(action.object)
        assert (ref in self.children) == isinstance(action, Replace), ref
        if action.type == DEPLOYMENTS:
            object_["spec"].setdefault("replicas", 1)  # as the API server does
        if ref not in self.children:
            self._uids += 1
            object_["metadata"]["uid"] = f"child-{self._uids}"
        self.children[ref] = object_

    def step(self, now: datetime = NOW) -> Plan | None:
        """One plan takes effect. Returns: the plan, or None where it changes nothing"""
        plan = self.plan(now)
        if not plan.actions and plan.status is None:
            return None
        self.apply(plan)
        return plan

    def settle(self, now: datetime = NOW) -> Self:
        """Plan and apply until nothing changes; a kind that never rests fails here."""
        for _ in range(60):
            if (plan := self.step(now)) is None:
                return self
        raise AssertionError(f"does not settle: {plan}")

    def names(self) -> list[str]:
        return sorted(f"{ref.type.kind}/{ref.name}" for ref in self.children)

    def child(self, kind: str, name: str) -> Object:
        return next(
            child
            for ref, child in self.children.items()
            if (ref.type.kind, ref.name) == (kind, name)
        )
