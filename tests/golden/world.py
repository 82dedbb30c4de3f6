"""A job of a case at a moment: what its plan sees, and what a plan that is carried out makes of it.

It does what the API server, the controllers and the kubelet do, as far as plans look at it, with
uids and times that are the same in every run.
"""

import copy
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Self

import msgspec

from edgeai.api.resources import DEPLOYMENTS, NODES, PODS, SERVICES, ObjectRef, ResourceType, ref_of
from edgeai.ids import NodeName
from edgeai.times import rfc3339
from globalmanager.contract import (
    Action,
    Contact,
    Create,
    Kind,
    Observed,
    Plan,
    Refusal,
    Replace,
    WorkerSettings,
)
from globalmanager.kinds import KINDS
from tests.support.world import NOW, World, copied, merged

Object = dict[str, Any]
Json = Any

PICKED_NODE: Final = "picked-by-scheduler"
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


def identity(object_: Object) -> tuple[str, str, str, str]:
    metadata = object_["metadata"]
    kind = object_["kind"]
    return object_["apiVersion"], kind, metadata.get("namespace", ""), metadata["name"]


def uid_of(object_: Object, incarnation: int = 0) -> str:
    """The same in every run for one name."""
    name = "/".join((*identity(object_), str(incarnation)))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def in_api(manifest: Object) -> Object:
    """A manifest as the API server holds it."""
    object_: Object = copied(manifest)
    if object_["kind"] != "Node":
        object_["metadata"].setdefault("namespace", "default")
    filled_in = {
        "uid": uid_of(object_),
        "generation": 1,
        "resourceVersion": "1000",
        "creationTimestamp": rfc3339(NOW),
    }
    object_["metadata"] = filled_in | object_["metadata"]
    return object_


def patched(object_: Object, patch: Mapping[str, Json]) -> Object:
    """A copy of the object with a merge patch applied."""
    return {**merged(object_, patch)}


def named(ref: ObjectRef) -> Object:
    """An object that has a name only."""
    namespace = {"namespace": ref.namespace} if ref.namespace else {}
    return {
        "apiVersion": ref.type.api_version,
        "kind": ref.type.kind,
        "metadata": {**namespace, "name": ref.name},
    }


def by_ref(objects: Iterable[Object]) -> dict[ObjectRef, Object]:
    """Those of known types."""
    types = ((_TYPES.get((one["apiVersion"], one["kind"])), one) for one in objects)
    return {ref_of(type_, one): one for type_, one in types if type_}


def kind_of(type_: ResourceType) -> Kind | None:
    """The kind that plans for objects of this type."""
    return next((kind for kind in KINDS if type_ in kind.definition.types), None)


class CaseWorld(World):
    """Its own methods change nothing, and give a copy. Those of World change it: `but()` copies it.

    Args: others: what the job may refer to, and more
    """

    def __init__(self, kind: Kind, ref: ObjectRef, others: Mapping[ObjectRef, Object]) -> None:
        super().__init__(kind, others[ref], ref.type)
        self.settings = SETTINGS
        self.others = self._others = dict(others)
        self.deployed: tuple[Object, ...] = ()
        """Pods of the job's Deployments."""
        self.now = NOW
        self.revision = 1000
        """The last resourceVersion that was given out."""

    def but(self, **changed: Any) -> Self:
        """A copy that has these attributes."""
        other = copy.copy(self)
        vars(other).update({"children": dict(self.children), **changed})
        other._others = other.others = dict(other.others)
        return other

    @property
    def all_pods(self) -> tuple[Object, ...]:
        """By name."""
        own = (child for ref, child in self.children.items() if ref.type == PODS)
        return tuple(sorted((*own, *self.deployed), key=lambda pod: str(pod["metadata"]["name"])))

    # ---- plans ------------------------------------------------------------------------------

    def references(self) -> frozenset[ObjectRef]:
        return self.kind.references(self.kind.decode(self.type, self.object))

    def observed(self) -> Observed:
        """In the order in which the engine lists: children by type and name, pods by name."""
        types, scalers = list(self.kind.owns), self.kind.scalers
        order = sorted(self.children, key=lambda ref: (types.index(ref.type), ref.name))
        return msgspec.structs.replace(
            super().observed(),
            children={ref: self.children[ref] for ref in order},
            pods=self.all_pods,
            scalers={
                ref: other
                for ref, other in self.others.items()
                if ref.type in scalers
                and scalers[ref.type](other) == self.object["metadata"]["name"]
            },
        )

    def planned(self) -> Plan:
        return self.plan(self.now)

    def settled(self) -> Self:
        """Plans are carried out until one changes nothing."""
        return self.but().settle(self.now)

    def nodes_assigned(self) -> list[NodeName]:
        return list(self.kind.assignments(self.observed()))

    def _act(self, action: Action) -> None:
        super()._act(action)
        if not isinstance(action, Create | Replace):
            return
        ref = ref_of(action.type, action.object)
        made, self.revision = self.children[ref], self.revision + 1
        made["metadata"]["resourceVersion"] = str(self.revision)
        if isinstance(action, Replace):
            made["metadata"]["generation"] = made["metadata"].get("generation", 1) + 1
            return
        if ref.type == SERVICES:
            address = made["spec"].get("clusterIP", "10.0.0.9")  # "None" for a headless Service
            made["spec"] |= {
                "clusterIP": address,
                "clusterIPs": [address],
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "type": "ClusterIP",
            }
        made["metadata"] |= {
            "uid": uid_of(made, self.revision - 1),
            "creationTimestamp": rfc3339(self.now),
            "generation": 1,
        }

    # ---- time, surroundings and the job -----------------------------------------------------

    def later(self, seconds: float) -> Self:
        return self.but(now=self.now + timedelta(seconds=seconds))

    def in_contact(self, nodes: Iterable[NodeName], *, connected: bool = True) -> Self:
        """These nodes' sessions begin or end now."""
        contacts = {node: Contact(connected=connected, since=self.now) for node in nodes}
        return self.but(contacts={**self.contacts, **contacts})

    def refused(self, reason: str, message: str) -> Self:
        """The API has refused this very plan."""
        return self.but(refusal=Refusal(reason, message))

    def edited(self, patch: Mapping[str, Json]) -> Self:
        """The user merges `patch` into the spec."""
        return self.but().change(merged(self.object["spec"], patch))

    # ---- controllers and kubelet ------------------------------------------------------------

    def changed_children(self, change: Callable[[Object], Object], *types: ResourceType) -> Self:
        """Every child of these types, or every child, becomes what `change` makes of it."""
        children = {
            ref: change(child) if not types or ref.type in types else child
            for ref, child in self.children.items()
        }
        return self.but(children=children)

    def deployed_pods(self) -> Self:
        """Each Deployment has the pods that it asks for."""
        deployments = [child for ref, child in self.children.items() if ref.type == DEPLOYMENTS]
        pods = (
            _pod_of(one, number, self.now)
            for one in deployments
            for number in range(one["spec"]["replicas"])
        )
        return self.but(deployed=tuple(pods))

    def with_pods(
        self,
        status: Mapping[str, Json],
        *,
        scheduled: bool = True,
        only: Callable[[int], bool] = lambda _number: True,
    ) -> Self:
        """Those pods whose number in the order of names `only` takes get this status."""
        pods = enumerate(self.all_pods)
        chosen = {pod["metadata"]["uid"] for number, pod in pods if only(number)}

        def become(pod: Object) -> Object:
            if pod["metadata"]["uid"] not in chosen:
                return pod
            spec = dict(pod["spec"])
            if scheduled:
                spec.setdefault("nodeName", PICKED_NODE)
            return {**pod, "spec": spec, "status": copied(status)}

        world = self.changed_children(become, PODS)
        return world.but(deployed=tuple(become(pod) for pod in world.deployed))


def _pod_of(deployment: Object, number: int, now: datetime) -> Object:
    """A pod as the Deployment's ReplicaSet makes it."""
    template = copied(deployment["spec"]["template"])
    set_name = f"{deployment['metadata']['name']}-5d9c7b"
    metadata = {
        **template["metadata"],
        "name": f"{set_name}-{number:05}",
        "namespace": deployment["metadata"]["namespace"],
        "creationTimestamp": rfc3339(now),
        "resourceVersion": "1000",
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": set_name,
                "uid": deployment["metadata"]["uid"] + "-set",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    metadata["labels"] = {**metadata["labels"], "pod-template-hash": "5d9c7b"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    metadata["uid"] = uid_of(pod)
    return pod
