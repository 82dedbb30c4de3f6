"""Fills in what the spec of a training job leaves out. Nothing of it is written into the object."""

from collections.abc import Mapping

import msgspec

from edgeai.api.resources import Object
from edgeai.api.status import mapping
from edgeai.api.training import ReplicaForm, RunPolicy
from globalmanager.kinds.training.framework import Framework, Replicas


def replicas_of(framework: Framework, forms: Mapping[str, ReplicaForm]) -> tuple[Replicas, ...]:
    """The replicas of all types that the spec has, in the framework's order."""
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
