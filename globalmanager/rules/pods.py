"""Completes a pod template that a user gave: environment, data, labels, node, tolerations.

Called by `worker_form` and by the kinds whose users give whole templates.

What a template sets explicitly wins: an environment variable, volume or mount of the same name
(or mount path) stays the user's, in the place where ours would stand, so that `$(NAME)` in what
follows still sees it. All containers of a pod get the same environment and mounts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from globalmanager.contract import Object, Observed, WorkerSettings
from globalmanager.rules import objects, storage

EnvVar = dict[str, Any]

_OMITTED_IF_EMPTY: Final = ("volumes", "initContainers", "nodeName", "tolerations")
_NO_EXECUTE: Final = "NoExecute"
# The same as those of the LocalController (deploy/base/localcontroller). An edge node is often out
# of contact. Without tolerations Kubernetes would evict its pods after 300 s, and a healthy worker
# would be killed as soon as its node is back.
_EDGE_TOLERATIONS: Final = (
    {"key": "node-role.kubernetes.io/edge", "operator": "Exists"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": _NO_EXECUTE},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": _NO_EXECUTE},
)


def literal(name: str, value: str) -> EnvVar:
    return {"name": name, "value": value}


def field(name: str, path: str) -> EnvVar:
    """Environment variable with a field of the pod, e.g. "status.hostIP"."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def worker_api(settings: WorkerSettings, secret: str) -> tuple[EnvVar, EnvVar]:
    """HOST_IP and LC_SERVER: the URL of the worker API on the pod's node. LC_SERVER refers to
    HOST_IP, so HOST_IP comes first.
    """
    base = f"http://$(HOST_IP):{settings.worker_api_port}/w/{secret}"
    return field("HOST_IP", "status.hostIP"), literal("LC_SERVER", base)


def build(
    observed: Observed,
    given: Object,
    *,
    role: str,
    env: Sequence[EnvVar] = (),
    data: storage.Placement = storage.Placement(),  # noqa: B008 - frozen
    labels: Mapping[str, str] | None = None,
    node: str = "",
    restart_policy: str = "",
    is_edge: bool = False,
) -> Object:
    """The pod template with what the job adds.

    Args:
        given: pod template with at least one container; nothing in it is changed in place
        labels: more labels than those of every pod of the job
        node: where every pod is; "" leaves what the template says
        restart_policy: of the containers; "" leaves what the template says
        is_edge: the pods report to the LocalController of their node; where the node is fixed, they
            stay there while it is out of contact
    """
    place = node or given["spec"].get("nodeName")
    tolerations = given["spec"].get("tolerations") or []
    spec = {
        **given["spec"],
        "containers": [
            _container(container, env, data) for container in given["spec"]["containers"]
        ],
        **({"restartPolicy": restart_policy} if restart_policy else {}),
        "volumes": _merged(data.volumes, given["spec"].get("volumes"), "name"),
        "initContainers": _merged(
            data.init_containers, given["spec"].get("initContainers"), "name"
        ),
        "nodeName": place,
        "tolerations": _tolerations(tolerations) if is_edge and place else tolerations,
    }
    kept = {key: value for key, value in spec.items() if value or key not in _OMITTED_IF_EMPTY}
    metadata = given.get("metadata") or {}
    marks = {**objects.job_labels(observed, role), **(labels or {})}
    annotations = metadata.get("annotations")
    return {
        "metadata": {
            "labels": {**(metadata.get("labels") or {}), **marks},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": kept,
    }


def _tolerations(theirs: list[Object]) -> list[Object]:
    """Our tolerations, then the user's. The user's toleration of the same key replaces ours, and
    one without a key replaces all of ours, because it tolerates every key.
    """
    keys = {each.get("key") or "" for each in theirs}
    return [*(one for one in _EDGE_TOLERATIONS if not keys & {"", one["key"]}), *theirs]


def _container(container: Object, env: Sequence[EnvVar], data: storage.Placement) -> Object:
    variables = _merged((*env, *data.env), container.get("env"), "name")
    mounts = _merged(data.mounts, container.get("volumeMounts"), "mountPath")
    return {**container, "env": variables, **({"volumeMounts": mounts} if mounts else {})}


def _merged(ours: Iterable[Object], theirs: Iterable[Object] | None, key: str) -> list[Object]:
    """Our items, then the user's. A user's item with the same key takes the place of ours."""
    given = {item[key]: item for item in theirs or ()}
    own = [given.pop(item[key], item) for item in ours]
    return own + list(given.values())
