"""Model as the API holds it.

.status.conditions: Accepted - workers could get at the URL. False: InvalidSpec.
"""

import msgspec

from globalmanager.contract import Object
from globalmanager.rules.specs import NonEmpty, parse_spec
from globalmanager.rules.status import Conditions, Metric, Time
from globalmanager.rules.storage import check_url


class ModelSpec(msgspec.Struct, frozen=True, rename="camel"):
    url: NonEmpty
    """Path of a file on the worker's node, or an s3, http or https URL."""
    format: str = ""
    """For people and workers; never looked into."""
    credential_name: str = ""
    """Secret that fetching needs."""
    device_soc_versions: list[str] | None = msgspec.field(default=None, name="device_soc_versions")
    """Accelerators that the model was converted for."""


class TrainedBy(msgspec.Struct, frozen=True, rename="camel"):
    """The job whose rounds the metrics are; the newest, where several make one Model."""

    name: str
    uid: str
    creation_timestamp: str


class ModelStatus(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    conditions: Conditions = []
    update_time: Time | None = None
    metrics: list[Metric] = []
    trained_by: TrainedBy | None = None


def read(object_: Object) -> ModelSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, ModelSpec)
    check_url(spec.url)
    return spec
