"""TFJob as the API holds it, and the reader of its spec.

Source of fields and defaults: kubeflow/training-operator 1.9,
pkg/apis/kubeflow.org/v1/tensorflow_types.go, and for v1alpha2 the design of the TF operator.
"""

import enum
from collections.abc import Mapping

import msgspec

from globalmanager.contract import InvalidSpec, Object
from globalmanager.kinds.tfjob import profiles
from globalmanager.kinds.tfjob.cluster import WORKER
from globalmanager.rules.specs import parse_spec
from globalmanager.rules.training import defaults, validation
from globalmanager.rules.training.forms import (
    ReplicaForm,
    ReplicaStatus,
    RunPolicy,
    TrainingStatus,
)
from globalmanager.rules.training.framework import Framework, TrainingJob

PATH = "spec.tfReplicaSpecs"


class SuccessPolicy(enum.StrEnum):
    """When a job without a chief has succeeded."""

    DEFAULT = ""
    """Worker 0 has succeeded, or all workers have."""
    ALL_WORKERS = "AllWorkers"


class TFJobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    run_policy: RunPolicy = RunPolicy()
    success_policy: SuccessPolicy | None = None
    tf_replica_specs: dict[str, ReplicaForm] = msgspec.field(name="tfReplicaSpecs")
    """PS, Worker, Chief, Master and Evaluator, in any upper and lower case. v1alpha2 calls the
    evaluator Eval."""
    enable_dynamic_worker: bool = False
    """The number of workers may change while the job runs."""


class TFJobStatus(TrainingStatus, frozen=True, kw_only=True, rename="camel"):
    replica_statuses: dict[str, ReplicaStatus] = {}
    tf_replica_statuses: dict[str, ReplicaStatus] = msgspec.field(
        name="tfReplicaStatuses", default_factory=dict
    )
    """The name of `replicaStatuses` in v1alpha2."""
    profile: str = ""
    """The conventions that hold for this job: v1 or v1alpha2."""


def read(object_: Object) -> TrainingJob:
    """The accepted spec, with all defaults. Raises: InvalidSpec"""
    framework = profiles.of(object_)
    spec = parse_spec(object_, TFJobSpec)
    given = _spelled(spec.tf_replica_specs, framework)
    validation.check_types(given, framework.types, PATH)
    validation.check_templates(given, framework.container, PATH)
    validation.check_single(given, framework.leaders, PATH)
    validation.check_policy(spec.run_policy)
    replicas = defaults.replicas_of(framework, given)
    validation.check_name(object_, {each.type: each.count for each in replicas})
    return TrainingJob(
        framework=framework,
        replicas=replicas,
        policy=spec.run_policy,
        spec=spec,
        tolerant=frozenset({WORKER} if spec.enable_dynamic_worker else ()),
    )


def _spelled(given: Mapping[str, ReplicaForm], framework: Framework) -> dict[str, ReplicaForm]:
    """The replicas under the framework's own spelling of their types. Unknown types stay.

    Raises: InvalidSpec when two keys are one type
    """
    known = {type_.lower(): type_ for type_ in framework.types} | profiles.ALIASES
    found: dict[str, ReplicaForm] = {}
    for key, form in given.items():
        type_ = known.get(key.lower(), key)
        if type_ in found:
            raise InvalidSpec(PATH, f"has the replica type {type_} twice", "remove one of them")
        found[type_] = form
    return found
