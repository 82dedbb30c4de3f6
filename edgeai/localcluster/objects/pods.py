"""Predicates of a pod: is the pod ready, has the pod ended, does a Service select the pod.

Pure; the controllers, the kubelet and the service proxy use this module.
"""

from edgeai.localcluster.objects.resources import Object


def is_ready(pod: Object) -> bool:
    """Whether the pod's condition Ready is True."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_ended(pod: Object) -> bool:
    """Whether the pod has ended, so that none of its containers will run again."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_selected(pod: Object, service: Object) -> bool:
    """Whether a Service's selector matches a pod. A Service without selector selects no pod."""
    selector = service["spec"].get("selector") or {}
    if not selector or service["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in selector.items())
