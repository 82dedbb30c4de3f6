"""Computes the assignments of a Dataset. The node of the Dataset counts the samples.

The LocalController itself reports the count, as a worker with the Dataset's name. The grant of this
worker has no secret, so no other process on the node can report in its place.
"""

from collections.abc import Mapping

import msgspec

from common.wire import THE_NODE_ITSELF
from edgeai.api.dataset import DatasetSpec
from edgeai.api.objects import is_being_deleted
from edgeai.ids import NodeName, WorkerName
from globalmanager.contract import Assignment, Observed
from globalmanager.kinds.shared import storage


def assignments(observed: Observed) -> Mapping[NodeName, Assignment]:
    """Node -> url, format and credentialName. Empty while the spec is not accepted."""
    spec: DatasetSpec | None = observed.spec
    if spec is None or is_being_deleted(observed.object):
        return {}
    # The LocalController runs as root. No tenant may let it count /etc/shadow.
    if storage.fault_of_place(spec.url, observed.settings):
        return {}
    excerpt = {key: value for key, value in msgspec.to_builtins(spec).items() if key != "nodeName"}
    workers = {WorkerName(observed.ref.name): THE_NODE_ITSELF}
    return {NodeName(spec.node_name): Assignment.of(observed, spec=excerpt, workers=workers)}
