"""The /scale subresource: makes an autoscaling/v1 Scale of an object, and applies a Scale. Pure."""

import copy
from typing import Any

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.resources import Object, Resource, ScalePaths

_SCALE = Resource(group="autoscaling", version="v1", plural="scales", kind="Scale")


def of(resource: Resource, object_: Object) -> Object:
    """The Scale object of `object_`: a few of its fields, such as replicas."""
    paths = resource.scale or ScalePaths()
    metadata = object_["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status = {
        "replicas": _read(object_, paths.status_replicas) or 0,
        "selector": _selector(_read(object_, paths.selector) if paths.selector else None),
    }
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in fields if name in metadata},
        "spec": {"replicas": _read(object_, paths.replicas) or 0},
        "status": {name: value for name, value in status.items() if value is not None},
    }


def applied(resource: Resource, object_: Object, scale: Any) -> Object:
    """A copy of the object that has the replicas and the resourceVersion of a Scale.

    Raises: errors.BadRequest for a malformed Scale; errors.Invalid for negative replicas
    """
    spec = scale.get("spec") if isinstance(scale, dict) else None
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise errors.BadRequest("Scale: spec.replicas must be an integer")
    if replicas < 0:
        fault = errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.Invalid(_SCALE, object_["metadata"]["name"], [fault])
    scaled = copy.deepcopy(object_)
    metadata = scale.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if version:
        scaled["metadata"]["resourceVersion"] = version
    *parents, last = (resource.scale or ScalePaths()).replicas.split(".")
    container = scaled
    for step in parents:
        container = container.setdefault(step, {})
    container[last] = replicas
    return scaled


def _read(object_: Object, path: str) -> Any:
    value: Any = object_
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _selector(value: Any) -> str | None:
    """The selector of an object as text. `value` is text or a LabelSelector.

    Returns: None if the object has no selector
    """
    if isinstance(value, dict):
        labels = value.get("matchLabels") or {}
        return ",".join(f"{name}={label}" for name, label in labels.items())
    return value if isinstance(value, str) else None
