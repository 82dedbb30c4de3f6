"""The end of a run without a fault, to compare a run with crashes with (`oracle`, promise I14).

The reference begins with the jobs as their users have left them, of the same uid and generation,
and nothing else: no status, no child, no task at any node. What cloud and edge make of them must be
what the run with crashes has ended with.
"""

import copy
from typing import Any, Final, NamedTuple

from tests.simulation.api import Key, Object, is_custom
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.oracle import LEARNING, ends_of, owner_of
from tests.simulation.round_oracle import MODEL_FILE, NAME
from tests.simulation.world import VirtualTime

CHILDREN: Final = ("deployments.apps", "services", "secrets", "pods")
DECISIONS: Final = {"rollout", "returns", "round", "current", "progress", "deployed", "last"}
CALM_S: Final = 120.0


class End(NamedTuple):
    """What a run has made of its jobs."""

    tasks: dict[str, set[Any]]
    """Node -> the rows of its tasks, bodies included, and of its grants."""
    children: dict[Key, Object]
    """Without what the API or time decides."""
    conditions: dict[Key, dict[str, str]]


def unended(cluster: SimulatedCluster) -> set[str]:
    """The uids of the jobs that have not ended."""
    jobs = _jobs(cluster).values()
    return {job["metadata"]["uid"] for job in jobs if not ends_of(job.get("status") or {})}


def end_of(cluster: SimulatedCluster, alive: set[str]) -> End:
    """Args: alive: uids of the jobs to look at"""
    children = {
        key: _essence(object_)
        for key, object_ in cluster.api.objects.items()
        if (key.resource in CHILDREN or key == MODEL_FILE) and owner_of(object_) in alive
    }
    tasks = {
        name: {*rows["tasks"], *rows["grants"]}
        for name, controller in cluster.controllers.items()
        if name in cluster.nodes and (rows := controller.rows()) is not None
    }
    conditions = {
        key: _conditions(job)
        for key, job in _jobs(cluster).items()
        if job["metadata"]["uid"] in alive
    }
    return End(tasks, children, conditions)


def reference_of(cluster: SimulatedCluster) -> SimulatedCluster:
    """A cluster of the same nodes, with one replica, and the same jobs before anything is made."""
    world = VirtualTime(cluster.world.seed, first_id=cluster.world.unused_id())
    reference = SimulatedCluster(world, replicas=1, nodes=len(cluster.nodes))
    reference.server.is_faulty = False
    reference.oracle.models.learn(cluster.oracle.models)
    reference.oracle.rounds = cluster.oracle.rounds
    for key in _jobs(reference):
        reference.api.forget(key)
    for key, job in _jobs(cluster).items():
        made = copy.deepcopy(job)
        # What nodes have got is known from the decisions of the past alone.
        status = made.pop("status", None) or {}
        if decisions := {key: status[key] for key in status.keys() & DECISIONS}:
            made["status"] = decisions
        reference.api.restore(key, made)
    for key, node in list(cluster.api.of("nodes")):
        reference.api.restore(key, copy.deepcopy(node))
    return reference


def differences(run: End, reference: End) -> list[str]:
    """What the run with crashes has ended with, where it differs.

    A job that learns may have lost pods of workers that are done; a pod that is there is compared.
    """
    found = [
        f"{name} holds {sorted(tasks - theirs)}, and without crashes {sorted(theirs - tasks)}"
        for name, tasks in run.tasks.items()
        if (theirs := reference.tasks.get(name, set())) != tasks
    ]
    for key in sorted({*run.children, *reference.children}):
        child, wanted = run.children.get(key), reference.children.get(key)
        if child != wanted and not (key.resource == "pods" and None in (child, wanted)):
            found.append(f"{key} is {child}, and without crashes {wanted}")
    for job, ends in run.conditions.items():
        expected = reference.conditions.get(job, {})
        # Where these are is known from what their workers have told.
        has_past = job.resource == LEARNING or job.name.startswith(("fleet", NAME))
        if ends != expected and not has_past:
            found.append(f"{job.name} is {ends}, and without crashes {expected}")
    return found


def _jobs(cluster: SimulatedCluster) -> dict[Key, Object]:
    return {key: each for key, each in cluster.api.objects.items() if is_custom(key)}


def _essence(object_: Object) -> Object:
    metadata = object_["metadata"]
    kept = ("name", "labels", "annotations", "ownerReferences")
    rest = {key: value for key, value in object_.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": {key: metadata.get(key) for key in kept}}


def _conditions(job: Object) -> dict[str, str]:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return {each["type"]: f"{each['status']} {each['reason']}" for each in conditions}
