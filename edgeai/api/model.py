"""Model as the API holds it.

.status.conditions has these conditions, in this order:

Accepted       True: workers can use the URL. False: InvalidSpec.
Delivered      True: every node whose workers load the model hot has the content of this spec.
               False: Waiting, Fetching, or the reason of a node that cannot get it: NotFound,
               Forbidden, Unavailable, WrongDigest, NoSpace, … Such a node goes on with the content
               before. Unknown: ManyNodes, when .status has no room for what each node
               tells. Absent while no node needs the content.
"""

from typing import Annotated, Any, Final

import msgspec

from edgeai.api.definitions import Definition, edge_types
from edgeai.api.specs import NonEmpty
from edgeai.api.status import Conditions, Int32, Metric, Time


class ModelSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where the file of a model is."""

    url: NonEmpty
    """Path of a file on the worker's node, or an s3, http or https URL. The host of an http URL may
    be a Service, NAME.NAMESPACE.svc, of the Model's namespace."""
    format: str = ""
    """Format of the model, for users and workers. The GlobalManager never reads this field."""
    credential_name: str = ""
    """Name of the Secret with the keys for fetching the model."""
    sha256: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    """SHA-256 of the content, in lower-case hex. With it, a node accepts no other content. Without
    it, a node fetches what the URL has once for each change of the spec."""
    device_soc_versions: list[str] | None = msgspec.field(default=None, name="device_soc_versions")
    """Accelerators for which the model was converted."""


class TrainedBy(msgspec.Struct, frozen=True, rename="camel"):
    """The job that wrote the metrics. When several jobs make one Model, only the newest job
    writes.
    """

    name: str
    """The FederatedLearningJob."""
    uid: str
    """Tells it from an earlier job of this name."""
    creation_timestamp: str
    """Tells which of several jobs is the newest."""


class PublishedVersion(msgspec.Struct, frozen=True, rename="camel"):
    """Content that the Model has named."""

    generation: int
    """metadata.generation at that time."""
    url: str
    """spec.url at that time, at most 2048 characters of it."""
    sha256: str
    """spec.sha256 at that time."""
    time: Time
    """When the GlobalManager first saw it."""
    outcome: str = ""
    """Complete when every node got it, RolledBack when it was taken back."""


class ModelStatus(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    conditions: Conditions = []
    update_time: Time | None = None
    """The time when the metrics last changed."""
    metrics: list[Metric] = []
    trained_by: TrainedBy | None = None
    digest: str | None = None
    """SHA-256 of the content of this spec, in lower-case hex."""
    nodes: Int32 | None = None
    """Number of nodes whose workers load the model hot."""
    ready_nodes: Int32 | None = None
    """Number of these nodes that have the content which they should have now."""
    versions: list[PublishedVersion] = []
    """The last ten versions, the newest last, while nodes load the model hot."""
    returns: int = 0
    """How much the versions of assignments exceed the generation, because rollouts have returned to
    former content."""
    workers: dict[str, dict[str, Any]] = {}
    """What each of these nodes has told last. The edge side writes this field."""


DEFINITION: Final = Definition(
    types=edge_types("models", "Model"),
    short_names={"edgeai.io": ("mdl",)},
    spec=ModelSpec,
    status=ModelStatus,
    has_workers=False,
)
