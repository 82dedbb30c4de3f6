"""What distinguishes one training framework, and one API version, from another: values.

The kinds tfjob and pytorchjob make a Framework for each API version, and their readers of specs
turn the rest of the differences into fields of KubeflowJob. `plan` and the other modules of this
folder get both with each job, so none of their rules asks for a kind or a version.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from edgeai.api.resources import Object
from edgeai.api.specs import InvalidSpec
from edgeai.api.status import mapping
from edgeai.api.training import CleanPods, ReplicaForm, RestartPolicy, RunPolicy
from globalmanager.contract import Create, Event, Observed

EnvVar = dict[str, Any]


class Replicas(msgspec.Struct, frozen=True, kw_only=True):
    """All replicas of one type, with the defaults filled in."""

    type: str
    """In the API's spelling: "Worker"."""
    count: int
    policy: RestartPolicy
    template: Mapping[str, Any]
    template_bytes: int
    """Size of the template as JSON."""


class Counts(msgspec.Struct, frozen=True):
    """The replicas of one type by their state."""

    desired: int
    active: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def unfinished(self) -> int:
        return self.desired - self.succeeded


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """The conventions of one kind in one API version."""

    kind: str
    """The beginning of reasons and messages: "TFJob"."""
    operator: str
    """Value of the label operator-name."""
    replicas_field: str
    """The field of the spec with the replicas: "spec.tfReplicaSpecs"."""
    types: tuple[str, ...]
    """All replica types, in the order in which the status counts them."""
    leaders: tuple[str, ...]
    """The types that lead a job. Their pod has the label job-role=master."""
    container: str
    """Name of the container that trains."""
    port_name: str
    port: int
    restart_policy: RestartPolicy
    """The default of a replica type without a policy."""
    clean_pods: CleanPods
    """The default of runPolicy.cleanPodPolicy."""
    statuses_field: str = "replicaStatuses"
    marks: Mapping[str, str] = {}
    """Status fields that stay the same for the whole life of a job."""
    environment: Callable[[Observed, str, int], list[EnvVar]]
    """(job, replica type, index) -> the framework's variables. Total for a valid job."""
    init_containers: Callable[[Observed, str, int], list[Object]] = lambda *_: []
    """(job, replica type, index) -> containers that run before the template's own."""
    fault: Callable[[Observed], InvalidSpec | None] = lambda _: None
    """What is wrong with a valid spec in this cluster, because of a setting."""
    companions: Callable[[Observed], list[Create]] = lambda _: []
    """(job) -> further children, which exist while the job runs."""
    warnings: Callable[[Observed], tuple[Event, ...]] = lambda _: ()
    """(job) -> events after an edit of the spec."""
    sets_every_container: bool
    """Whether all containers of a pod get the variables, or only `container`."""
    has_succeeded: "Callable[[KubeflowJob, Mapping[str, Counts], Collection[str]], bool]"
    """(spec, type -> counts, names of the finished replicas) -> whether the job has succeeded."""
    deciding: "Callable[[KubeflowJob], str]"
    """The type whose active replicas make the job Running."""


class Elastic(msgspec.Struct, frozen=True):
    """A job that runs with fewer replicas while the cluster has no room for all."""

    type: str
    """The type whose replicas may wait for room."""
    least: int
    """Least number of replicas of the type that must run."""


class KubeflowJob(msgspec.Struct, frozen=True, kw_only=True):
    """The decoded spec of a training job, with all defaults."""

    framework: Framework
    replicas: tuple[Replicas, ...]
    """In the order of `Framework.types`. Types that the spec leaves out are missing."""
    policy: RunPolicy
    spec: Any
    """The spec as the kind's own struct."""
    tolerant: frozenset[str] = frozenset()
    """Types whose failed replicas do not end the job."""
    elastic: Elastic | None = None
    """None: the job needs all its replicas."""
    start_fault: InvalidSpec | None = None
    """Why a job with these limits cannot start. A job that has started goes on as it is."""
    status_keys: Mapping[str, str] = {}
    """Type -> its key in the numbers of the status, where this is not the type itself."""
    not_elastic: str = ""
    """Why the job is not elastic although its user asks for this."""

    @property
    def least(self) -> int:
        """Replicas that must exist before the job starts: all, unless the job is elastic."""
        if self.elastic is None:
            return self.total
        # Only the elastic type may shrink. A training without its master does not start.
        elastic_replicas = self.of_type(self.elastic.type)
        return self.total - max(
            (elastic_replicas.count if elastic_replicas else 0) - self.elastic.least, 0
        )

    @property
    def total(self) -> int:
        return sum(replicas.count for replicas in self.replicas)

    @property
    def template_bytes(self) -> int:
        """Sum of the templates of all pods, as JSON."""
        return sum(replicas.count * replicas.template_bytes for replicas in self.replicas)

    def of_type(self, type_: str) -> Replicas | None:
        return next((replicas for replicas in self.replicas if replicas.type == type_), None)

    @property
    def clean_pods(self) -> CleanPods:
        # The versions of TFJob have different defaults, so the struct of the policy has none.
        return self.policy.clean_pod_policy or self.framework.clean_pods


def replicas_of(framework: Framework, forms: Mapping[str, ReplicaForm]) -> tuple[Replicas, ...]:
    """All replicas of the spec, in the framework's order, with defaults that no object gets."""
    return tuple(
        Replicas(
            type=type_,
            # The defaults of the operator, so a short manifest means the same.
            count=1 if forms[type_].replicas is None else forms[type_].replicas or 0,
            policy=forms[type_].restart_policy or framework.restart_policy,
            template=forms[type_].template,
            # Once for each spec, because each plan asks for the size of all pods together.
            template_bytes=len(msgspec.json.encode(forms[type_].template)),
        )
        for type_ in framework.types
        if type_ in forms
    )


def readable_policy(object_: Object) -> RunPolicy:
    """The fields of the run policy that can be read, for a job whose spec is wrong. Total."""
    readable = {}
    for key, value in mapping(mapping(object_.get("spec")).get("runPolicy")).items():
        # One wrong field must not hide the others: cleanup and time to live still hold.
        try:
            msgspec.convert({key: value}, RunPolicy)
        except msgspec.ValidationError:
            continue
        readable[key] = value
    return msgspec.convert(readable, RunPolicy)
