"""Built-in objects: the defaults that others rely on, and the mistakes that would hurt.

Pure; used by `strategy`. This is no full validation of Kubernetes' own types: unknown fields are
kept, and only what the controllers and the kubelet of this package read is looked at.
"""

import base64
import copy
from typing import Any

from localcluster import errors
from localcluster.errors import FieldError
from localcluster.resources import (
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICASETS,
    SECRETS,
    SERVICES,
    STATEFULSETS,
    Object,
    Resource,
)

_WITH_TEMPLATE = (DEPLOYMENTS, REPLICASETS, DAEMONSETS, STATEFULSETS, JOBS)
_WITH_SELECTOR = (DEPLOYMENTS, REPLICASETS, DAEMONSETS, STATEFULSETS)
_POD_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
    "securityContext": {},
}
_CONTAINER_DEFAULTS: Object = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
_SPEC_DEFAULTS: dict[str, Object] = {
    DEPLOYMENTS.group_resource: {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        },
    },
    REPLICASETS.group_resource: {"replicas": 1},
    STATEFULSETS.group_resource: {"replicas": 1},
    JOBS.group_resource: {"parallelism": 1, "completions": 1, "backoffLimit": 6},
    SERVICES.group_resource: {"type": "ClusterIP", "sessionAffinity": "None"},
}


def with_defaults(resource: Resource, object_: Object) -> Object:
    """A copy with defaults; whatever has the wrong form is left for `check` to name."""
    if resource is SECRETS:
        return _secret(object_)
    spec = object_.get("spec")
    if not isinstance(spec, dict):
        return object_
    spec = copy.deepcopy(_SPEC_DEFAULTS.get(resource.group_resource, {})) | spec
    if resource is PODS:
        spec = _pod_spec(spec)
    elif resource is SERVICES:
        spec = _service_spec(spec)
    elif resource in _WITH_TEMPLATE:
        spec = _templated_spec(spec)
    return {**object_, "spec": spec}


def _secret(object_: Object) -> Object:
    """stringData is a convenience of writing: it is kept as data, in base64."""
    secret: Object = {"type": "Opaque"} | object_
    texts = secret.pop("stringData", None)
    if isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values()):
        encoded = {k: base64.b64encode(text.encode()).decode() for k, text in texts.items()}
        secret["data"] = (secret.get("data") or {}) | encoded
    return secret


def _templated_spec(spec: Object) -> Object:
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return spec
    return {**spec, "template": {**template, "spec": _pod_spec(template["spec"])}}


def _pod_spec(spec: Object) -> Object:
    spec = copy.deepcopy(_POD_DEFAULTS) | spec
    for field in ("initContainers", "containers"):
        if isinstance(spec.get(field), list):
            spec[field] = [_container(container) for container in spec[field]]
    return spec


def _container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image", ""))
    latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
    policy = {"imagePullPolicy": "Always" if latest else "IfNotPresent"}
    filled = copy.deepcopy(_CONTAINER_DEFAULTS) | policy | container
    if isinstance(filled.get("ports"), list):
        filled["ports"] = [_with({"protocol": "TCP"}, port) for port in filled["ports"]]
    return filled


def _service_spec(spec: Object) -> Object:
    if isinstance(spec.get("ports"), list):
        spec["ports"] = [_service_port(port) for port in spec["ports"]]
    return spec


def _service_port(port: Any) -> Any:
    if not isinstance(port, dict):
        return port
    return {"protocol": "TCP", "targetPort": port.get("port")} | port


def _with(defaults: Object, item: Any) -> Any:
    return defaults | item if isinstance(item, dict) else item


def check(resource: Resource, object_: Object) -> list[FieldError]:
    """What would make a built-in object useless."""
    if resource is PODS:
        return _check_pod_spec(object_.get("spec"), "spec")
    if resource is SERVICES:
        return _check_service(object_.get("spec"))
    if resource in _WITH_TEMPLATE:
        return _check_template(resource, object_.get("spec"))
    if resource is SECRETS:
        return _check_secret(object_.get("data") or {})
    return []


def _check_pod_spec(spec: Any, path: str) -> list[FieldError]:
    if not isinstance(spec, dict):
        return [errors.required(path)]
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        return [errors.required(f"{path}.containers")]
    faults = _check_containers(spec.get("initContainers") or [], f"{path}.initContainers")
    faults += _check_containers(containers, f"{path}.containers")
    policies = ("Always", "OnFailure", "Never")
    if spec.get("restartPolicy") not in policies:
        faults.append(
            errors.unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), policies)
        )
    return faults + _check_volumes(spec, path)


def _check_containers(containers: list[Any], path: str) -> list[FieldError]:
    faults, names = [], set()
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        if not isinstance(container, dict) or not container.get("name"):
            faults.append(errors.required(f"{where}.name"))
            continue
        if not container.get("image"):
            faults.append(errors.required(f"{where}.image"))
        if container["name"] in names:
            faults.append(errors.duplicate(f"{where}.name", container["name"]))
        names.add(container["name"])
    return faults


def _check_volumes(spec: Object, path: str) -> list[FieldError]:
    """Every mount needs its volume."""
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    return [
        FieldError(
            f"{path}.containers[{index}].volumeMounts[{mount_index}].name",
            "FieldValueNotFound",
            f"Not found: {errors.quoted(mount.get('name'))}",
        )
        for index, container in enumerate(spec["containers"])
        if isinstance(container, dict)
        for mount_index, mount in enumerate(container.get("volumeMounts") or [])
        if mount.get("name") not in volumes
    ]


def _check_service(spec: Any) -> list[FieldError]:
    if not isinstance(spec, dict):
        return [errors.required("spec")]
    faults = []
    ports = spec.get("ports") or []
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        faults.append(errors.required("spec.ports"))
    for index, port in enumerate(ports):
        number = port.get("port") if isinstance(port, dict) else None
        if not isinstance(number, int) or not 0 < number < 65536:
            why = "must be between 1 and 65535, inclusive"
            faults.append(errors.invalid(f"spec.ports[{index}].port", number, why))
        elif len(ports) > 1 and not port.get("name"):
            faults.append(errors.required(f"spec.ports[{index}].name"))
    return faults


def _check_template(resource: Resource, spec: Any) -> list[FieldError]:
    if not isinstance(spec, dict):
        return [errors.required("spec")]
    template = spec.get("template")
    if not isinstance(template, dict):
        return [errors.required("spec.template")]
    faults = _check_pod_spec(template.get("spec"), "spec.template.spec")
    if resource not in _WITH_SELECTOR:
        return faults
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    if not spec.get("selector"):
        return [errors.required("spec.selector"), *faults]
    labels = (template.get("metadata") or {}).get("labels") or {}
    if any(labels.get(name) != value for name, value in wanted.items()):
        why = "`selector` does not match template `labels`"
        faults.append(errors.invalid("spec.template.metadata.labels", labels, why))
    replicas = spec.get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        why = "must be an integer greater than or equal to 0"
        faults.append(errors.invalid("spec.replicas", replicas, why))
    return faults


def _check_secret(data: Any) -> list[FieldError]:
    if not isinstance(data, dict):
        return [errors.invalid("data", "…", "must be a map of names to base64")]
    return [
        FieldError(f"data[{name}]", "FieldValueInvalid", "Invalid value: must be base64")
        for name, value in data.items()
        if not _is_base64(value)
    ]


def _is_base64(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        base64.b64decode(value, validate=True)
    except ValueError:
        return False
    return True


def check_change(resource: Resource, current: Object, updated: Object) -> list[FieldError]:
    """What must not change once an object is there."""
    old, new = current.get("spec") or {}, updated.get("spec") or {}
    if resource in _WITH_SELECTOR and old.get("selector") != new.get("selector"):
        return [errors.invalid("spec.selector", new.get("selector"), "field is immutable")]
    if resource is PODS and _fixed(old) != _fixed(new | _binding(old)):
        why = "pod updates may not change fields other than `image` and an unset `nodeName`"
        return [errors.forbidden("spec", why)]
    if resource is SECRETS and current.get("type") != updated.get("type"):
        return [errors.invalid("type", updated.get("type"), "field is immutable")]
    return []


def _binding(old: Object) -> Object:
    """A pod is bound to a node once: count that as no change."""
    return {"nodeName": old.get("nodeName")} if not old.get("nodeName") else {}


def _fixed(spec: Object) -> Object:
    """What of a pod's spec never changes."""
    changeable = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations")
    fixed = {k: v for k, v in spec.items() if k not in changeable and v is not None}
    for field in ("initContainers", "containers"):
        if field in fixed:
            fixed[field] = [{**container, "image": ""} for container in fixed[field]]
    return fixed


def keep_allocations(resource: Resource, current: Object, updated: Object) -> None:
    """A Service keeps its address when a manifest that does not know it is applied again."""
    if resource is not SERVICES or not isinstance(updated.get("spec"), dict):
        return
    allocated = {
        field: current["spec"][field]
        for field in ("clusterIP", "clusterIPs")
        if field in current["spec"] and not updated["spec"].get(field)
    }
    updated["spec"] = {**updated["spec"], **allocated}
