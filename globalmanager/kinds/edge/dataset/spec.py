"""Reads and checks the spec of a Dataset."""

from edgeai.api.dataset import DatasetSpec
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.specs import check_object_name, parse_spec
from globalmanager.contract import Job
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.shared.storage import check_url


def read(object_: Object) -> DatasetSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, DatasetSpec)
    check_url(spec.url)
    # The node is the address of the assignment: without one, nobody would count.
    check_object_name(spec.node_name, "spec.nodeName", "Node")
    return spec


def references(job: Job) -> frozenset[ObjectRef]:
    """The Node that the spec names. Empty while the spec is not accepted."""
    spec: DatasetSpec | None = job.spec
    return frozenset({refs.node_ref(spec.node_name)} if spec else ())
