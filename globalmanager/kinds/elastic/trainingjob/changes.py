"""The changes of a TrainingJob's children: while the job lives, and after it has ended.

`plan` decides in which of these states the job is.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from edgeai.api import pod_state
from edgeai.api.objects import is_being_deleted
from edgeai.api.resources import PODS, SECRETS, Object, ObjectRef, ref_of
from edgeai.api.status import mapping
from edgeai.api.training import CleanPods
from globalmanager.contract import Action, Create, Observed, Patch
from globalmanager.kinds.elastic.trainingjob import hosts, launcher, snapshot, workers
from globalmanager.kinds.elastic.trainingjob.hosts import HostList
from globalmanager.kinds.elastic.trainingjob.launcher import OWNS
from globalmanager.kinds.elastic.trainingjob.scalers import Scaling
from globalmanager.kinds.elastic.trainingjob.snapshot import ElasticSnapshot
from globalmanager.kinds.elastic.trainingjob.states import JobState
from globalmanager.kinds.elastic.trainingjob.table import Table, Worker, WorkerState
from globalmanager.kinds.shared import children, lifecycle
from globalmanager.kinds.shared.children import Stages
from globalmanager.kinds.shared.lifecycle import Timers
from globalmanager.kinds.shared.new_pods import backoff_left_s, new_pods

BEFORE_LAUNCHER: Final = (JobState.NEW, JobState.CREATED, JobState.WORKERS_CREATED)
"""The states in which the job has no list of hosts."""


def living_job_changes(
    job: ElasticSnapshot,
    state: JobState,
    scaled: Scaling,
    host_list: HostList,
    *,
    may_launch: bool,
) -> tuple[Stages, Timers]:
    """The changes towards the wanted workers and the launcher, and the wait until a further change.

    Args:
        state: the state of the job after this plan
        scaled: its table has the workers that the status names
        host_list: the list of hosts that the launcher gets
        may_launch: whether enough workers are ready for a launcher
    """
    observed, table = job.observed, scaled.table
    pod = snapshot.launcher_pod(observed)
    nudge = {hosts.NUDGE: hosts.hash_of(host_list.hosts, job.spec.slots)}
    new = [worker for worker in table.workers.values() if worker.needs_pod]
    # A job larger than the engine may hold gets no further pods; the condition Stalled says so.
    if workers.are_too_large(observed, job.spec, len(table.workers)):
        new = []
    # The pods come in portions: all pods of a large job at once would hold up other jobs.
    budget = new_pods([job.spec.worker_bytes], job.pods.values(), job.now)
    timers = Timers().add(budget.wait_s if new else None)
    desired = [
        *_services(job, table),
        *(_pod(job, worker, scaled.scale_out) for worker in new[: budget.most]),
    ]
    # The launcher comes last: its program looks up the workers and reads the list as it starts.
    if state not in BEFORE_LAUNCHER:
        desired += _launcher(job, host_list, nudge, may_launch=may_launch)
    refs = {ref_of(create.type, create.object) for create in desired}
    stages = children.reconcile(observed, desired, OWNS, exempt=_kept_children(job, table) - refs)
    if pod is None or not snapshot.is_worn(job, pod):
        annotations = _nudge(pod, nudge) if pod is not None else ()
        return children.new_pods_last((*stages, annotations), scaled.independent_actions), timers
    # The pod of the launcher's last attempt has the name that the next attempt needs.
    # Without the pause, a launcher that fails at once would use up its limit within seconds.
    wait_s = backoff_left_s(pod, job.restarts, job.now)
    if wait_s <= 0 and not is_being_deleted(pod):
        stages = ((lifecycle.deletion(pod),), *stages)
    return children.new_pods_last(stages, scaled.independent_actions), timers.add(wait_s)


def _launcher(
    job: ElasticSnapshot, host_list: HostList, nudge: Mapping[str, str], *, may_launch: bool
) -> Iterator[Create]:
    """The list of hosts, the rights of the launcher, and its pod when the launcher may start."""
    observed, spec = job.observed, job.spec
    yield hosts.config(observed, spec, host_list)
    yield from launcher.account(observed, spec, job.pods)
    # A missing pod may be on its way. A second launcher beside the first would train, too.
    is_absent = snapshot.launcher_pod(observed) is None and not snapshot.is_launcher_missing(job)
    if is_absent and may_launch:
        yield launcher.pod(observed, spec, job.restarts, nudge)


def _kept_children(job: ElasticSnapshot, table: Table) -> set[ObjectRef]:
    """The children that stay although this plan may not make them.

    A pod of a worker that has left the table is `children.reconcile`'s to delete.
    """
    namespace = job.observed.ref.namespace
    pods = {ObjectRef(PODS, namespace, name) for name in table.target}
    # Pods that run mount the key, also when an edit has made it superfluous.
    return {*pods, snapshot.launcher_ref(job.observed), _secret_ref(job.observed)}


def _services(job: ElasticSnapshot, table: Table) -> Iterator[Create]:
    observed = job.observed
    if workers.has_own_secret(job.spec) and _secret_ref(observed) not in observed.children:
        yield workers.ssh_secret(observed)
    yield from workers.services(observed, table.target)


def _pod(job: ElasticSnapshot, worker: Worker, scale_out: str) -> Create:
    # The label with the ScaleOut is the et-operator's: users select the new pods by it.
    is_added = worker.state in (WorkerState.RESERVED, WorkerState.HIDDEN)
    return workers.pod(job.observed, job.spec, worker.name, scale_out if is_added else "")


def _secret_ref(observed: Observed) -> ObjectRef:
    return ObjectRef(SECRETS, observed.ref.namespace, observed.ref.name)


def _nudge(pod: Object, nudge: Mapping[str, str]) -> tuple[Patch, ...]:
    """The change of the launcher's pod that makes the kubelet read the ConfigMap again."""
    annotations = mapping(pod["metadata"].get("annotations"))
    if nudge.items() <= annotations.items() or is_being_deleted(pod):
        return ()
    return (Patch(ref_of(PODS, pod), {"metadata": {"annotations": nudge}}),)


def ended_job_changes(observed: Observed, policy: CleanPods) -> tuple[Action, ...]:
    """The deletions of the workers that `policy` names, and of everything that no pod needs. None
    under the policy None. An ended launcher's pod stays: its log is the result of the job.
    """
    if policy is CleanPods.NONE:
        return ()
    pods = list(workers.present(observed).values())
    launcher_pod = snapshot.launcher_pod(observed)
    still_runs = launcher_pod is not None and pod_state.is_active(launcher_pod)
    return (
        # A launcher that counted as lost may run after all, and its job has ended.
        *(lifecycle.clean_up([launcher_pod]) if launcher_pod is not None and still_runs else ()),
        *lifecycle.clean_up(pods, policy),
        *lifecycle.deletions(observed, besides=(PODS,)),
    )
