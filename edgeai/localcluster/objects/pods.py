"""Questions about pods: is a pod ready, has it ended, is it selected, has a quota room. Pure."""

from collections.abc import Iterable, Sequence

from edgeai.localcluster.objects.resources import Object


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


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


def quota_excess(quotas: Iterable[Object], pods: Sequence[Object]) -> str:
    """Why a namespace takes no further pod, in the words of Kubernetes' quota admission; "" when it
    takes one. A pod that has ended does not count.

    Args: quotas, pods: of the namespace
    """
    used = sum(not is_ended(pod) for pod in pods)
    for quota in quotas:
        limit = (quota.get("spec") or {}).get("hard", {}).get("pods")
        # A limit that is no plain number allows no pod.
        if limit is not None and used >= (int(limit) if str(limit).isdecimal() else 0):
            return (
                f"exceeded quota: {quota['metadata']['name']}, requested: pods=1, "
                f"used: pods={used}, limited: pods={limit}"
            )
    return ""
