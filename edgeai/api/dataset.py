"""Dataset as the API holds it.

.status.conditions has these conditions, always in this order:

Accepted       True: the spec can be carried out. False: InvalidSpec.
ResolvedRefs   True: the Dataset's Node exists. False: NodeNotFound. Unknown while the spec is not
               accepted.
Counted        True: the node has counted the samples of this spec. False: Waiting before the first
               count. When the node cannot count, the reason comes from the node: NotFound,
               Forbidden, Unavailable, UnknownFormat, … numberOfSamples then still has the last
               count. Absent while the spec is not accepted.
EdgeConnected  True: the node's LocalController has a session. False: NoContact. Absent while the
               spec is not accepted.
"""

from typing import Any, Final

import msgspec

from edgeai.api.definitions import Definition, edge_types
from edgeai.api.specs import NonEmpty
from edgeai.api.status import Conditions, Time


class DatasetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where samples are, and on which node."""

    url: NonEmpty
    """Path of a file or directory on the node, or an s3, http or https URL."""
    node_name: NonEmpty
    """The node that counts the samples."""
    format: str = ""
    """txt (a sample is a line), csv (a sample is a record after the header), jsonl (a sample is a
    line with text) or dir (a sample is a file). The end of the URL decides when the
    field is missing."""
    credential_name: str = ""
    """Name of the Secret with the keys for fetching from s3."""


class DatasetStatus(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    conditions: Conditions = []
    number_of_samples: int | None = None
    """The node's last count. The edge writes this field, updateTime and workers."""
    update_time: Time | None = None
    """The time when the node last reported a number that differed from the number before."""
    workers: dict[str, dict[str, Any]] = {}
    """The last report of the node's LocalController. The edge side writes this field."""


DEFINITION: Final = Definition(
    types=edge_types("datasets", "Dataset"),
    short_names={"edgeai.io": ("dset",)},  # `ds` means DaemonSet already
    spec=DatasetSpec,
    status=DatasetStatus,
    has_workers=False,
)
