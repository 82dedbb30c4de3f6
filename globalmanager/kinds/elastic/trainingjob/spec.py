"""Reads and checks the spec of a TrainingJob."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from edgeai.api import templates
from edgeai.api.elastic import LAUNCHER, WORKER
from edgeai.api.resources import Object
from edgeai.api.specs import InvalidSpec, check_object_name, check_service_name, parse_spec, shown
from edgeai.api.status import mapping
from edgeai.api.templates import Template
from edgeai.api.training import MAX_REPLICAS, CleanPods, RestartPolicy
from edgeai.api.trainingjob import (
    SUSPENDED,
    AttachMode,
    JobRestartPolicy,
    TrainingJobSpec,
    WorkerForm,
)
from globalmanager.kinds.shared.constraints import (
    Constraint,
    JobForm,
    check,
    check_form,
    choice,
    number,
)

PATH: Final = "spec.etReplicaSpecs"
MAX_INDEX: Final = 9999
"""Of a worker. A worker that replaces another one has a new index."""
MAX_SLOTS: Final = 1000
# As in the et-operator.
DEFAULT_BACKOFF_LIMIT: Final = 6
# The scheduler looks at each pod that waits, so a full cluster must not have too many of them.
MAX_QUEUED: Final = 100
SSH_SECRET: Final = "arena.kubeflow.org/ssh-secret"
"""Annotation of a job: the name of the user's own Secret with the files of ~/.ssh."""
_GPU: Final = "nvidia.com/gpu"


class TrainingJob(msgspec.Struct, frozen=True, kw_only=True):
    """The decoded spec, with all defaults."""

    launcher: Template
    worker: Template
    worker_bytes: int
    """Size of the template of a worker as JSON."""
    replicas: int
    """The number of workers at the start."""
    min_replicas: int | None = None
    """The launcher starts when this number of workers is ready. None: all workers."""
    max_replicas: int | None = None
    max_queued: int | None = None
    """Workers of an elastic job that wait for room. None: the job is not elastic."""
    worker_policy: RestartPolicy
    attach_mode: AttachMode
    slots: int
    clean_pods: CleanPods
    restarts: int
    """How often the launcher may be started again. 0 for the policy Never."""
    start_fault: InvalidSpec | None = None
    """Why a job with these numbers cannot start. Later a scaler tells the fault (`scalers`)."""
    limits_fault: InvalidSpec | None = None
    """Why the limits cannot hold. A job that has started goes on with its number of workers."""
    ssh_secret: str = ""
    """The user's own Secret; "" when the job gets a Secret."""

    @property
    def is_elastic(self) -> bool:
        return self.max_queued is not None


def read(object_: Object) -> TrainingJob:
    """The accepted spec, with all defaults. Raises: InvalidSpec"""
    check_form(object_, CONSTRAINTS)
    spec = parse_spec(object_, TrainingJobSpec)
    job = JobForm(object_, spec, {})
    check(job, CONSTRAINTS)
    launcher, worker = spec.et_replica_specs.launcher, spec.et_replica_specs.worker
    # The et-operator crashes on a job without this number.
    replicas = 1 if worker.replicas is None else worker.replicas
    is_restarted = spec.restart_policy is JobRestartPolicy.ON_FAILURE
    limit = DEFAULT_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
    return TrainingJob(
        launcher=launcher.template,
        worker=worker.template,
        worker_bytes=len(msgspec.json.encode(worker.template)),
        replicas=replicas,
        min_replicas=worker.min_replicas,
        max_replicas=worker.max_replicas,
        # One pod that waits is enough for the scheduler to see that the job takes more room.
        max_queued=None if spec.elastic is None else spec.elastic.max_queued or 1,
        # The et-operator's default Never leaves the place of an evicted worker empty.
        worker_policy=worker.restart_policy or RestartPolicy.EXIT_CODE,
        # As in the et-operator, whose images have sshd.
        attach_mode=spec.launcher_attach_mode or AttachMode.SSH,
        slots=_slots(spec),
        # As in the et-operator: workers only wait for a launcher, and would hold their room.
        clean_pods=spec.clean_pod_policy or CleanPods.RUNNING,
        restarts=limit if is_restarted else 0,
        # Kept and not raised: a job that runs goes on with limits that an edit makes wrong.
        start_fault=_fault(job, _check_bounds, _check_elastic),
        limits_fault=_fault(job, _check_limits, _check_elastic),
        ssh_secret=str(_annotations(object_).get(SSH_SECRET, "")),
    )


def is_suspended(object_: Object) -> bool:
    """Whether the field or the annotation suspends the job. Total."""
    # A queue sets the field, and a person who holds the job by the annotation must not lose to it.
    return (
        mapping(object_.get("spec")).get("suspend") is True
        or _annotations(object_).get(SUSPENDED) == "true"
    )


def _annotations(object_: Object) -> dict[str, Any]:
    return dict(mapping(object_["metadata"].get("annotations")))


def _slots(spec: TrainingJobSpec) -> int:
    # As in the et-operator: the spec, else a slot for each GPU, else one.
    if spec.slots_per_worker is not None:
        return spec.slots_per_worker
    container = spec.et_replica_specs.worker.template["spec"]["containers"][0]
    limits = mapping(mapping(container.get("resources")).get("limits"))
    text = str(limits.get(_GPU, ""))
    # Kubernetes has only whole GPUs, and the API server refuses a pod with another limit.
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    return min(int(text), MAX_SLOTS) or 1 if is_number else 1


# ---- what must hold -----------------------------------------------------------------------------


def _check_name(job: JobForm) -> None:
    # A worker that replaces another one gets a higher index, and its Service needs a name, too.
    check_service_name(job.object["metadata"]["name"], f"-{WORKER}-{MAX_INDEX}")


def _check_templates(job: JobForm) -> None:
    for role in (LAUNCHER, WORKER):
        template = getattr(job.spec.et_replica_specs, role).template
        templates.check(template, f"{PATH}.{role}.template")


def _check_bounds(job: JobForm) -> None:
    if job.spec.elastic is not None:  # the room decides how many workers there are at the start
        return
    worker: WorkerForm = job.spec.et_replica_specs.worker
    low, high = worker.min_replicas, worker.max_replicas
    number = 1 if worker.replicas is None else worker.replicas
    if low is not None and low > number:
        problem = f"is {low}, above the number of workers at the start, {number}"
        raise InvalidSpec(f"{PATH}.worker.minReplicas", problem, "lower it, or raise replicas")
    if high is not None and high < number:
        problem = f"is {high}, below the number of workers at the start, {number}"
        raise InvalidSpec(f"{PATH}.worker.maxReplicas", problem, "raise it, or lower replicas")


def _check_limits(job: JobForm) -> None:
    worker: WorkerForm = job.spec.et_replica_specs.worker
    low, high = worker.min_replicas, worker.max_replicas
    if low is not None and high is not None and low > high:
        problem = f"is {low}, above maxReplicas, {high}"
        raise InvalidSpec(f"{PATH}.worker.minReplicas", problem, "lower it, or raise maxReplicas")


def _fault(job: JobForm, *checks: Callable[[JobForm], None]) -> InvalidSpec | None:
    try:
        for constraint in checks:
            constraint(job)
    except InvalidSpec as error:
        return error
    return None


def _check_elastic(job: JobForm) -> None:
    worker: WorkerForm = job.spec.et_replica_specs.worker
    low, high = worker.min_replicas, worker.max_replicas
    if job.spec.elastic is None:
        return
    # The first says when the launcher may start, the second how much room one job may take.
    if low is None or high is None:
        absent_field = "minReplicas" if low is None else "maxReplicas"
        problem = "is missing, but spec.elastic needs it"
        raise InvalidSpec(
            f"{PATH}.worker.{absent_field}", problem, "add it, or remove spec.elastic"
        )
    _check_limits(job)
    # Such a job would lose a worker with each preemption and never grow again.
    if worker.restart_policy is RestartPolicy.NEVER:
        problem = "is Never, but spec.elastic replaces workers that lose their room"
        remedy = "use ExitCode, or remove spec.elastic"
        raise InvalidSpec(f"{PATH}.worker.restartPolicy", problem, remedy)


def _check_ssh_secret(job: JobForm) -> None:
    name = _annotations(job.object).get(SSH_SECRET)
    if name is not None:
        check_object_name(str(name), f"metadata.annotations[{shown(SSH_SECRET)}]", "Secret")


CONSTRAINTS: Final = (
    Constraint(
        field="metadata.name",
        rule="a DNS label, short enough to begin the names of all Services",
        check=_check_name,
    ),
    Constraint(
        field='metadata.annotations["arena.kubeflow.org/ssh-secret"]',
        rule="the name of a Secret",
        check=_check_ssh_secret,
    ),
    Constraint(
        field=f"{PATH}.launcher.replicas",
        rule="1",
        schema={"minimum": 1, "maximum": 1},
    ),
    number(f"{PATH}.worker.replicas", 1, MAX_REPLICAS),
    number(f"{PATH}.worker.minReplicas", 1, MAX_REPLICAS),
    number(f"{PATH}.worker.maxReplicas", 1, MAX_REPLICAS),
    Constraint(
        field=f"{PATH}.worker",
        # No CEL rule: a later edit of `replicas` only makes a scaler, which tells the fault.
        rule="such that minReplicas <= replicas <= maxReplicas at the start of the job, without "
        "spec.elastic",
    ),
    Constraint(
        field=f"{PATH}.worker",
        rule="such that minReplicas <= maxReplicas",
        cel="!has(self.minReplicas) || !has(self.maxReplicas)"
        " || self.minReplicas <= self.maxReplicas",
    ),
    Constraint(
        field="spec.elastic",
        rule="beside minReplicas <= maxReplicas of the workers, and not with their restartPolicy "
        "Never",
        cel=(
            "!has(self.elastic) || (has(self.etReplicaSpecs.worker.minReplicas)"
            " && has(self.etReplicaSpecs.worker.maxReplicas)"
            " && (!has(self.etReplicaSpecs.worker.restartPolicy)"
            " || self.etReplicaSpecs.worker.restartPolicy != 'Never'))"
        ),
        cel_field="spec",
    ),
    number("spec.elastic.maxQueued", 1, MAX_QUEUED),
    choice(f"{PATH}.worker.restartPolicy", RestartPolicy),
    Constraint(
        field=PATH,
        rule="the templates of launcher and worker; every container has an image",
        check=_check_templates,
    ),
    choice("spec.launcherAttachMode", AttachMode),
    number("spec.slotsPerWorker", 1, MAX_SLOTS),
    choice("spec.cleanPodPolicy", CleanPods),
    choice("spec.restartPolicy", JobRestartPolicy),
    number("spec.backoffLimit", 0, 2**31 - 1),
)
"""What must hold for the spec of a TrainingJob."""
