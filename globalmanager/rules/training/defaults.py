"""Fills in what the spec of a training job leaves out. Nothing of it is written into the object."""

from collections.abc import Mapping

from globalmanager.rules.training.forms import ReplicaForm, Replicas
from globalmanager.rules.training.framework import Framework


def replicas_of(framework: Framework, given: Mapping[str, ReplicaForm]) -> tuple[Replicas, ...]:
    """The replicas of all types that the spec has, in the framework's order."""
    return tuple(
        Replicas(
            type=type_,
            count=1 if given[type_].replicas is None else given[type_].replicas or 0,
            policy=given[type_].restart_policy or framework.restart_policy,
            template=given[type_].template,
        )
        for type_ in framework.types
        if type_ in given
    )
