"""Whether each edge node has a LocalController, and a session with a GlobalManager."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from edgeai.api.objects import label_of
from edgeai.api.pod_state import node_of
from edgeai.api.resources import CONFIG_MAPS, NODES, PODS, Object
from edgeai.cli.doctor.facts import CONTROLLER, NAME_LABEL, Facts
from edgeai.cli.doctor.finding import MAX_NAMED, Note, is_silent, look, pod_problem, some
from edgeai.ids import NodeName
from globalmanager.ha import claims
from globalmanager.ha.elector import LEASES, REPLICA_LABEL
from globalmanager.ha.presence import CLAIMS_FIELD
from globalmanager.kinds.training.edge_placement import EDGE_LABEL, is_edge


def edges(facts: Facts) -> Iterator[Note]:
    edges = [node["metadata"]["name"] for node in facts.of(NODES) if is_edge(node)]
    if not edges:
        message = f"no node has the label {EDGE_LABEL}, so none gets a LocalController"
        yield "warning", message, f"kubectl label node NODE {EDGE_LABEL}="
        return
    pods = {
        node_of(pod): pod
        for pod in facts.of(PODS)
        if label_of(pod, NAME_LABEL).startswith(CONTROLLER)
    }
    sessions = nodes_served(facts.of(LEASES), facts.of(CONFIG_MAPS), facts.clock)
    # A LocalController may run outside Kubernetes; then its session is all that is seen.
    without_controller = [node for node in edges if node not in pods and node not in sessions]
    if without_controller:
        message = f"no LocalController on {some(without_controller)}"
        remedy = f"see the DaemonSet: kubectl -n {facts.namespace} describe daemonset {CONTROLLER}"
        yield "error", message, remedy
    without_session = [node for node in edges if node in pods and node not in sessions]
    for node in without_session[:MAX_NAMED]:
        why = pod_problem([pods[node]])
        pod = pods[node]["metadata"]["name"]
        log = f"see the log of its LocalController: kubectl -n {facts.namespace} logs {pod}"
        message = f"{node} has no session with a GlobalManager"
        yield "error", f"{message}: {why}" if why else message, look(facts) if why else log
    more = len(without_session) - MAX_NAMED
    if more > 0:
        yield "error", f"{more} further edge nodes have no session", look(facts)
    if not without_controller and not without_session:
        yield "ok", f"all {len(edges)} edge nodes have a session"


def nodes_served(
    leases: Iterable[Object], config_maps: Iterable[Object], now: datetime
) -> dict[NodeName, claims.Claim]:
    """The nodes of which a live replica says that it has their session, with the newest claim. A
    replica writes its Lease and its ConfigMap under one name. Raises: claims.ClaimsError
    """
    live = {
        lease["metadata"]["name"] for lease in leases if not is_silent(lease.get("spec") or {}, now)
    }
    claims_of: dict[NodeName, claims.Claim] = {}
    for config_map in config_maps:
        if label_of(config_map, REPLICA_LABEL) and config_map["metadata"]["name"] in live:
            text = (config_map.get("data") or {}).get(CLAIMS_FIELD, "")
            for node, claim in (claims.decode(text) if text else claims.NO_CLAIMS).items():
                if node not in claims_of or claim.order > claims_of[node].order:
                    claims_of[node] = claim
    return claims_of
