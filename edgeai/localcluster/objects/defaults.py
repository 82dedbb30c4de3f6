"""Defaults of built-in kinds. Pure; `strategy` applies the defaults before `validation`.

The module has only the defaults that the controllers, the kubelet and the clients need.
"""

import base64
import copy
from collections.abc import Callable

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


def with_defaults(resource: Resource, object_: Object) -> Object:
    """A copy of an object with defaults. Values of a wrong type stay. `validation` reports them."""
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
