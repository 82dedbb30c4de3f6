"""TrainingJob as the API holds it, and the reader of its spec.

Source of fields and defaults: AliyunContainerService/et-operator, pkg/api/v1alpha1.
"""

import enum
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from edgeai.api.resources import Object
from globalmanager.contract import InvalidSpec
from globalmanager.rules import templates
from globalmanager.rules.elastic.words import LAUNCHER, WORKER
from globalmanager.rules.lifecycle import CleanPods
from globalmanager.rules.specs import check_object_name, check_service_name, parse_spec, shown
from globalmanager.rules.status import LIST_BY_TYPE, Time, mapping
from globalmanager.rules.templates import Template
from globalmanager.rules.training.constraints import Constraint, Given, check, check_form
from globalmanager.rules.training.forms import (
    MAX_REPLICAS,
    Count,
    JobCondition,
    ReplicaStatus,
    RestartPolicy,
)

PATH: Final = "spec.etReplicaSpecs"
MAX_INDEX: Final = 9999
"""Of a worker. A worker that replaces another one has a new index."""
MAX_SLOTS: Final = 1000
DEFAULT_BACKOFF_LIMIT: Final = 6
MAX_QUEUED: Final = 100
SUSPENDED: Final = "job-supervisor.kube-ai.io/job-suspended"
"""Annotation of a job: "true" suspends the job, and any other value resumes the job."""
SSH_SECRET: Final = "arena.kubeflow.org/ssh-secret"
"""Annotation of a job: the name of the user's own Secret with the files of ~/.ssh."""
_GPU: Final = "nvidia.com/gpu"


class AttachMode(enum.StrEnum):
    """How the launcher starts processes on the workers."""

    SSH = "ssh"
    KUBEXEC = "kubexec"
    """By the `exec` of the Kubernetes API."""


class JobRestartPolicy(enum.StrEnum):
    """Whether a launcher that has failed runs again."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"


class LauncherForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    replicas: int | None = None
    """1, also when the field is missing."""
    template: Template
    restart_policy: RestartPolicy | None = None
    """Has no effect. Use spec.restartPolicy."""


class WorkerForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    replicas: Annotated[int, msgspec.Meta(ge=0, le=MAX_REPLICAS)] | None = None
    """The number of workers with which the job starts. 1 when the field is missing."""
    min_replicas: Count | None = None
    """The launcher starts when this number of workers runs. All workers when it is missing."""
    max_replicas: Count | None = None
    """A ScaleOut cannot exceed this number. No limit when it is missing."""
    template: Template
    restart_policy: RestartPolicy | None = None
    """Which workers another worker with a new index replaces. ExitCode when the field is missing:
    workers that are evicted, preempted, deleted, on a lost node, or ended by a signal."""


class ETReplicaSpecs(msgspec.Struct, frozen=True, kw_only=True):
    launcher: LauncherForm
    """The pod that starts processes on the workers."""
    worker: WorkerForm
    """The pods on which the processes run."""


class ElasticForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of workers follows the room in the cluster, from minReplicas to maxReplicas."""

    max_queued: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    """So many workers wait for room at the same time. 1 when the field is missing."""


class ElasticStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The workers of an elastic job."""

    ready: int = 0
    """Workers that run."""
    waiting: int = 0
    """Workers that wait for room, or do not start for another reason."""
    limit: int | None = None
    """The largest number of workers, as `kubectl scale` has set it. maxReplicas when missing."""
    reason: str = ""
    """Why the first waiting worker does not start, in one word: "Unschedulable"."""
    message: str = ""
    """The same in the words of the scheduler or of the node."""
    last_scale_time: Time | None = None
    """When the job last added a waiting worker, or took one back."""


class TrainingJobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    et_replica_specs: ETReplicaSpecs = msgspec.field(name="etReplicaSpecs")
    """The launcher and the workers."""
    elastic: ElasticForm | None = None
    """edgeai's own field. Missing: only ScaleOut, ScaleIn and `kubectl scale` change the number of
    workers."""
    launcher_attach_mode: AttachMode | None = None
    """ssh when the field is missing."""
    slots_per_worker: int | None = None
    """Processes on each worker. When the field is missing: the worker's limit of nvidia.com/gpu,
    or 1."""
    clean_pod_policy: CleanPods | None = None
    """Which workers are deleted at the end. Running when the field is missing."""
    restart_policy: JobRestartPolicy | None = None
    """Never when the field is missing."""
    backoff_limit: Count | None = None
    """How often the launcher is started again. 6 when the field is missing."""


class TrainingJobStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """edgeai's own are `nextWorkerIndex`, `replacedWorkers`, `observedReplicas`, `elastic` and
    `observedGeneration`.
    """

    phase: str = ""
    conditions: Annotated[list[JobCondition], LIST_BY_TYPE] = []
    replica_statuses: dict[str, ReplicaStatus] = {}
    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    observed_generation: int = 0
    restart_count: int = 0
    """How often the launcher was started again."""
    current_scaler: str = ""
    """The scaler that is being executed: "ScaleIn:<namespace>/<name>"."""
    target_workers: list[str] = []
    """The pods of the workers that the job wants, in the order of their index."""
    current_workers: list[str] = []
    """The workers in the host list of the launcher."""
    next_worker_index: int = 0
    """The index of the next new worker. No index is used twice, because Horovod never uses a host
    again on which a process has failed."""
    replaced_workers: int = 0
    """How many workers were lost or have failed, and were replaced."""
    observed_replicas: int = 0
    """The number of workers in the spec with which the plan has dealt. For a later edit the plan
    creates a scaler."""
    elastic: ElasticStatus | None = None
    """Only of a job with spec.elastic."""


class TrainingJob(msgspec.Struct, frozen=True, kw_only=True):
    """The decoded spec, with all defaults."""

    launcher: Template
    worker: Template
    worker_bytes: int
    """Size of the template of a worker as JSON."""
    replicas: int
    """The number of workers at the start."""
    min_replicas: int | None
    """The launcher starts when this number of workers is ready. None: all workers."""
    max_replicas: int | None
    max_queued: int | None
    """So many workers of an elastic job wait for room. None: the job is not elastic."""
    worker_policy: RestartPolicy
    attach_mode: AttachMode
    slots: int
    clean_pods: CleanPods
    restarts: int
    """How often the launcher may be started again. 0 for the policy Never."""
    is_suspended: bool
    start_fault: InvalidSpec | None
    """Why a job with these numbers of workers cannot start. Later `replicas` only asks for a
    scaler, which tells the fault (`scalers`)."""
    limits_fault: InvalidSpec | None
    """Why the limits cannot hold. A job that has started goes on with its number of workers."""
    ssh_secret: str
    """The user's own Secret; "" when the job gets a Secret."""

    @property
    def is_elastic(self) -> bool:
        return self.max_queued is not None


def read(object_: Object) -> TrainingJob:
    """The accepted spec, with all defaults. Raises: InvalidSpec"""
    check_form(object_, CONSTRAINTS)
    spec = parse_spec(object_, TrainingJobSpec)
    given = Given(object_, spec, {})
    check(given, CONSTRAINTS)
    launcher, worker = spec.et_replica_specs.launcher, spec.et_replica_specs.worker
    replicas = 1 if worker.replicas is None else worker.replicas
    is_restarted = spec.restart_policy is JobRestartPolicy.ON_FAILURE
    limit = DEFAULT_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
    marks = _annotations(object_)
    return TrainingJob(
        launcher=launcher.template,
        worker=worker.template,
        worker_bytes=len(msgspec.json.encode(worker.template)),
        replicas=replicas,
        min_replicas=worker.min_replicas,
        max_replicas=worker.max_replicas,
        max_queued=_max_queued(spec.elastic),
        worker_policy=worker.restart_policy or RestartPolicy.EXIT_CODE,
        attach_mode=spec.launcher_attach_mode or AttachMode.SSH,
        slots=_slots(spec),
        clean_pods=spec.clean_pod_policy or CleanPods.RUNNING,
        restarts=limit if is_restarted else 0,
        start_fault=_fault(given, _check_bounds, _check_elastic),
        limits_fault=_fault(given, _check_limits, _check_elastic),
        is_suspended=marks.get(SUSPENDED) == "true",
        ssh_secret=str(marks.get(SSH_SECRET, "")),
    )


def _annotations(object_: Object) -> dict[str, Any]:
    return dict(mapping(object_["metadata"].get("annotations")))


def _max_queued(elastic: ElasticForm | None) -> int | None:
    return None if elastic is None else elastic.max_queued or 1


def _slots(spec: TrainingJobSpec) -> int:
    if spec.slots_per_worker is not None:
        return spec.slots_per_worker
    container = spec.et_replica_specs.worker.template["spec"]["containers"][0]
    limits = mapping(mapping(container.get("resources")).get("limits"))
    text = str(limits.get(_GPU, ""))
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    return min(int(text), MAX_SLOTS) or 1 if is_number else 1


# ---- what must hold -----------------------------------------------------------------------------


def _check_name(given: Given) -> None:
    check_service_name(given.object["metadata"]["name"], f"-{WORKER}-{MAX_INDEX}")


def _check_templates(given: Given) -> None:
    for role in (LAUNCHER, WORKER):
        template = getattr(given.spec.et_replica_specs, role).template
        templates.check(template, f"{PATH}.{role}.template")


def _check_bounds(given: Given) -> None:
    if given.spec.elastic is not None:  # the room decides how many workers there are at the start
        return
    worker: WorkerForm = given.spec.et_replica_specs.worker
    low, high = worker.min_replicas, worker.max_replicas
    number = 1 if worker.replicas is None else worker.replicas
    if low is not None and low > number:
        problem = f"is {low}, above the number of workers at the start, {number}"
        raise InvalidSpec(f"{PATH}.worker.minReplicas", problem, "lower it, or raise replicas")
    if high is not None and high < number:
        problem = f"is {high}, below the number of workers at the start, {number}"
        raise InvalidSpec(f"{PATH}.worker.maxReplicas", problem, "raise it, or lower replicas")


def _check_limits(given: Given) -> None:
    worker: WorkerForm = given.spec.et_replica_specs.worker
    low, high = worker.min_replicas, worker.max_replicas
    if low is not None and high is not None and low > high:
        problem = f"is {low}, above maxReplicas, {high}"
        raise InvalidSpec(f"{PATH}.worker.minReplicas", problem, "lower it, or raise maxReplicas")


def _fault(given: Given, *checks: Callable[[Given], None]) -> InvalidSpec | None:
    """The first fault."""
    try:
        for each in checks:
            each(given)
    except InvalidSpec as error:
        return error
    return None


def _check_elastic(given: Given) -> None:
    worker: WorkerForm = given.spec.et_replica_specs.worker
    low, high = worker.min_replicas, worker.max_replicas
    if given.spec.elastic is None:
        return
    if low is None or high is None:
        missing = "minReplicas" if low is None else "maxReplicas"
        problem = "is missing, but spec.elastic needs it"
        raise InvalidSpec(f"{PATH}.worker.{missing}", problem, "add it, or remove spec.elastic")
    _check_limits(given)
    if worker.restart_policy is RestartPolicy.NEVER:
        problem = "is Never, but spec.elastic replaces workers that lose their room"
        remedy = "use ExitCode, or remove spec.elastic"
        raise InvalidSpec(f"{PATH}.worker.restartPolicy", problem, remedy)


def _check_ssh_secret(given: Given) -> None:
    name = _annotations(given.object).get(SSH_SECRET)
    if name is not None:
        check_object_name(str(name), f"metadata.annotations[{shown(SSH_SECRET)}]", "Secret")


def _one_of(values: type[enum.StrEnum]) -> str:
    names = [str(value) for value in values]
    return " or ".join([", ".join(names[:-1]), names[-1]])


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
    Constraint(
        field=f"{PATH}.worker.replicas",
        rule=f"a number from 1 to {MAX_REPLICAS}",
        schema={"minimum": 1, "maximum": MAX_REPLICAS},
    ),
    Constraint(
        field=f"{PATH}.worker.minReplicas",
        rule=f"a number from 1 to {MAX_REPLICAS}",
        schema={"minimum": 1, "maximum": MAX_REPLICAS},
    ),
    Constraint(
        field=f"{PATH}.worker.maxReplicas",
        rule=f"a number from 1 to {MAX_REPLICAS}",
        schema={"minimum": 1, "maximum": MAX_REPLICAS},
    ),
    Constraint(
        field=f"{PATH}.worker",
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
    Constraint(
        field="spec.elastic.maxQueued",
        rule=f"a number from 1 to {MAX_QUEUED}",
        schema={"minimum": 1, "maximum": MAX_QUEUED},
    ),
    Constraint(
        field=f"{PATH}.worker.restartPolicy",
        rule=_one_of(RestartPolicy),
        schema={"enum": sorted(RestartPolicy)},
    ),
    Constraint(
        field=PATH,
        rule="the templates of launcher and worker; every container has an image",
        check=_check_templates,
    ),
    Constraint(
        field="spec.launcherAttachMode",
        rule=_one_of(AttachMode),
        schema={"enum": sorted(AttachMode)},
    ),
    Constraint(
        field="spec.slotsPerWorker",
        rule=f"a number from 1 to {MAX_SLOTS}",
        schema={"minimum": 1, "maximum": MAX_SLOTS},
    ),
    Constraint(
        field="spec.cleanPodPolicy",
        rule=_one_of(CleanPods),
        schema={"enum": sorted(CleanPods)},
    ),
    Constraint(
        field="spec.restartPolicy",
        rule=_one_of(JobRestartPolicy),
        schema={"enum": sorted(JobRestartPolicy)},
    ),
    Constraint(
        field="spec.backoffLimit",
        rule=f"a number from 0 to {2**31 - 1}",
        schema={"minimum": 0, "maximum": 2**31 - 1},
    ),
)
"""What must hold for the spec of a TrainingJob."""
