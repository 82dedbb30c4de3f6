"""A fleet of 5,000 nodes, as its caches have it, and the reports of its workers."""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from edgeai.api import slices
from edgeai.api.resources import CONFIG_MAPS, NODES, PODS, Object, ref_of
from edgeai.api.rollouts import ModelVersion, Phase, RolloutStatus
from edgeai.ids import NodeName, WorkerName
from globalmanager.contract import Contact, Observed, WorkerReport
from globalmanager.engine.jobs import Jobs
from globalmanager.engine.observe import Observer
from globalmanager.ha.contacts import Contacts
from globalmanager.kinds.edge.jointinferenceservice import KIND
from tests.globalmanager.engine.stores import Stores
from tests.globalmanager.kinds.edge.jointinferenceservice.test_fleet import (
    CAMERA,
    READY,
    SILENT,
    fleet,
    fleet_spec,
    pods,
)
from tests.support.world import NOW, SETTINGS, World, merged, patch_of, report

NODES_OF_THE_FLEET: Final = 5000


def large_fleet(state: Callable[[int], Object], world: World | None = None) -> Observed:
    """A settled fleet.

    Args:
        state: number of a node -> .status of its pod
        world: the service with one node
    """
    world = (world or fleet("edge0")).settle().available("cloud")
    pod = pods(world)["edge0"]
    observed = world.observed()
    names = [NodeName(f"edge-{number:05d}.plant.example") for number in range(NODES_OF_THE_FLEET)]
    made = [_pod_on(pod, node, state(number)) for number, node in enumerate(names)]
    others = {ref: child for ref, child in observed.children.items() if ref.type != PODS}
    for ref, child in others.items():
        if ref.type == CONFIG_MAPS:
            others[ref] = {**child, "data": slice_data(ref.name, seen=1)}
    return msgspec.structs.replace(
        observed,
        nodes={node: {"metadata": {"name": node, "labels": CAMERA}} for node in names},
        contacts={node: Contact(connected=True, since=NOW) for node in names},
        children={**others, **{ref_of(PODS, pod): pod for pod in made}},
        pods=tuple(made),
    )


def _pod_on(pod: Object, node: str, status: Object) -> Object:
    metadata = {**pod["metadata"], "name": f"digits-edge-{node}", "uid": f"uid-{node}"}
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": node},
        "status": status,
    }


def serving(_number: int) -> Object:
    return {"phase": "Running", **READY}


def mixed(number: int) -> Object:
    """One in ten is silent, one in a hundred has failed."""
    if number % 100 == 0:
        return {"phase": "Failed", "reason": "Evicted", "message": "x" * 1000}
    return {"phase": "Running", **(SILENT if number % 10 == 1 else READY)}


def rolled_out() -> Observed:
    """A fleet half of whose nodes get a new version of its Model."""
    hot = {"name": "small", "hotUpdate": True}
    world = fleet("edge0", model=hot).model("small", "https://models.example.org/small")
    observed = settled(large_fleet(serving, world))
    spec = {**fleet_spec(model=hot), "rollout": {"waves": ["50%"], "promote": "manual"}}
    before = ModelVersion(generation=1, url="u", number=1, model="former")
    state = RolloutStatus(version=before, phase=Phase.COMPLETE)
    status = {**observed.object["status"], "rollout": msgspec.to_builtins(state)}
    job = KIND.decode(observed.type, {**observed.object, "spec": spec, "status": status})
    return settled(msgspec.structs.replace(observed, object=job.object, spec=job.spec))


def settled(observed: Observed) -> Observed:
    """The fleet after its plan."""
    plan = KIND.plan(observed, NOW)
    object_ = {**observed.object, "status": merged(observed.object["status"], plan.status or {})}
    return msgspec.structs.replace(observed, object=object_)


def observer_of(observed: Observed) -> Observer:
    """An observer whose stores have all objects of the fleet."""
    stores = Stores({observed.type: KIND})
    owner = {"ownerReferences": [{"uid": observed.uid, "controller": True}]}
    nodes = ((NODES, node) for node in observed.nodes.values())
    children = (
        (ref.type, merged(one, {"metadata": owner})) for ref, one in observed.children.items()
    )
    objects = [(observed.type, observed.object), *nodes, *children]
    for number, (type_, one) in enumerate(objects):
        usual = {"uid": f"uid-of-{number}", "resourceVersion": str(number)}
        stores.put(type_, {**one, "metadata": {**usual, **one["metadata"]}})
    return Observer(Jobs(stores), Contacts(), SETTINGS)


def reports_of(slice_: str, *, seen: int) -> Iterator[WorkerReport]:
    """A report of each worker whose entry is in the slice."""
    for number in range(NODES_OF_THE_FLEET):
        node = f"edge-{number:05d}.plant.example"
        worker = f"digits-node-{node}"
        if slices.slice_name("digits", WorkerName(worker)) == slice_:
            counts = {"seen": 100_000 + seen, "hard": 10_000, "uploaded": 9_000, "fallbacks": 10}
            details = {"modelVersion": "1", "modelDigest": "a" * 64}
            counts |= {"version": 1, "seenOfVersion": seen, "hardOfVersion": seen}
            yield report(worker=worker, node=node, counts=counts, details=details)


def slice_data(slice_: str, *, seen: int) -> dict[str, str]:
    part = patch_of(KIND.fold({}), *reports_of(slice_, seen=seen))
    return slices.data_of(part, part["workers"])
