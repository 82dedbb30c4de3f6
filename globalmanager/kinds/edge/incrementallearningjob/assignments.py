"""Computes the assignments: what each edge node must hold of an IncrementalLearningJob."""

from collections.abc import Iterator, Mapping

from edgeai.api.objects import LABEL_ROLE, is_being_deleted, label_of
from edgeai.api.pod_state import node_of
from edgeai.ids import NodeName, WorkerName, is_subdomain
from globalmanager.contract import Assignment, Observed
from globalmanager.kinds.edge import grants
from globalmanager.kinds.edge.incrementallearningjob import spec as types
from globalmanager.kinds.edge.incrementallearningjob.spec import EVAL, ROLES, TRAIN, worker_name
from globalmanager.kinds.edge.incrementallearningjob.state import state_of


def assignments(observed: Observed) -> Mapping[NodeName, Assignment]:
    """Node -> assignment, with a grant for each worker.

    The body depends only on the generation, because the version is the generation: each node has
    the grants of all workers, and the GlobalManager takes reports of those that run there now. A
    worker keeps its name from round to round. What it tells names the round.
    """
    if is_being_deleted(observed.object):
        return {}
    workers = {worker_name(observed, role): grants.grant(observed, role) for role in ROLES}
    by_node: dict[NodeName, set[WorkerName]] = {}
    for node, role in _places(observed):
        if is_subdomain(node):
            by_node.setdefault(NodeName(node), set()).add(worker_name(observed, role))
    return {
        node: Assignment.of(observed, spec={}, workers=workers, reporting=frozenset(names))
        for node, names in sorted(by_node.items())
    }


def nodes(observed: Observed) -> list[NodeName]:
    """The nodes where workers belong or run, sorted."""
    return sorted({NodeName(node) for node, _ in _places(observed) if is_subdomain(node)})


def _places(observed: Observed) -> Iterator[tuple[str, str]]:
    """Node and role of each worker: where the spec wants it, where it still is, and that of the
    present round.
    """
    for pod in observed.pods:
        if label_of(pod, LABEL_ROLE) in ROLES:
            yield node_of(pod), label_of(pod, LABEL_ROLE)
    # Its pod may be gone, and its report may wait there.
    current = state_of(observed).current
    if current is not None:
        yield from ((current.node, role) for role in (TRAIN, EVAL))
    for role in ROLES if observed.spec is not None else ():
        yield types.node_of(observed, observed.spec, role), role
