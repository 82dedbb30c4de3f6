"""assignments of a Dataset: its node counts the samples.

Called by the engine. The LocalController itself reports, as a worker with the Dataset's name;
no secret gives the right to that, so nobody else on the node can.
"""

from collections.abc import Mapping

import msgspec

from common.ids import NodeName, WorkerName
from common.wire import THE_NODE_ITSELF, AssignmentBody
from globalmanager.children import is_being_deleted
from globalmanager.kinds.dataset import types
from globalmanager.model import Assignment, Observed, task_key
from globalmanager.specs import InvalidSpec


def assignments(observed: Observed) -> Mapping[NodeName, Assignment]:
    """Node -> url, format and credentialName; empty while the spec is not accepted."""
    if is_being_deleted(observed.object):
        return {}
    try:
        spec = types.read(observed.object)
    except InvalidSpec:
        return {}
    ref = observed.ref
    excerpt = {key: value for key, value in msgspec.to_builtins(spec).items() if key != "nodeName"}
    workers = {WorkerName(ref.name): THE_NODE_ITSELF}
    body = AssignmentBody(namespace=ref.namespace, name=ref.name, spec=excerpt, workers=workers)
    assignment = Assignment(
        key=task_key(ref), uid=observed.uid, version=observed.generation, body=body
    )
    return {NodeName(spec.node_name): assignment}
