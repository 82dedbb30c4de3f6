"""Gang scheduling: a PodGroup, by which a scheduler starts all pods of a job together or none.

The setting gangSchedulerName chooses the scheduler, as the flag of the Kubeflow operator does:
"volcano", or the name of a scheduler with the coscheduling plugin of scheduler-plugins. Source:
kubeflow/training-operator 1.9, pkg/controller.v1/control/podgroup_control.go.

The PodGroup has the name of its job and lives while the job runs.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from edgeai.api.objects import NOT_MANAGED
from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.api.status import mapping
from edgeai.api.training import SchedulingPolicy
from globalmanager.contract import Create, Event, Observed, Severity, UpdateRule, WorkerSettings
from globalmanager.kinds.shared import objects
from globalmanager.kinds.training.framework import KubeflowJob, Replicas
from globalmanager.kinds.training.requests import requests_of

VOLCANO: Final = "volcano"
OF_VOLCANO: Final = ResourceType("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
OF_PLUGINS: Final = ResourceType("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
# The operator writes its PodGroup in each reconcile. REPLACE writes only a difference (I12).
OWNS: Final = {OF_VOLCANO: UpdateRule.REPLACE, OF_PLUGINS: UpdateRule.REPLACE}
# A job of the operator whose pod is lost would wait for a PodGroup that nobody sees.
FOLLOWS: Final = dict.fromkeys(OWNS, (NOT_MANAGED,))
"""The Kubeflow operator gives its PodGroups no label. A cluster has few of them."""
# A cluster may lack both definitions, so only the type of the chosen scheduler is watched.
NEEDED: Final[Mapping[ResourceType, Callable[[WorkerSettings], bool]]] = {
    OF_VOLCANO: lambda settings: settings.gang_scheduler_name == VOLCANO,
    OF_PLUGINS: lambda settings: settings.gang_scheduler_name not in ("", VOLCANO),
}
"""Type -> whether the GlobalManager makes PodGroups of this type under its settings."""

_VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
_VOLCANO_TASK: Final = "volcano.sh/task-spec"
_PLUGINS_GROUP: Final = "scheduling.x-k8s.io/pod-group"
_ROLE: Final = "podgroup"


class Gang(NamedTuple):
    """The gang scheduler, and its kind of PodGroup."""

    type: ResourceType
    scheduler: str


def gang_of(settings: WorkerSettings) -> Gang | None:
    """None when the settings name no gang scheduler."""
    name = settings.gang_scheduler_name
    type_ = next((type_ for type_, is_needed in NEEDED.items() if is_needed(settings)), None)
    return None if type_ is None else Gang(type_, name)


def pod_group(gang: Gang, observed: Observed, spec: KubeflowJob) -> Create:
    """The PodGroup. Without a schedulingPolicy all replicas start together, and of an elastic job
    those that the job needs. Without minResources it has what the pods request that must start
    together.
    """
    policy = spec.policy.scheduling_policy or SchedulingPolicy()
    # A gang of all replicas would never start an elastic job in a full cluster.
    least = spec.least if policy.min_available is None else policy.min_available
    # By this sum a scheduler holds back a job that cannot start as a whole, as with the operator.
    requested = requests_of(spec.replicas, least) if policy.min_resources is None else None
    fields: dict[str, Any] = {
        "minMember": least,
        "minResources": policy.min_resources or requested or None,
    }
    if gang.type == OF_VOLCANO:
        # Volcano's own queue, as upstream.
        fields["queue"] = policy.queue or "default"
        fields["priorityClassName"] = policy.priority_class
    else:
        fields["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
    content = {"spec": {key: value for key, value in fields.items() if value is not None}}
    return objects.child(observed, gang.type, name=observed.ref.name, role=_ROLE, content=content)


def existing_group(gang: Gang, observed: Observed) -> Object | None:
    """The PodGroup of the job, as the API has it."""
    return observed.children.get(ObjectRef(gang.type, observed.ref.namespace, observed.ref.name))


def phase_of(pod_group: Object) -> str:
    return str(mapping(pod_group.get("status")).get("phase", ""))


def admits_pods(observed: Observed) -> bool:
    """Whether pods may be made now. Volcano first admits the PodGroup to its queue. A cluster
    without the type of the PodGroup starts no job, because half of a job could take the place that
    another job needs.
    """
    gang = gang_of(observed.settings)
    if gang is None:
        return True
    # The job waits here, and starts within seconds after the type is installed.
    if gang.type in observed.absent:
        return False
    group = existing_group(gang, observed)
    # The coscheduling plugin counts the pods themselves, so only Volcano has a phase to wait for.
    is_admitted = group is not None and phase_of(group) not in ("", "Pending")
    return is_admitted or gang.type != OF_VOLCANO


def with_gang(gang: Gang, job: str, replicas: Replicas) -> Replicas:
    """The replicas with what the scheduler reads from their pods. The template's own schedulerName
    stays.
    """
    template = replicas.template
    metadata = mapping(template.get("metadata"))
    annotations, labels = (
        dict(metadata.get("annotations") or {}),
        dict(metadata.get("labels") or {}),
    )
    # Volcano finds the group of a pod by annotations, scheduler-plugins by a label.
    if gang.type == OF_VOLCANO:
        annotations |= {_VOLCANO_GROUP: job, _VOLCANO_TASK: replicas.type.lower()}
    else:
        labels[_PLUGINS_GROUP] = job
    gang_template = {
        **template,
        "metadata": {**metadata, "annotations": annotations, "labels": labels},
        "spec": {**template["spec"], "schedulerName": _scheduler_of(replicas) or gang.scheduler},
    }
    return msgspec.structs.replace(replicas, template=gang_template)


def _scheduler_of(replicas: Replicas) -> str:
    return str(replicas.template["spec"].get("schedulerName") or "")


def scheduler_warning(observed: Observed, spec: KubeflowJob) -> tuple[Event, ...]:
    """A warning when a template names another scheduler, which may not know the PodGroup."""
    gang = gang_of(observed.settings)
    if gang is None:
        return ()
    # As upstream, the user's scheduler stays, and only a warning tells what it costs.
    others = {_scheduler_of(replicas) for replicas in spec.replicas} - {"", gang.scheduler}
    if not others:
        return ()
    message = (
        f"the template names the scheduler {min(others)}, and it stays; only {gang.scheduler} "
        "starts all pods of the job together"
    )
    # The reason is the operator's, with its spelling: tools look for it.
    return (Event(Severity.WARNING, "SettedPodTemplateSchedulerName", message),)
