"""Whether what was applied has become ready, and what is still missing. Pure functions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from edgeai.api.resources import Object
from edgeai.cli.doctor.edges import EDGE_LABEL, nodes_served
from edgeai.cli.doctor.finding import pod_problem, some
from edgeai.cli.doctor.parts import part_of
from globalmanager.ha.claims import ClaimsError

_SIMILAR: Final = "(combined from similar events): "


def definition_missing(definition: Object | None) -> str:
    """Why the API server does not serve a CustomResourceDefinition yet; "" when it does."""
    if definition is None:
        return "it is not there"
    conditions = {
        each["type"]: each for each in (definition.get("status") or {}).get("conditions") or ()
    }
    for type_ in ("NamesAccepted", "Established"):
        condition = conditions.get(type_, {})
        if condition.get("status") != "True":
            return str(condition.get("message") or f"it is not {type_}")
    return ""


def deployment_missing(deployment: Object | None, pods: Sequence[Object]) -> str:
    if deployment is None:
        return "the Deployment is not there"
    status = deployment.get("status") or {}
    wanted = deployment["spec"].get("replicas", 1)
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return "the change was not noticed yet"
    updated = min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0))
    old = status.get("replicas", 0) - wanted
    if updated >= wanted:
        return f"{old} pods of before still run" if old > 0 else ""
    why = _failure(status) or pod_problem(part_of(pods, deployment["metadata"]["name"]))
    return f"{updated} of {wanted} pods are ready" + (f": {why}" if why else "")


def _failure(status: Object) -> str:
    """Why no pod can be made, as for a quota."""
    for each in status.get("conditions") or ():
        if each["type"] == "ReplicaFailure" and each["status"] == "True":
            return str(each.get("message", ""))
    return ""


def daemon_set_missing(
    daemon_set: Object | None,
    pods: Sequence[Object],
    nodes: Sequence[Object],
    events: Sequence[Object] = (),
) -> str:
    """Edge nodes that are out of contact are not waited for: they follow when they come back.

    Args: events: of the DaemonSet, the status of which does not say why a pod cannot be made
    """
    if daemon_set is None:
        return "the DaemonSet is not there"
    status = daemon_set.get("status") or {}
    if status.get("observedGeneration", 0) < daemon_set["metadata"]["generation"]:
        why = _refusal(events)
        return "the change was not noticed yet" + (f": {why}" if why else "")
    wanted = status.get("desiredNumberScheduled", 0) - len(away(nodes))
    updated = min(status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
    if updated >= wanted:
        return ""
    why = pod_problem(part_of(pods, daemon_set["metadata"]["name"])) or _refusal(events)
    return f"{updated} of {wanted} pods are ready" + (f": {why}" if why else "")


def _refusal(events: Sequence[Object]) -> str:
    """Why the newest pod could not be made, as for a quota or a Pod Security Standard."""
    refusals = [each for each in events if each.get("reason") == "FailedCreate"]
    newest = max(refusals, key=lambda each: str(each.get("lastTimestamp") or ""), default={})
    message = str(newest.get("message", ""))
    return message.removeprefix(_SIMILAR).removeprefix("Error creating: ")


def session_missing(
    nodes: Sequence[Object],
    leases: Sequence[Object],
    config_maps: Sequence[Object],
    now: datetime,
) -> str:
    """One session is enough: an edge node that was added a moment ago follows later.

    Args: now: by the clock of the API server
    """
    names = [each["metadata"]["name"] for each in edges(nodes) if _is_ready(each)]
    try:
        served = nodes_served(leases, config_maps, now)
    except ClaimsError as error:
        return f"a ConfigMap of a GlobalManager cannot be read: {error}"
    if not names or not served.keys().isdisjoint(names):
        return ""
    return f"none of {some(names)}"


def edges(nodes: Sequence[Object]) -> list[Object]:
    return [each for each in nodes if EDGE_LABEL in (each["metadata"].get("labels") or {})]


def away(nodes: Sequence[Object]) -> list[Object]:
    """Edge nodes that Kubernetes does not hear from."""
    return [each for each in edges(nodes) if not _is_ready(each)]


def _is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
