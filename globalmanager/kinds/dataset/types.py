"""Dataset as the API holds it, and the reading of its spec.

.status.conditions, always in this order:

Accepted       the spec can be carried out. False: InvalidSpec.
ResolvedRefs   its Node exists. False: NodeNotFound. Unknown while the spec is not accepted.
Counted        the node counted the samples of this spec. False: Waiting until it has, and why it
               cannot, in the words of the node: NotFound, Forbidden, Unavailable, UnknownFormat,
               … numberOfSamples is then the last one that was counted. Absent while the spec is
               not accepted.
EdgeConnected  the node's LocalController has a session. False: NoContact. Absent while the spec
               is not accepted.
"""

from typing import Any

import msgspec

from globalmanager.contract import Job, Object, ObjectRef
from globalmanager.rules import references as refs
from globalmanager.rules.specs import NonEmpty, check_object_name, parse_spec
from globalmanager.rules.status import Conditions, Time
from globalmanager.rules.storage import check_url


class DatasetSpec(msgspec.Struct, frozen=True, rename="camel"):
    url: NonEmpty
    """Path of a file or directory on the node, or an s3, http or https URL."""
    node_name: NonEmpty
    """Node that counts the samples."""
    format: str = ""
    """txt (a sample is a line), csv (a record after the header), jsonl (a line with text) or dir (a
    file); empty: by the end of the URL."""
    credential_name: str = ""
    """Secret that fetching from s3 needs."""


class DatasetStatus(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    conditions: Conditions = []
    number_of_samples: int | None = None
    """As the node last counted; written by the edge, like updateTime and workers."""
    update_time: Time | None = None
    """When the node counted another number than before."""
    workers: dict[str, dict[str, Any]] = {}


def read(object_: Object) -> DatasetSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, DatasetSpec)
    check_url(spec.url)
    check_object_name(spec.node_name, "spec.nodeName", "Node")
    return spec


def references(job: Job) -> frozenset[ObjectRef]:
    """The Node; nothing while the spec is not accepted."""
    spec: DatasetSpec | None = job.spec
    return frozenset({refs.node_ref(spec.node_name)} if spec else ())
