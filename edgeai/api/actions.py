"""What a person can do to a job: suspend, resume and scale it, and change how a new version of its
Model goes out. Each is one merge patch.

Pure. A patch holds for the object with the uid alone, because another one may have the name now; ""
stands for any uid.
"""

from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.definitions import Definition
from edgeai.api.resources import Object
from edgeai.api.status import count_of, mapping
from edgeai.api.training import MAX_REPLICAS
from edgeai.errors import EdgeAIError

ROLLOUT: Final = ("pause", "resume", "promote", "rollback")
"""What `roll` can do: hold the next wave, go on, begin it at once, or take the version back."""
_Path = tuple[str, ...]


class NotPossible(EdgeAIError):
    """The kind has no such action, or its value is wrong."""


def suspend(definition: Definition, uid: str) -> Object:
    """Raises: NotPossible"""
    fields = {field.path: field.on for field in definition.suspensions[:1]}
    return _patch(definition, uid, fields, "cannot be suspended; delete it instead")


def resume(definition: Definition, uid: str) -> Object:
    """Raises: NotPossible"""
    fields = {field.path: field.off for field in definition.suspensions}
    return _patch(definition, uid, fields, "cannot be resumed; it runs until it is deleted")


def scale(definition: Definition, uid: str, replicas: int) -> Object:
    """Raises: NotPossible"""
    if not 0 <= replicas <= MAX_REPLICAS:
        raise NotPossible(f"replicas: {replicas} is not a number from 0 to {MAX_REPLICAS}")
    path = _scaled_path(definition)
    fields = {path: replicas} if path else {}
    return _patch(definition, uid, fields, "cannot be scaled; change its spec")


def roll(action: str, object_: Object, uid: str) -> Object:
    """Change the rollout of a fleet. Args: action: of ROLLOUT. Raises: NotPossible"""
    spec, state = (mapping(object_.get(part)).get("rollout") for part in ("spec", "status"))
    version = mapping(mapping(state).get("version")).get("number")
    if not isinstance(spec, dict):
        raise NotPossible("the job has no spec.rollout, so each version goes out at once")
    fields: Object = {"paused": action == "pause"}
    if action in ("promote", "rollback"):
        if not isinstance(version, int):
            raise NotPossible("the job has no status.rollout yet: wait until its spec is accepted")
        phase = mapping(state).get("phase")
        if action == "promote" and phase in ("Complete", "RolledBack"):
            raise NotPossible(f"no wave waits: the rollout of version {version} is {phase}")
        if action == "rollback" and not mapping(state).get("previous"):
            raise NotPossible(f"there is no version before {version} to return to")
        if action == "rollback" and phase == "RolledBack":
            raise NotPossible(f"version {version} was taken back already")
        wave = 1 + count_of(mapping(state).get("wave"))
        promoted = {"promoted": {"version": version, "wave": wave}}
        fields = promoted if action == "promote" else {"rejected": version}
    return {**({"metadata": {"uid": uid}} if uid else {}), "spec": {"rollout": fields}}


def is_suspended(definition: Definition, object_: Object) -> bool:
    return any(_value(object_, field.path) == field.on for field in definition.suspensions)


def replicas_of(definition: Definition, object_: Object) -> int | None:
    """The number of workers that `scale` changes; None: the size of this job cannot be set."""
    path = _scaled_path(definition)
    replicas = _value(object_, path) if path else None
    return replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else None


def _patch(definition: Definition, uid: str, fields: Mapping[_Path, Any], problem: str) -> Object:
    if not fields:
        raise NotPossible(f"a {definition.name} {problem}")
    patch: Object = {"metadata": {"uid": uid}} if uid else {}
    for path, value in fields.items():
        part = patch
        for step in path[:-1]:
            part = part.setdefault(step, {})
        part[path[-1]] = value
    return patch


def _scaled_path(definition: Definition) -> _Path:
    scale = definition.scale
    return () if scale is None else tuple(scale.spec_replicas_path.removeprefix(".").split("."))


def _value(object_: Object, path: _Path) -> Any:
    value: Any = object_
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value
