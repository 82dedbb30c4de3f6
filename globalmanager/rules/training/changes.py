"""The changes of a training job's children: while the job runs, is suspended or has ended.

`plan` decides in which of these states the job is.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from edgeai.api.resources import AUTOSCALERS, PODS, SERVICES, Object, ObjectRef
from globalmanager.contract import Action, Create, Delete, Observed, UpdateRule
from globalmanager.rules import children, lifecycle, objects
from globalmanager.rules.children import Stages
from globalmanager.rules.lifecycle import CleanPods, Timers, own_pods, pause_left_s
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.pod_state import phase_of
from globalmanager.rules.training import gangs, replicas, waiting
from globalmanager.rules.training import history as histories
from globalmanager.rules.training.forms import Replicas, RestartScope
from globalmanager.rules.training.present import Present

OWNS: Final = {**gangs.OWNS, **replicas.OWNS}
"""Type of the children of all training kinds -> what a plan does with a child that differs."""
FOLLOWS: Final = {**gangs.FOLLOWS, **replicas.FOLLOWS}
"""Type -> label selectors of the children that the Kubeflow operators made."""
_RULES: Final = {AUTOSCALERS: UpdateRule.REPLACE, **OWNS}
_RESTART_BASE_S: Final = 1.0
_RESTART_MAX_S: Final = 60.0
_DISRUPTED_S: Final = 10.0
"""Least age of a pod that has lost its room and is made again."""
_MAX_NEW_PODS: Final = 100
_MAX_NEW_BYTES: Final = 4 * 1024 * 1024
"""In one plan, at least one pod. Each pod of a TFJob names all replicas, and has all variables of
its template, so all pods of a large job at once would take seconds and much memory. The first pods
cause the next plan.
"""
_LARGE_BYTES: Final = 64 * 1024
_LARGE_PODS_S: Final = 30.0
"""A job makes pods of a template larger than _LARGE_BYTES with at most _MAX_NEW_BYTES of templates
within _LARGE_PODS_S. The API server and the scheduler of Kubernetes 1.20 took 0.6 s of processor
for each pod of 1.1 MB, and the jobs of other namespaces wait for the same server.
"""


def living_job_changes(job: Present) -> tuple[Stages, Timers]:
    """The changes towards one pod and one Service of each replica, with the PodGroup and the
    framework's own children, and the waits until further changes.
    """
    observed, spec, history = job.observed, job.spec, job.history
    members = list(replicas.names(observed.ref.name, spec))
    pods = histories.pods_by_name(observed)
    deletions, timers = _replacements(job, pods)
    absent = [entry for entry in members if entry[0] not in pods]
    absent = [entry for entry in absent if entry[0] not in history.finished]
    is_too_large = replicas.is_too_large(observed, spec)
    if is_too_large and not observed.children:
        return (), timers
    if is_too_large or not gangs.admits_pods(observed) or _is_ending_before_a_restart(job, pods):
        absent = []
    room = new_pods((replica.template_bytes for replica in spec.replicas), pods.values(), job.now)
    timers = timers.add(room.wait_s if absent else None)
    desired = [
        *_companions(job),
        *(replicas.service(observed, spec, *entry[1:], pods.get(entry[0])) for entry in members),
        *(_pod(job, *entry) for entry in absent[: room.most]),
    ]
    # Neither superfluous nor to be made again: pods that exist, and replicas that have finished.
    stable = history.finished.union(name for name, _, _ in members if name in pods)
    settled = {ObjectRef(PODS, observed.ref.namespace, name) for name in stable}
    settled |= _services_made_elsewhere(observed, pods, stable)
    stages = children.reconcile(observed, desired, _RULES, settled=settled)
    if pods:
        return children.new_pods_last((deletions, *stages)), timers
    # A job that cannot have all its Services starts none of its pods.
    return tuple(stage for stage in stages if stage), timers


def _replacements(job: Present, pods: Mapping[str, Object]) -> tuple[tuple[Delete, ...], Timers]:
    """The deletions of pods that have lost their room, or belong to an earlier attempt, and the
    waits until further ones.
    """
    observed, spec, history = job.observed, job.spec, job.history
    members = [entry for entry in replicas.names(observed.ref.name, spec) if entry[0] in pods]
    disrupted = {
        name: pods[name]
        for name, replica, _ in members
        if waiting.has_lost_room(observed, spec, replica.type, pods[name])
    }
    deletions, timers = lifecycle.replacement(disrupted.values(), job.now, after_s=_DISRUPTED_S)
    for name, _, _ in members:
        attempt = history.attempt(name)
        if name in disrupted or replicas.attempt_of(pods[name]) >= attempt:
            continue
        wait_s = backoff_left_s(pods[name], attempt, job.now)
        timers = timers.add(wait_s)
        if wait_s <= 0 and not is_being_deleted(pods[name]):
            deletions = (*deletions, lifecycle.deletion(pods[name]))
    return deletions, timers


def _companions(job: Present) -> list[Create]:
    """The PodGroup and the framework's own children, where the API server has their types."""
    gang = gangs.of(job.observed.settings)
    groups = [] if gang is None else [gangs.pod_group(gang, job.observed, job.spec)]
    creates = [*groups, *job.spec.framework.companions(job.observed)]
    return [create for create in creates if create.type not in job.observed.absent]


def _pod(job: Present, name: str, replica: Replicas, index: int) -> Create:
    gang = gangs.of(job.observed.settings)
    if gang is not None:
        replica = gangs.with_gang(gang, job.observed.ref.name, replica)
    attempt = job.history.attempt(name)
    return replicas.pod(job.observed, job.spec, replica, index, attempt=attempt)


class NewPods(NamedTuple):
    """How many pods a plan may make."""

    most: int
    wait_s: float = 0.0
    """Seconds until a plan may make a pod; 0 for now."""


def new_pods(template_bytes: Iterable[int], pods: Iterable[Object], now: datetime) -> NewPods:
    """How many pods one plan may make.

    Args:
        template_bytes: size of each template as JSON
        pods: the pods that the job has
    """
    largest = max(template_bytes, default=1)
    most = max(1, min(_MAX_NEW_PODS, _MAX_NEW_BYTES // largest))
    if largest <= _LARGE_BYTES:
        return NewPods(most)
    creations = (pod["metadata"].get("creationTimestamp") for pod in pods)
    pauses_s = (pause_left_s(creation, _LARGE_PODS_S, now) for creation in creations)
    waits_s = sorted(pause_s for pause_s in pauses_s if pause_s > 0)
    recent = len(waits_s)
    return NewPods(most - recent) if recent < most else NewPods(0, waits_s[recent - most])


def _is_ending_before_a_restart(job: Present, pods: Mapping[str, Object]) -> bool:
    """Whether the whole job restarts and a pod from before is still there. A new process would join
    the old ones and end with them.
    """
    return job.spec.policy.restart_scope is RestartScope.JOB and any(
        name in pods and replicas.attempt_of(pods[name]) < job.history.attempt(name)
        for name, _, _ in replicas.names(job.observed.ref.name, job.spec)
    )


def _services_made_elsewhere(
    observed: Observed, pods: Mapping[str, Object], kept: Collection[str]
) -> set[ObjectRef]:
    """The Services that another controller made, and that stay. Such a Service selects only a pod
    of the same controller, so the plan replaces the Service together with the pod.

    Args: kept: the replicas that get no new pod
    """
    return {
        ref
        for ref, child in observed.children.items()
        if ref.type == SERVICES
        and ref.name in kept
        and objects.is_made_elsewhere(child)
        and (ref.name not in pods or objects.is_made_elsewhere(pods[ref.name]))
    }


def backoff_left_s(pod: Object, attempt: int, now: datetime) -> float:
    """Seconds until a failed pod may be replaced. A pod that still runs is replaced at once: all
    pods of its job restart.
    """
    if phase_of(pod) != "Failed":
        return 0.0
    wait_s = min(_RESTART_MAX_S, _RESTART_BASE_S * 2.0 ** min(attempt - 1, 32))
    return pause_left_s(pod["metadata"].get("creationTimestamp"), wait_s, now)


def ended_job_changes(observed: Observed, policy: CleanPods) -> tuple[Action, ...]:
    """The deletions of the pods that `policy` names, of the Services that no pod needs, and of all
    other children.
    """
    others = lifecycle.deletions(observed, besides=(PODS, SERVICES))
    return (*others, *lifecycle.clean_up(own_pods(observed), policy), *_services(observed, policy))


def _services(observed: Observed, policy: CleanPods) -> tuple[Action, ...]:
    """The deletions of Services that no pod needs. A pod that stays keeps its Service."""
    done = {
        pod["metadata"]["name"]
        for pod in own_pods(observed)
        if phase_of(pod) in ("Succeeded", "Failed")
    }
    kept = {CleanPods.ALL: frozenset[str](), CleanPods.RUNNING: done}.get(policy)
    if kept is None:
        return ()
    return tuple(
        Delete(ref, child["metadata"]["uid"])
        for ref, child in observed.children.items()
        if ref.type == SERVICES and ref.name not in kept and not is_being_deleted(child)
    )
