"""Computes the assignments: what each edge node must hold of a FederatedLearningJob.

A node holds the job as long as a trainer belongs to the node or still runs there.
"""

from collections.abc import Iterator, Mapping

from common.wire import WorkerGrant
from edgeai.api.federatedlearningjob import FederatedLearningJobSpec
from edgeai.api.objects import has_role, is_being_deleted
from edgeai.api.pod_state import is_active, node_of
from edgeai.ids import NodeName, WorkerName, is_subdomain
from globalmanager.contract import Assignment, Observed, ServicePort
from globalmanager.kinds.edge.federatedlearningjob import spec as types
from globalmanager.kinds.edge.federatedlearningjob.spec import TRAIN, worker_name
from globalmanager.kinds.edge.federatedlearningjob.worker_secrets import trainer_secret
from globalmanager.kinds.edge.federatedlearningjob.workers import PORT
from globalmanager.kinds.edge.worker_form import fixed_node
from globalmanager.kinds.shared.replication import index_of
from globalmanager.kinds.shared.secrets import secret_hash


def assignments(observed: Observed) -> Mapping[NodeName, Assignment]:
    """Node -> assignment, with a grant for each trainer that may run on the node."""
    # The nodes drop the task of a job that is going.
    if is_being_deleted(observed.object):
        return {}
    reporting = _reporting(observed)
    return {
        node: _assignment(observed, node, reporting.get(node, frozenset()))
        for node in nodes(observed)
    }


def nodes(observed: Observed) -> list[NodeName]:
    """The nodes where trainers belong or run, sorted."""
    # A Dataset can name anything, and only the name of a node ever connects.
    names = {node for node in _node_names(observed) if is_subdomain(node)}
    return [NodeName(node) for node in sorted(names)]


def _node_names(observed: Observed) -> Iterator[str]:
    """The nodes that the spec, the Datasets or the trainers' pods name for trainers."""
    spec: FederatedLearningJobSpec | None = observed.spec
    for worker in spec.training_workers if spec else ():
        yield types.node_of(observed, worker)
    for pod in observed.pods:
        # An edit may move or remove a trainer whose pod still runs on its former node.
        if has_role(pod, TRAIN) and is_active(pod):
            yield node_of(pod)


def _assignment(observed: Observed, node: NodeName, reporting: frozenset[WorkerName]) -> Assignment:
    """The assignment of one node.

    The body depends only on the generation and the node, because the version is the generation. The
    GlobalManager would never send a body that changed without a new version. A trainer that takes
    its node from its Dataset may move without a new generation, so each such trainer has a grant on
    every node of the job. Only the pod of the trainer knows the secret of the grant. The
    GlobalManager takes the trainer's reports from its present node alone.
    """
    spec: FederatedLearningJobSpec | None = observed.spec
    # While the spec is wrong, the trainers that run go on, and their reports count.
    trainers = _spec_trainers(spec, node) if spec else _pod_trainers(observed, node)
    job = observed.ref.name
    return Assignment.of(
        observed,
        spec={"trainingWorkers": [{"dataset": dataset} for dataset in trainers.values()]},
        workers={
            # The node gets the hash, so its ledger holds no secret that another process could use.
            worker_name(job, index): WorkerGrant(secret_hash(trainer_secret(observed, index)))
            for index in trainers
        },
        reporting=reporting,
        # The relay lets a trainer reach its aggregator and no other Service of the cluster.
        targets=(ServicePort(worker_name(job, None), PORT),),
    )


def _reporting(observed: Observed) -> dict[str, frozenset[WorkerName]]:
    """Node -> trainers that may report from it: by the pod, or else by the spec or the Dataset."""
    spec: FederatedLearningJobSpec | None = observed.spec
    # The node of the pod wins: after an edit, a trainer reports from there while its pod is there.
    places: dict[WorkerName, str] = {}
    for index, worker in enumerate(spec.training_workers if spec else ()):
        places[worker_name(observed.ref.name, index)] = types.node_of(observed, worker)
    for pod in observed.pods:
        # A pod without a node cannot report yet, so the spec or the Dataset still says where.
        if has_role(pod, TRAIN) and node_of(pod):
            places[WorkerName(pod["metadata"]["name"])] = node_of(pod)
    by_node: dict[str, set[WorkerName]] = {}
    for name, node in places.items():
        by_node.setdefault(node, set()).add(name)
    return {node: frozenset(names) for node, names in by_node.items()}


def _spec_trainers(spec: FederatedLearningJobSpec, node: str) -> dict[int, str]:
    """Index -> dataset of each trainer that may run on the node."""
    return {
        index: worker.dataset.name
        for index, worker in enumerate(spec.training_workers)
        if fixed_node(worker) in ("", node)
    }


def _pod_trainers(observed: Observed, node: str) -> dict[int, str]:
    """Index -> "" of each trainer with a pod on the node, for a job whose spec is not accepted."""
    names = (pod["metadata"]["name"] for pod in observed.pods if node_of(pod) == node)
    indices = (index_of(observed.ref.name, TRAIN, name) for name in names)
    # The names of Datasets are in the spec, which cannot be read. No hook of a node reads them.
    return dict.fromkeys(sorted(index for index in indices if index is not None), "")
