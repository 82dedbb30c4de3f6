"""The changes of a training job's children: while the job runs, and after it has ended.

`plan` decides in which of these states the job is.
"""

from collections.abc import Collection, Mapping
from typing import Final

from edgeai.api.objects import is_being_deleted, is_made_elsewhere
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import AUTOSCALERS, PODS, SERVICES, Object, ObjectRef
from edgeai.api.training import CleanPods, RestartScope
from globalmanager.contract import Action, Create, Delete, Observed, UpdateRule
from globalmanager.kinds.shared import children, lifecycle
from globalmanager.kinds.shared.attempts import attempt_of
from globalmanager.kinds.shared.children import Stages
from globalmanager.kinds.shared.lifecycle import Timers, own_pods
from globalmanager.kinds.shared.new_pods import backoff_left_s, new_pods
from globalmanager.kinds.training import gangs, replicas, waiting
from globalmanager.kinds.training.framework import Replicas
from globalmanager.kinds.training.snapshot import Snapshot

OWNS: Final = {**gangs.OWNS, **replicas.OWNS}
"""Type of the children of all training kinds -> what a plan does with a child that differs."""
FOLLOWS: Final = {**gangs.FOLLOWS, **replicas.FOLLOWS}
"""Type -> label selectors of the children that the Kubeflow operators made."""
_RULES: Final = {AUTOSCALERS: UpdateRule.REPLACE, **OWNS}  # autoscalers of `companions`
_DISRUPTED_S: Final = 10.0
"""Least age of a pod that has lost its room and is made again."""


def living_job_changes(job: Snapshot) -> tuple[Stages, Timers]:
    """The changes towards one Service of each replica, one pod of each replica that has not
    finished, the PodGroup and the framework's own children, and the waits until further changes.
    """
    observed, spec, history, pods = job.observed, job.spec, job.history, job.pods
    deletions, timers = _replacements(job)
    absent = [entry for entry in job.members if entry[0] not in pods]
    # Upstream a finished replica without a pod trains again (kubeflow/training-operator#1186).
    absent = [entry for entry in absent if entry[0] not in history.finished]
    is_too_large = replicas.is_too_large(observed, spec)
    # The condition Stalled tells the user which template is too large.
    if is_too_large and not observed.children:
        return (), timers
    # Half a job would hold room in vain, and a pod that joins an earlier attempt ends with it.
    if is_too_large or not gangs.admits_pods(observed) or _is_ending_before_a_restart(job):
        absent = []
    # All pods of a large job at once would hold up other jobs.
    budget = new_pods((replica.template_bytes for replica in spec.replicas), pods.values(), job.now)
    timers = timers.add(budget.wait_s if absent else None)
    # Also a replica without a pod has its Service: the others look up its name as they start.
    desired = [
        *_companions(job),
        *(replicas.service(observed, spec, *m[1:], pods.get(m[0])) for m in job.members),
        *(_pod(job, *entry) for entry in absent[: budget.most]),
    ]
    # Neither superfluous nor to be made again: pods that exist, and replicas that have finished.
    stable = history.finished.union(name for name, _, _ in job.members if name in pods)
    exempt = {ObjectRef(PODS, observed.ref.namespace, name) for name in stable}
    exempt |= _services_made_elsewhere(observed, pods, stable)
    stages = children.reconcile(observed, desired, _RULES, exempt=exempt)
    if pods:
        return children.new_pods_last((deletions, *stages)), timers
    # A job that cannot have all its Services starts none of its pods.
    return tuple(stage for stage in stages if stage), timers


def _replacements(job: Snapshot) -> tuple[tuple[Delete, ...], Timers]:
    """Deletions of pods without room or of an earlier attempt, and the waits until more."""
    history, pods = job.history, job.pods
    members = [entry for entry in job.members if entry[0] in pods]
    # A pod that lost its room has not failed, so it counts for no limit and needs no new attempt.
    disrupted = {
        name: pods[name]
        for name, replica, _ in members
        if waiting.has_lost_room(job.observed, job.spec, replica.type, pods[name])
    }
    deletions, timers = lifecycle.replacement(disrupted.values(), job.now, after_s=_DISRUPTED_S)
    for name, _, _ in members:
        attempt = history.attempt(name)
        if name in disrupted or attempt_of(pods[name]) >= attempt:
            continue
        # A replica that fails at once would else be made again without a pause.
        wait_s = backoff_left_s(pods[name], attempt, job.now)
        timers = timers.add(wait_s)
        if wait_s <= 0 and not is_being_deleted(pods[name]):
            deletions = (*deletions, lifecycle.deletion(pods[name]))
    return deletions, timers


def _companions(job: Snapshot) -> list[Create]:
    """The PodGroup and the framework's own children, where the API server has their types."""
    gang = gangs.gang_of(job.observed.settings)
    groups = [] if gang is None else [gangs.pod_group(gang, job.observed, job.spec)]
    creates = [*groups, *job.spec.framework.companions(job.observed)]
    # The API refuses such a child with each plan, and the engine leaves out what follows a refusal.
    return [create for create in creates if create.type not in job.observed.absent]


def _pod(job: Snapshot, name: str, replica: Replicas, index: int) -> Create:
    gang = gangs.gang_of(job.observed.settings)
    if gang is not None:
        replica = gangs.with_gang(gang, job.observed.ref.name, replica)
    attempt = job.history.attempt(name)
    return replicas.pod(job.observed, job.spec, replica, index, attempt=attempt)


def _is_ending_before_a_restart(job: Snapshot) -> bool:
    """Whether the whole job restarts and has old pods, with which new ones would join and end."""
    return job.spec.policy.restart_scope is RestartScope.JOB and any(
        name in job.pods and attempt_of(job.pods[name]) < job.history.attempt(name)
        for name, _, _ in job.members
    )


def _services_made_elsewhere(
    observed: Observed, pods: Mapping[str, Object], stable: Collection[str]
) -> set[ObjectRef]:
    """The Services that another controller made, and that stay. Such a Service selects only a pod
    of the same controller, so the plan replaces the Service together with the pod.

    Args: stable: the replicas that get no new pod
    """
    return {
        ref
        for ref, child in observed.children.items()
        if ref.type == SERVICES
        and ref.name in stable
        and is_made_elsewhere(child)
        and (ref.name not in pods or is_made_elsewhere(pods[ref.name]))
    }


def ended_job_changes(observed: Observed, policy: CleanPods) -> tuple[Action, ...]:
    """Deletions of pods by `policy`, of Services that no pod needs, and all other children."""
    others = lifecycle.deletions(observed, besides=(PODS, SERVICES))
    return (*others, *lifecycle.clean_up(own_pods(observed), policy), *_services(observed, policy))


def _services(observed: Observed, policy: CleanPods) -> tuple[Action, ...]:
    """The deletions of Services that no pod needs. A pod that stays keeps its Service."""
    ended_pods = {
        pod["metadata"]["name"]
        for pod in own_pods(observed)
        if phase_of(pod) in ("Succeeded", "Failed")
    }
    needed_names = {CleanPods.ALL: frozenset[str](), CleanPods.RUNNING: ended_pods}.get(policy)
    if needed_names is None:
        return ()
    return tuple(
        Delete(ref, child["metadata"]["uid"])
        for ref, child in observed.children.items()
        if ref.type == SERVICES and ref.name not in needed_names and not is_being_deleted(child)
    )
