"""Which replicas a user sends to edge nodes, and how long a job waits for such a node.

Kubernetes evicts the pods of a node that it has not heard of for 300 seconds. A replica on an edge
node tolerates this, so that the job itself decides, after its own grace time.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgeai.api.resources import Object
from edgeai.api.status import mapping, mappings
from globalmanager.contract import Observed
from globalmanager.kinds.shared import pods

GRACE: Final = "edgeai.io/edge-grace-period-seconds"
"""Annotation of a job. An annotation and no field of the spec, because the CRD and the client
libraries of the Kubeflow operator drop fields that they do not know."""
DEFAULT_GRACE_S: Final = 300
"""As long as Kubernetes leaves pods on a node that it has lost."""
EDGE_LABEL: Final = "node-role.kubernetes.io/edge"
# A selector by hostname names one node, as `nodeName` does.
_NODE_LABELS: Final = frozenset({EDGE_LABEL, "kubernetes.io/hostname"})
# NotIn and DoesNotExist only keep a pod away from nodes.
_CHOOSING: Final = ("In", "Exists")
# Nine digits are 31 years. The end of a longer time may lie beyond the last date.
_SECONDS: Final = re.compile(r"[0-9]{1,9}\Z")


def is_edge(node: Object | None) -> bool:
    """Whether a Node has the label of the edge. False when there is no such Node."""
    return node is not None and EDGE_LABEL in mapping(node["metadata"].get("labels"))


def given_grace(observed: Observed) -> str | None:
    """The text of the annotation; None when the job does not have it."""
    annotations = mapping(observed.object["metadata"].get("annotations"))
    return str(annotations[GRACE]) if GRACE in annotations else None


def grace_s(observed: Observed) -> int:
    """Seconds for which a replica may be out of contact before it counts as lost."""
    text = given_grace(observed)
    return int(text) if text is not None and _SECONDS.match(text) else DEFAULT_GRACE_S


def warning(observed: Observed) -> str:
    """What is wrong with the annotation; "" when nothing is."""
    text = given_grace(observed)
    if text is None or _SECONDS.match(text):
        return ""
    return (
        f"the annotation {GRACE} is {text[:40]!r}, which is no number of seconds, so "
        f"{DEFAULT_GRACE_S} count; write it like 600"
    )


def tolerations(observed: Observed, template: Mapping[str, Any]) -> list[Object]:
    """The tolerations of a pod: edgeai's, for an edge node or a grace time, then the user's."""
    own: list[Object] = template["spec"].get("tolerations") or []
    if chooses_edge(template):
        return pods.with_edge_tolerations(own)
    # Who sets the time wants the job to decide about all its replicas, and not Kubernetes.
    return pods.with_outage_tolerations(own) if given_grace(observed) is not None else own


def chooses_edge(template: Mapping[str, Any]) -> bool:
    """Whether the template names a node, or selects edge nodes, or tolerates them."""
    spec: Mapping[str, Any] = template["spec"]
    if spec.get("nodeName") or _NODE_LABELS & mapping(spec.get("nodeSelector")).keys():
        return True
    toleration_keys = {toleration.get("key") for toleration in mappings(spec.get("tolerations"))}
    return EDGE_LABEL in toleration_keys or any(
        rule.get("key") in _NODE_LABELS and rule.get("operator") in _CHOOSING
        for rule in _required_rules(spec)
    )


def _required_rules(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    # A preferred rule only ranks nodes, so the pod may run anywhere.
    required = mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    for term in mappings(required.get("nodeSelectorTerms")):
        yield from mappings(term.get("matchExpressions"))
