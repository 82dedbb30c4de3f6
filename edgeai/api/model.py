"""Model as the API holds it.

.status.conditions has one condition:

Accepted       True: workers can use the URL. False: InvalidSpec.
"""

from typing import Final

import msgspec

from edgeai.api.definitions import Definition, edge_types
from edgeai.api.specs import NonEmpty
from edgeai.api.status import Conditions, Metric, Time


class ModelSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where the file of a model is."""

    url: NonEmpty
    """Path of a file on the worker's node, or an s3, http or https URL."""
    format: str = ""
    """Format of the model, for users and workers. The GlobalManager never reads this field."""
    credential_name: str = ""
    """Name of the Secret with the keys for fetching the model."""
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


class ModelStatus(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    conditions: Conditions = []
    update_time: Time | None = None
    """The time when the metrics last changed."""
    metrics: list[Metric] = []
    trained_by: TrainedBy | None = None


DEFINITION: Final = Definition(
    types=edge_types("models", "Model"),
    short_names={"edgeai.io": ("mdl",)},
    spec=ModelSpec,
    status=ModelStatus,
    has_workers=False,
)
