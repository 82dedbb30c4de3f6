"""Completes a pod template that a user gave: environment, data, labels, node, tolerations.

The user's template wins. When the template has an environment variable or volume of the same name,
or a mount of the same path, the user's item replaces edgeai's item. The user's item then stands in
the place of edgeai's, so later variables can refer to it. All containers get the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from edgeai.api.resources import Object
from globalmanager.contract import Observed, WorkerSettings
from globalmanager.kinds.shared import objects, storage

EnvVar = dict[str, Any]

WORKER_SECRET: Final = "WORKER_SECRET"

_OMITTED_IF_EMPTY: Final = ("volumes", "initContainers", "nodeName", "tolerations")
_NO_EXECUTE: Final = "NoExecute"
# The LocalController has the same tolerations (deploy/chart). An edge node is often
# out of contact. Without tolerations Kubernetes would evict the pods of such a node after 300 s.
# Then a healthy worker would be killed when its node comes back.
_EDGE_TOLERATIONS: Final = (
    {"key": "node-role.kubernetes.io/edge", "operator": "Exists"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": _NO_EXECUTE},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": _NO_EXECUTE},
)


def literal(name: str, value: str) -> EnvVar:
    return {"name": name, "value": value}


def field(name: str, path: str) -> EnvVar:
    """Environment variable with the value of a pod's field, for example "status.hostIP"."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def from_secret(name: str, secret: str, key: str) -> EnvVar:
    """Environment variable with the value of a key of a Secret."""
    # A reference: the ClusterRole `view` reads Deployments and pods, but no Secrets.
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def worker_api(settings: WorkerSettings, secret: str, key: str) -> tuple[EnvVar, EnvVar, EnvVar]:
    """HOST_IP, WORKER_SECRET and LC_SERVER, which is the URL of the worker API on the pod's node.
    LC_SERVER refers to the other two, so they come first.

    Args: secret, key: name and key of the Secret that has the worker's secret
    """
    # The secret is in the path, because Sedna's library takes the URL as it is and sends no header
    # of edgeai. HOST_IP is known only when Kubernetes has bound the pod to its node.
    base = f"http://$(HOST_IP):{settings.worker_api_port}/w/$({WORKER_SECRET})"
    return (
        field("HOST_IP", "status.hostIP"),
        from_secret(WORKER_SECRET, secret, key),
        literal("LC_SERVER", base),
    )


def build(
    observed: Observed,
    template: Object,
    *,
    role: str,
    env: Sequence[EnvVar] = (),
    data: storage.Placement = storage.Placement(),  # noqa: B008 - frozen
    labels: Mapping[str, str] | None = None,
    node: str = "",
    restart_policy: str = "",
    is_edge: bool = False,
) -> Object:
    """The user's pod template with everything that the job adds.

    Args:
        template: pod template with at least one container; the function does not change it in place
        labels: labels in addition to the labels of every pod of the job
        node: the node of every pod; "" keeps the node of the template
        restart_policy: of the containers; "" keeps the policy of the template
        is_edge: True when the pods report to the LocalController of their node. When the node is
            fixed, Kubernetes does not evict the pods while the node is out of contact
    """
    place = node or template["spec"].get("nodeName")
    tolerations = template["spec"].get("tolerations") or []
    spec = {
        **template["spec"],
        "containers": [
            _container(container, env, data) for container in template["spec"]["containers"]
        ],
        **({"restartPolicy": restart_policy} if restart_policy else {}),
        "volumes": _merged(data.volumes, template["spec"].get("volumes"), "name"),
        "initContainers": _merged(
            data.init_containers, template["spec"].get("initContainers"), "name"
        ),
        "nodeName": place,
        # An evicted pod starts on another node, but one with a fixed node has no other place.
        "tolerations": with_edge_tolerations(tolerations) if is_edge and place else tolerations,
    }
    pod_spec = {key: value for key, value in spec.items() if value or key not in _OMITTED_IF_EMPTY}
    # The job's labels win over the user's: the Service and the GlobalManager find the pod by them.
    metadata = template.get("metadata") or {}
    marks = {**objects.job_labels(observed, role), **(labels or {})}
    annotations = metadata.get("annotations")
    return {
        "metadata": {
            "labels": {**(metadata.get("labels") or {}), **marks},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": pod_spec,
    }


def with_edge_tolerations(tolerations: list[Object]) -> list[Object]:
    """edgeai's tolerations for pods on edge nodes, then the user's. A user's toleration replaces
    edgeai's of the same key, and one without a key all of them: it tolerates every key.
    """
    return _added(_EDGE_TOLERATIONS, tolerations)


def with_outage_tolerations(tolerations: list[Object]) -> list[Object]:
    """As `with_edge_tolerations`, but still kept away by a taint of edge nodes."""
    return _added(_EDGE_TOLERATIONS[1:], tolerations)


def _added(defaults: Iterable[Object], tolerations: list[Object]) -> list[Object]:
    keys = {toleration.get("key") or "" for toleration in tolerations}
    return [*(default for default in defaults if not keys & {"", default["key"]}), *tolerations]


def _container(container: Object, env: Sequence[EnvVar], data: storage.Placement) -> Object:
    variables = _merged((*env, *data.env), container.get("env"), "name")
    mounts = _merged(data.mounts, container.get("volumeMounts"), "mountPath")
    return {**container, "env": variables, **({"volumeMounts": mounts} if mounts else {})}


def _merged(
    defaults: Iterable[Object], user_items: Iterable[Object] | None, key: str
) -> list[Object]:
    """edgeai's items and then the user's, of which one takes the place of that with its key."""
    items = {item[key]: item for item in user_items or ()}
    merged = [items.pop(item[key], item) for item in defaults]
    return merged + list(items.values())
