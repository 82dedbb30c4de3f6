"""Reads and checks the spec of a TFJob."""

from collections.abc import Mapping
from typing import Final

import msgspec

from edgeai.api.resources import Object
from edgeai.api.specs import InvalidSpec, parse_spec
from edgeai.api.tfjob import SuccessPolicy, TFJobSpec
from edgeai.api.training import CleanPods, ReplicaForm
from globalmanager.kinds.shared.constraints import Constraint, JobForm, check, check_form
from globalmanager.kinds.training import validation
from globalmanager.kinds.training.framework import Framework, KubeflowJob, replicas_of
from globalmanager.kinds.training.tfjob import profiles
from globalmanager.kinds.training.tfjob.cluster import MAX_BYTES, WORKER

PATH = "spec.tfReplicaSpecs"


def read(object_: Object) -> KubeflowJob:
    """The accepted spec, with all defaults. Raises: InvalidSpec"""
    framework = profiles.framework_of(object_)
    check_form(object_, CONSTRAINTS)
    spec = parse_spec(object_, TFJobSpec)
    forms = _spelled(spec.tf_replica_specs, framework)
    check(JobForm(object_, spec, forms), CONSTRAINTS)
    policy = spec.run_policy
    # v1alpha2 has this field at the top of the spec, and the API server stores every job as v1.
    if policy.clean_pod_policy is None:
        policy = msgspec.structs.replace(policy, clean_pod_policy=spec.clean_pod_policy)
    replicas = replicas_of(framework, forms)
    return KubeflowJob(
        framework=framework,
        replicas=replicas,
        policy=policy,
        spec=spec,
        status_keys=profiles.status_keys(framework, spec.tf_replica_specs),
        # As upstream, the others train on without a dynamic worker that fails.
        tolerant=frozenset({WORKER} if spec.enable_dynamic_worker else ()),
    )


def _spelled(forms: Mapping[str, ReplicaForm], framework: Framework) -> dict[str, ReplicaForm]:
    """The replicas under the framework's own spelling of their types. Unknown types stay.

    Raises: InvalidSpec when two keys are one type
    """
    spellings = {type_.lower(): type_ for type_ in framework.types} | profiles.ALIASES
    spelled: dict[str, ReplicaForm] = {}
    for key, form in forms.items():
        # As upstream, in any case of letters. An unknown type stays, and the check names it.
        type_ = spellings.get(key.lower(), key)
        if type_ in spelled:
            raise InvalidSpec(PATH, f"has the replica type {type_} twice", "remove one of them")
        spelled[type_] = form
    return spelled


# ---- what must hold -----------------------------------------------------------------------------


def _check_leaders(job: JobForm) -> None:
    leading = [type_ for type_ in profiles.V1.leaders if type_ in job.replicas]
    # The leader alone decides about success, so there can be only one.
    if len(leading) > 1:
        problem = f"has {' and '.join(leading)}, which both lead the job"
        raise InvalidSpec(PATH, problem, "give one of them")
    for type_ in leading:
        count = job.replicas[type_].replicas
        if count is not None and count > 1:
            problem = f"is {count}, but only one replica can lead the job"
            raise InvalidSpec(f"{PATH}.{type_}.replicas", problem, "set it to 1")


CONSTRAINTS: Final = (
    *validation.replica_constraints(PATH, profiles.V1.types, profiles.V1.container),
    Constraint(
        field=PATH,
        rule="a map with each type once, in any upper and lower case; not both Chief and Master",
        cel="!('Chief' in self && 'Master' in self)",
        check=_check_leaders,
    ),
    Constraint(
        field=PATH,
        rule="a map in which Chief and Master have at most 1 replica",
        cel=(
            "['Chief', 'Master'].all(name, !(name in self) || !has(self[name].replicas)"
            " || self[name].replicas <= 1)"
        ),
    ),
    Constraint(
        field="spec.successPolicy",
        rule="empty or AllWorkers",
        schema={"enum": sorted(SuccessPolicy)},
    ),
    Constraint(
        field=PATH,
        rule=f"few enough replicas, with short enough names, for a TF_CONFIG of {MAX_BYTES} bytes",
        # `cluster.fault` checks it, because the domain of the cluster is part of the names
    ),
    *validation.OF_RUN_POLICY,
    Constraint(
        field="spec.cleanPodPolicy",
        rule="All, Running or None; counts where runPolicy.cleanPodPolicy is missing",
        schema={"enum": sorted(CleanPods)},
    ),
)
"""What must hold for the spec of a TFJob."""
