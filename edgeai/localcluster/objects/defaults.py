"""Defaults of built-in kinds. Pure; `strategy` applies the defaults before `validation`.

The module has only the defaults that the controllers, the kubelet and the clients need.
"""

import base64
import copy
from typing import Any

from edgeai.localcluster.objects.resources import (
    DEPLOYMENTS,
    PODS,
    SECRETS,
    SERVICES,
    Object,
    Resource,
)

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


def with_defaults(resource: Resource, object_: Object) -> Object:
    """A copy of an object with defaults. Values of a wrong type stay. `validation` reports them."""
    if resource is SECRETS:
        return _defaulted_secret(object_)
    spec = object_.get("spec")
    if not isinstance(spec, dict):
        return object_
    spec = copy.deepcopy(_SPEC_DEFAULTS.get(resource.group_resource, {})) | spec
    if resource is PODS:
        spec = _defaulted_pod_spec(spec)
    elif resource is SERVICES and isinstance(spec.get("ports"), list):
        spec["ports"] = [_defaulted_service_port(port) for port in spec["ports"]]
    elif resource is DEPLOYMENTS:
        spec = _defaulted_templated_spec(spec)
    return {**object_, "spec": spec}


def _defaulted_secret(object_: Object) -> Object:
    """A Secret with defaults. The write-only field stringData becomes a part of data, in base64."""
    secret: Object = {"type": "Opaque"} | object_
    texts = secret.pop("stringData", None)
    if isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values()):
        encoded = {k: base64.b64encode(text.encode()).decode() for k, text in texts.items()}
        secret["data"] = (secret.get("data") or {}) | encoded
    return secret


def _defaulted_templated_spec(spec: Object) -> Object:
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return spec
    return {**spec, "template": {**template, "spec": _defaulted_pod_spec(template["spec"])}}


def _defaulted_pod_spec(spec: Object) -> Object:
    spec = copy.deepcopy(_POD_DEFAULTS) | spec
    for field in ("initContainers", "containers"):
        if isinstance(spec.get(field), list):
            spec[field] = [_defaulted_container(container) for container in spec[field]]
    if isinstance(spec.get("volumes"), list):
        spec["volumes"] = [_defaulted_volume(volume) for volume in spec["volumes"]]
    return spec


def _defaulted_volume(volume: Any) -> Any:
    if not isinstance(volume, dict) or volume.keys() - {"name"}:
        return volume
    return {**volume, "emptyDir": {}}


def _defaulted_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image", ""))
    latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
    policy = {"imagePullPolicy": "Always" if latest else "IfNotPresent"}
    filled = copy.deepcopy(_CONTAINER_DEFAULTS) | policy | container
    if isinstance(filled.get("ports"), list):
        filled["ports"] = [_with({"protocol": "TCP"}, port) for port in filled["ports"]]
    return filled


def _defaulted_service_port(port: Any) -> Any:
    if not isinstance(port, dict):
        return port
    return {"protocol": "TCP", "targetPort": port.get("port")} | port


def _with(defaults: Object, item: Any) -> Any:
    return defaults | item if isinstance(item, dict) else item


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
