"""ResourceQuotas: the limit of the pods in a namespace, which is all that this cluster counts.

Pure; the store asks before it creates a pod.
"""

from collections.abc import Iterable, Sequence

from edgeai.localcluster.objects.pods import is_ended
from edgeai.localcluster.objects.resources import Object


def excess(quotas: Iterable[Object], pods: Sequence[Object]) -> str:
    """Why a namespace takes no further pod, in the words of Kubernetes' quota admission; "" when it
    takes one. A pod that has ended does not count.

    Args: quotas, pods: of the namespace
    """
    used = sum(not is_ended(pod) for pod in pods)
    for quota in quotas:
        limit = (quota.get("spec") or {}).get("hard", {}).get("pods")
        if limit is not None and used >= _number(limit):
            return (
                f"exceeded quota: {quota['metadata']['name']}, requested: pods=1, "
                f"used: pods={used}, limited: pods={limit}"
            )
    return ""


def _number(quantity: object) -> int:
    """A limit that is no plain number allows nothing."""
    text = str(quantity)
    return int(text) if text.isdecimal() else 0
