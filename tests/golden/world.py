"""What a plan sees, as plain JSON, and what becomes of it when a plan is carried out.

A Snapshot is never changed: each method returns another one. It does what the API server, the
controllers and the kubelet do, as far as plans look at it, with uids and times that are the same
in every run.
"""

import copy
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from tests.support.world import NOW, merged

Object = dict[str, Any]
Json = Any

PICKED_NODE: Final = "picked-by-scheduler"


def timestamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


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
    object_ = copy.deepcopy(manifest)
    if object_["kind"] != "Node":
        object_["metadata"].setdefault("namespace", "default")
    filled_in = {
        "uid": uid_of(object_),
        "generation": 1,
        "resourceVersion": "1000",
        "creationTimestamp": timestamp(NOW),
    }
    object_["metadata"] = filled_in | object_["metadata"]
    return object_


def patched(object_: Object, patch: Mapping[str, Json]) -> Object:
    """A copy of the object with a merge patch applied."""
    return {**merged(object_, patch)}


@dataclass(frozen=True)
class Snapshot:
    """One job and all that its plan depends on."""

    job: Object
    others: tuple[Object, ...] = ()
    """What the job may refer to, and more."""
    children: tuple[Object, ...] = ()
    """What the job owns as its controller; pods too, where the job creates them itself."""
    deployed: tuple[Object, ...] = ()
    """Pods of the job's Deployments."""
    contacts: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """Node -> {"connected": bool, "since": datetime}"""
    refusal: Mapping[str, str] | None = None
    """{"reason", "message"} of the API's refusal of this very plan."""
    now: datetime = NOW
    revision: int = 1000
    """The last resourceVersion that was given out."""

    @property
    def pods(self) -> tuple[Object, ...]:
        """All pods of the job, by name."""
        own = (child for child in self.children if child["kind"] == "Pod")
        return tuple(sorted((*own, *self.deployed), key=lambda pod: str(pod["metadata"]["name"])))

    @property
    def status(self) -> dict[str, Json]:
        return dict(self.job.get("status") or {})

    # ---- time and surroundings --------------------------------------------------------------

    def later(self, seconds: float) -> "Snapshot":
        return replace(self, now=self.now + timedelta(seconds=seconds))

    def contact(self, nodes: Iterable[str], *, connected: bool) -> "Snapshot":
        """These nodes' sessions begin or end now."""
        entries = {node: {"connected": connected, "since": self.now} for node in nodes}
        return replace(self, contacts={**self.contacts, **entries})

    def refused(self, reason: str, message: str) -> "Snapshot":
        return replace(self, refusal={"reason": reason, "message": message})

    def changed_others(self, change: Callable[[Object], Object]) -> "Snapshot":
        return replace(self, others=tuple(change(copy.deepcopy(one)) for one in self.others))

    # ---- the job ----------------------------------------------------------------------------

    def edited(self, patch: Mapping[str, Json]) -> "Snapshot":
        """The user merges `patch` into the spec."""
        generation = self.job["metadata"]["generation"] + 1
        spec = merged(self.job["spec"], patch)
        metadata = {**self.job["metadata"], "generation": generation}
        return replace(self, job={**self.job, "metadata": metadata, "spec": spec})

    def deleted(self) -> "Snapshot":
        metadata = {**self.job["metadata"], "deletionTimestamp": timestamp(self.now)}
        return replace(self, job={**self.job, "metadata": metadata})

    def with_status(self, patch: Json) -> "Snapshot":
        """`patch` merged into .status; None changes nothing."""
        if patch is None:
            return self
        return replace(self, job={**self.job, "status": merged(self.status, patch)})

    # ---- carrying out a plan ----------------------------------------------------------------

    def carried_out(self, plan: Mapping[str, Json]) -> "Snapshot":
        """All actions of a recorded plan, then its status."""
        world = self
        for action in plan["actions"]:
            world = world._act(action)
        return world.with_status(plan["status"])

    def _act(self, action: Mapping[str, Json]) -> "Snapshot":
        match action:
            case {"create": object_}:
                return self._create(object_)
            case {"replace": object_}:
                return self._replace(object_)
            case {"delete": named}:
                return self._delete(named)
            case {"patchStatus": named}:
                return self._patched(named, {"status": named["status"]})
            case {"adopt": named}:
                owner = {"uid": self.job["metadata"]["uid"], "controller": True}
                return self._patched(named, {"metadata": {"ownerReferences": [owner]}})
            case {"annotate": named}:
                return self._patched(named, {"metadata": {"annotations": named["annotations"]}})
        raise AssertionError(f"unknown action {action}")

    def _create(self, object_: Object) -> "Snapshot":
        made = copy.deepcopy(object_)
        spec = made.get("spec", {})
        if made["kind"] == "Deployment":
            spec.setdefault("replicas", 1)
        if made["kind"] == "Service":
            address = spec.get("clusterIP", "10.0.0.9")  # "None" for a headless Service
            spec |= {
                "clusterIP": address,
                "clusterIPs": [address],
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "type": "ClusterIP",
            }
        made["metadata"] |= {
            "uid": uid_of(made, self.revision),
            "resourceVersion": str(self.revision + 1),
            "creationTimestamp": timestamp(self.now),
            "generation": 1,
        }
        return replace(self, children=(*self.children, made), revision=self.revision + 1)

    def _replace(self, object_: Object) -> "Snapshot":
        made = copy.deepcopy(object_)
        made["metadata"] |= {
            "resourceVersion": str(self.revision + 1),
            "generation": made["metadata"].get("generation", 1) + 1,
        }
        kept = (made if identity(one) == identity(made) else one for one in self.children)
        return replace(self, children=tuple(kept), revision=self.revision + 1)

    def _delete(self, named: Mapping[str, str]) -> "Snapshot":
        kept = tuple(one for one in self.children if one["metadata"]["uid"] != named["uid"])
        assert len(kept) == len(self.children) - 1, named
        return replace(self, children=kept)

    def _patched(self, named: Mapping[str, str], patch: Mapping[str, Json]) -> "Snapshot":
        """The object with this uid gets a merge patch."""

        def change(one: Object) -> Object:
            return patched(one, patch) if one["metadata"].get("uid") == named["uid"] else one

        others, children = map(change, self.others), map(change, self.children)
        return replace(self, others=tuple(others), children=tuple(children))

    # ---- controllers and kubelet ------------------------------------------------------------

    def changed_children(self, kind: str, change: Callable[[Object], Object]) -> "Snapshot":
        """Every child of this kind becomes what `change` makes of it."""
        made = (change(copy.deepcopy(one)) if one["kind"] == kind else one for one in self.children)
        return replace(self, children=tuple(made))

    def deployed_pods(self) -> "Snapshot":
        """Each Deployment has the pods that it asks for."""
        deployments = (one for one in self.children if one["kind"] == "Deployment")
        pods = (
            _pod_of(one, number, self.now)
            for one in deployments
            for number in range(one["spec"]["replicas"])
        )
        return replace(self, deployed=tuple(pods))

    def pods_become(
        self,
        status: Mapping[str, Json],
        *,
        scheduled: bool = True,
        only: Callable[[int], bool] = lambda _number: True,
    ) -> "Snapshot":
        """Those pods whose number in the order of names `only` takes get this status."""
        chosen = {pod["metadata"]["uid"] for number, pod in enumerate(self.pods) if only(number)}

        def become(pod: Object) -> Object:
            if pod["metadata"]["uid"] not in chosen:
                return pod
            spec = dict(pod["spec"])
            if scheduled:
                spec.setdefault("nodeName", PICKED_NODE)
            return {**pod, "spec": spec, "status": copy.deepcopy(dict(status))}

        world = self.changed_children("Pod", become)
        return replace(world, deployed=tuple(become(pod) for pod in world.deployed))

    def available(self, *, is_so: bool) -> "Snapshot":
        """The Deployments say whether they are available."""
        conditions = [{"type": "Available", "status": str(is_so)}]

        def become(deployment: Object) -> Object:
            return {**deployment, "status": {"conditions": conditions}}

        return self.changed_children("Deployment", become)


def _pod_of(deployment: Object, number: int, now: datetime) -> Object:
    """A pod as the Deployment's ReplicaSet makes it."""
    template = copy.deepcopy(deployment["spec"]["template"])
    set_name = f"{deployment['metadata']['name']}-5d9c7b"
    metadata = {
        **template["metadata"],
        "name": f"{set_name}-{number:05}",
        "namespace": deployment["metadata"]["namespace"],
        "creationTimestamp": timestamp(now),
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
