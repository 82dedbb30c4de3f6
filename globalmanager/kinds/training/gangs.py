"""Gang scheduling: a PodGroup, by which a scheduler starts all pods of a job together or none.

The setting gangSchedulerName chooses the scheduler, as the flag of the Kubeflow operator does:
"volcano", or the name of a scheduler with the coscheduling plugin of scheduler-plugins. Source:
kubeflow/training-operator 1.9, pkg/controller.v1/control/podgroup_control.go.

The PodGroup has the name of its job and lives while the job runs.
"""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

import msgspec

from edgeai.api.objects import NOT_MANAGED
from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.api.status import mapping, mappings
from edgeai.api.training import SchedulingPolicy
from globalmanager.contract import Create, Event, Observed, Severity, UpdateRule, WorkerSettings
from globalmanager.kinds.shared import objects
from globalmanager.kinds.shared.quantities import amount_of
from globalmanager.kinds.training.framework import KubeflowJob, Replicas

VOLCANO: Final = "volcano"
OF_VOLCANO: Final = ResourceType("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
OF_PLUGINS: Final = ResourceType("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
# The operator writes its PodGroup in each reconcile. REPLACE writes only a difference.
OWNS: Final = {OF_VOLCANO: UpdateRule.REPLACE, OF_PLUGINS: UpdateRule.REPLACE}
# A job of the operator whose pod is lost would wait for a PodGroup that nobody sees.
FOLLOWS: Final = dict.fromkeys(OWNS, (NOT_MANAGED,))
"""The Kubeflow operator gives its PodGroups no label. A cluster has few of them."""
# A cluster may lack both definitions, so only the type of the chosen scheduler is watched.
NEED: Final[Mapping[ResourceType, Callable[[WorkerSettings], bool]]] = {
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
    type_ = next((type_ for type_, is_needed in NEED.items() if is_needed(settings)), None)
    return None if type_ is None else Gang(type_, name)


def pod_group(gang: Gang, observed: Observed, spec: KubeflowJob) -> Create:
    """The PodGroup. Without a schedulingPolicy all replicas start together, and of an elastic job
    those that the job needs. minResources is by default what these pods request together.
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
    return observed.children.get(ObjectRef(gang.type, observed.ref.namespace, observed.ref.name))


def phase_of(pod_group: Object) -> str:
    return str(mapping(pod_group.get("status")).get("phase", ""))


def admits_pods(observed: Observed) -> bool:
    """Whether pods may be made now. Volcano first admits the PodGroup to its queue. A cluster
    without the PodGroup's type starts no job: half of one could take another job's place.
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
    """The replicas as the scheduler reads them. A template's own schedulerName stays."""
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


# ---- what the pods of a gang request ------------------------------------------------------------
# As the scheduler of Kubernetes counts a pod. Sources: KEP-753 for init containers and sidecars,
# KEP-2837 for `spec.resources` of a pod; the sum over pods is that of the Kubeflow operator,
# pkg/controller.v1/common/util.go. A device of `spec.resourceClaims` has no quantity, so no sum
# contains it, unless a container requests it by the name of an extended resource.

_OVERCOMMITTED: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"
# The sum of 0.1 and 0.2 as a float would be 0.30000000000000004 in the PodGroup.
_Amounts = dict[str, Fraction]


def requests_of(replicas: Iterable[Replicas], count: int) -> dict[str, str]:
    """The requests of the first `count` pods: resource -> quantity. A quantity that nobody can read
    counts as nothing, because the API server refuses a pod with such a quantity anyway.

    Leading types come first. A container without a request for a resource requests its limit.
    """
    total: _Amounts = {}
    remaining = count
    for replica in replicas:
        number = min(remaining, replica.count)
        remaining -= number
        of_pod = _of_pod(replica.template["spec"])
        total = _sum(total, {name: number * amount for name, amount in of_pod.items()})
    return {name: _text(amount) for name, amount in sorted(total.items()) if amount}


def _of_pod(spec: Mapping[str, Any]) -> _Amounts:
    requested = _of_containers(spec)
    resources = mapping(spec.get("resources"))
    # As the API server fills in the requests of the pod: a limit counts for what no container
    # requests, and for huge pages, which a node never gives twice.
    overcommitted = {name: requested[name] for name in _OVERCOMMITTED if name in requested}
    limits, requests = (_amounts(resources.get(field)) for field in ("limits", "requests"))
    of_pod = limits | overcommitted | requests
    # `spec.resources` of a pod may name these alone.
    names = [name for name in of_pod if name in _OVERCOMMITTED or name.startswith(_HUGE_PAGES)]
    requested |= {name: of_pod[name] for name in names}
    return _sum(requested, _amounts(spec.get("overhead")))


def _of_containers(spec: Mapping[str, Any]) -> _Amounts:
    """What the containers need together, or an init container beside the sidecars before it."""
    sidecars: _Amounts = {}
    needs: list[_Amounts] = []
    for container in mappings(spec.get("initContainers")):
        need = _sum(sidecars, _of_container(container))
        needs.append(need)
        if container.get("restartPolicy") == "Always":
            sidecars = need
    needs.append(_sum(sidecars, *map(_of_container, mappings(spec.get("containers")))))
    names = {name for need in needs for name in need}
    return {name: max(need.get(name, Fraction(0)) for need in needs) for name in names}


def _of_container(container: Mapping[str, Any]) -> _Amounts:
    resources = mapping(container.get("resources"))
    # As the API server fills in the requests of a container.
    return {**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))}


def _amounts(quantities: Any) -> _Amounts:
    return {
        str(name): amount_of(quantity) or Fraction(0)
        for name, quantity in mapping(quantities).items()
    }


def _sum(*parts: _Amounts) -> _Amounts:
    total: _Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _text(amount: Fraction) -> str:
    """The quantity as a whole number, or in thousandths, rounded up."""
    if amount.denominator == 1:
        return str(amount.numerator)
    # A group that asks for less than its pods would be admitted and then not fit.
    return f"{-(-amount * 1000 // 1)}m"
