"""Defaults and validation of built-in kinds.

Pure. Fills and checks only the fields that this project needs, and keeps unknown fields.
"""

import base64
import copy
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.errors import FieldError
from edgeai.localcluster.objects.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    PODS,
    SECRETS,
    SERVICES,
    Object,
    Resource,
)
from edgeai.localcluster.objects.selectors import is_label_match

DEFAULT_GRACE_S = 30
_POD_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": DEFAULT_GRACE_S,
    "schedulerName": "default-scheduler",
    "securityContext": {},
}
_CONTAINER_DEFAULTS: Object = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
_SPEC_DEFAULTS: dict[str, Object] = {
    PODS.group_resource: _POD_DEFAULTS,
    DEPLOYMENTS.group_resource: {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        },
    },
    SERVICES.group_resource: {"type": "ClusterIP", "sessionAffinity": "None"},
}
_POLICIES = ("Always", "OnFailure", "Never")
_NO_SIDECARS = "the local cluster runs no native sidecars"
_MAX_DEADLINE_S = 2**31 - 1
_CONTAINER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_PORT_RULE = "must be between 1 and 65535, inclusive"


def with_defaults(resource: Resource, object_: Object) -> Object:
    """A copy of an object with defaults. Values of a wrong type stay. `check` reports them."""
    if resource is SECRETS:
        return _defaulted_secret(object_)
    spec = object_.get("spec")
    if not isinstance(spec, dict):
        return object_
    spec = copy.deepcopy(_SPEC_DEFAULTS.get(resource.group_resource, {})) | spec
    if resource is PODS:
        _fill_pod_spec(spec)
    elif resource is SERVICES:
        _fill(spec, "ports", lambda port: {"protocol": "TCP", "targetPort": port.get("port")})
    elif resource is DEPLOYMENTS:
        _fill_template(spec)
    return {**object_, "spec": spec}


def _defaulted_secret(object_: Object) -> Object:
    """A Secret with defaults. The write-only field stringData becomes a part of data, in base64."""
    secret: Object = {"type": "Opaque"} | object_
    texts = secret.pop("stringData", None)
    if isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values()):
        encoded = {k: base64.b64encode(text.encode()).decode() for k, text in texts.items()}
        secret["data"] = (secret.get("data") or {}) | encoded
    return secret


def _fill_template(spec: Object) -> None:
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        pod_spec = copy.deepcopy(_POD_DEFAULTS) | template["spec"]
        _fill_pod_spec(pod_spec)
        spec["template"] = {**template, "spec": pod_spec}


def _fill_pod_spec(spec: Object) -> None:
    for field in ("initContainers", "containers"):
        for container in _fill(spec, field, _container_defaults):
            _fill(container, "ports", lambda _: {"protocol": "TCP"})
    _fill(spec, "volumes", lambda volume: {} if volume.keys() - {"name"} else {"emptyDir": {}})


def _fill(owner: Object, field: str, defaults: Callable[[Object], Object]) -> list[Object]:
    """Add defaults to each map in the list `field` of `owner`. Returns: the maps"""
    if not isinstance(items := owner.get(field), list):
        return []
    owner[field] = [defaults(item) | item if isinstance(item, dict) else item for item in items]
    return [item for item in owner[field] if isinstance(item, dict)]


def _container_defaults(container: Object) -> Object:
    image = str(container.get("image", ""))
    latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
    policy = {"imagePullPolicy": "Always" if latest else "IfNotPresent"}
    return copy.deepcopy(_CONTAINER_DEFAULTS) | policy


def keep_allocations(resource: Resource, old: Object, updated: Object) -> None:
    """Keep a Service's address when a client applies a manifest without an address again."""
    if resource is not SERVICES or not isinstance(updated.get("spec"), dict):
        return
    allocated = {
        field: old["spec"][field]
        for field in ("clusterIP", "clusterIPs")
        if field in old["spec"] and not updated["spec"].get(field)
    }
    updated["spec"] = {**updated["spec"], **allocated}


def check(resource: Resource, object_: Object) -> list[FieldError]:
    """What is wrong with an object of a kind that is no custom resource.

    Raises: AttributeError, KeyError, TypeError or ValueError for a wrong type, or none
    """
    function = _CHECKS.get(resource.group_resource)
    return function(object_) if function else []


def check_change(resource: Resource, current: Object, updated: Object) -> list[FieldError]:
    old, new = current.get("spec") or {}, updated.get("spec") or {}
    if resource is DEPLOYMENTS and old.get("selector") != new.get("selector"):
        return [errors.invalid("spec.selector", new.get("selector"), "field is immutable")]
    if resource is PODS and not old.get("nodeName"):
        new = new | {"nodeName": old.get("nodeName")}  # an update may bind a pod
    if resource is PODS and _fixed(old) != _fixed(new):
        why = "pod updates may not change fields other than `image` and an unset `nodeName`"
        return [errors.forbidden("spec", why)]
    return []


def _fixed(spec: Object) -> Object:
    changeable = (
        *("activeDeadlineSeconds", "terminationGracePeriodSeconds"),
        *("schedulingGates", "tolerations"),
    )
    fixed = {k: v for k, v in spec.items() if k not in changeable and v is not None}
    for field in ("initContainers", "containers"):
        if field in fixed:
            fixed[field] = [{**container, "image": ""} for container in fixed[field]]
    return fixed


# Checks of pods


def _check_pod_spec(spec: Any, path: str) -> list[FieldError]:
    if not isinstance(spec, dict):
        return [errors.required(path)]
    for field in ("activeDeadlineSeconds", "terminationGracePeriodSeconds"):
        _require_type(spec, field, int, "an integer", path)
    for field in ("initContainers", "containers", "volumes"):
        _require_type(spec, field, list, "a list", path)
    if not spec.get("containers"):
        return [errors.required(f"{path}.containers")]
    volumes = spec.get("volumes") or []
    faults = [
        errors.required(f"{path}.volumes[{index}].hostPath.path")
        for index, volume in enumerate(volumes)
        if isinstance(volume.get("hostPath"), dict) and not volume["hostPath"].get("path")
    ]
    mountable = {volume.get("name") for volume in volumes}
    for field in ("initContainers", "containers"):
        faults += _check_containers(spec.get(field) or [], mountable, f"{path}.{field}")
    # A kubelet that takes a sidecar for an init container would wait for its end without end.
    faults += [
        errors.forbidden(f"{path}.initContainers[{index}].restartPolicy", _NO_SIDECARS)
        for index, container in enumerate(spec.get("initContainers") or [])
        if container.get("restartPolicy") == "Always"
    ]
    if spec.get("restartPolicy") not in _POLICIES:
        policy = spec.get("restartPolicy")
        faults.append(errors.unsupported(f"{path}.restartPolicy", policy, _POLICIES))
    deadline_s = spec.get("activeDeadlineSeconds")
    if deadline_s is not None and not 0 < deadline_s <= _MAX_DEADLINE_S:
        why = f"must be between 1 and {_MAX_DEADLINE_S}, inclusive"
        faults.append(errors.invalid(f"{path}.activeDeadlineSeconds", deadline_s, why))
    return faults


def _require_type(spec: Object, field: str, type_: type, noun: str, path: str) -> None:
    """Check the type of one field. Raises: TypeError"""
    value = spec.get(field)
    if value is not None and (not isinstance(value, type_) or isinstance(value, bool)):
        raise TypeError(f"{path}.{field} must be {noun}")


def _check_containers(containers: list[Object], mountable: set[Any], path: str) -> list[FieldError]:
    """Args: mountable: names of the pod's volumes"""
    faults: list[FieldError] = []
    names: set[Any] = set()
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        faults += _check_container_name(container.get("name"), names, f"{where}.name")
        names.add(container.get("name"))
        if not container.get("image"):
            faults.append(errors.required(f"{where}.image"))
        faults += _check_parts(container, mountable, where)
    return faults


def _check_container_name(name: Any, names: set[Any], path: str) -> list[FieldError]:
    if not name:
        return [errors.required(path)]
    if not _CONTAINER_NAME.fullmatch(name) or len(name) > 63:
        why = (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
            " start and end with an alphanumeric character, and be at most 63 long"
        )
        return [errors.invalid(path, name, why)]
    return [errors.duplicate(path, name)] if name in names else []


def _check_parts(container: Object, mountable: set[Any], path: str) -> list[FieldError]:
    """Check that mounts name volumes of the pod, ports have numbers, and variables names."""
    faults = [
        FieldError(
            f"{path}.volumeMounts[{index}].name",
            "FieldValueNotFound",
            f"Not found: {errors.quoted(mount.get('name'))}",
        )
        for index, mount in enumerate(container.get("volumeMounts") or [])
        if mount.get("name") not in mountable
    ]
    for field, key in (("ports", "containerPort"), ("env", "name")):
        faults += [
            errors.required(f"{path}.{field}[{index}].{key}")
            for index, part in enumerate(container.get(field) or [])
            if not part.get(key)
        ]
    return faults


# Checks of Deployments


def _check_deployment(spec: Any) -> list[FieldError]:
    if not isinstance(spec, dict):
        return [errors.required("spec")]
    if not isinstance(spec.get("template"), dict):
        return [errors.required("spec.template")]
    faults = _check_pod_spec(spec["template"].get("spec"), "spec.template.spec")
    _require_type(spec, "replicas", int, "an integer", "spec")
    if spec.get("replicas", 0) < 0:
        why = "must be greater than or equal to 0"
        faults.append(errors.invalid("spec.replicas", spec["replicas"], why))
    policy = (spec["template"].get("spec") or {}).get("restartPolicy")
    if policy in _POLICIES[1:]:
        path = "spec.template.spec.restartPolicy"
        faults.append(errors.unsupported(path, policy, _POLICIES[:1]))
    return faults + _check_selector(spec)


def _check_selector(spec: Object) -> list[FieldError]:
    faults = [] if spec.get("selector") else [errors.required("spec.selector")]
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not is_label_match(spec.get("selector"), labels):
        why = "`selector` does not match template `labels`"
        faults.append(errors.invalid("spec.template.metadata.labels", labels, why))
    return faults


# Checks of other kinds


def _check_service(spec: Any) -> list[FieldError]:
    if not isinstance(spec, dict):
        return [errors.required("spec")]
    _require_type(spec, "ports", list, "a list", "spec")
    ports = spec.get("ports") or []
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        return [errors.required("spec.ports")]
    faults = []
    for index, port in enumerate(ports):
        number = port.get("port")
        if not isinstance(number, int) or not 0 < number < 65536:
            faults.append(errors.invalid(f"spec.ports[{index}].port", number, _PORT_RULE))
        if len(ports) > 1 and not port.get("name"):
            faults.append(errors.required(f"spec.ports[{index}].name"))
    return faults


class _ConfigMap(msgspec.Struct, rename="camel"):
    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None  # base64


class _Secret(msgspec.Struct):
    data: dict[str, bytes] | None = None  # base64


def _check_data(type_: type[msgspec.Struct], object_: Object) -> list[FieldError]:
    """Check the data of a ConfigMap or Secret. Raises: ValueError for values of a wrong type"""
    msgspec.convert(object_, type_)
    why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
    return [
        errors.invalid(f"{field}[{key}]", key, why)
        for field in ("data", "binaryData")
        for key in object_.get(field) or {}
        if not _KEY.fullmatch(key)
    ]


_CHECKS: Mapping[str, Callable[[Object], list[FieldError]]] = {
    PODS.group_resource: lambda pod: _check_pod_spec(pod.get("spec"), "spec"),
    SERVICES.group_resource: lambda service: _check_service(service.get("spec")),
    CONFIGMAPS.group_resource: partial(_check_data, _ConfigMap),
    SECRETS.group_resource: partial(_check_data, _Secret),
    DEPLOYMENTS.group_resource: lambda deployment: _check_deployment(deployment.get("spec")),
}
