"""Model: where a trained model is. Jobs refer to a Model. A Model itself runs nothing."""

from edgeai.api.resources import ResourceType
from globalmanager.contract import Column, Kind, Schema
from globalmanager.kinds.model.main import plan
from globalmanager.kinds.model.types import ModelSpec, ModelStatus, read

_SCHEMA = Schema(
    spec=ModelSpec,
    status=ModelStatus,
    columns=(
        Column("URL", "string", ".spec.url"),
        Column("Format", "string", ".spec.format"),
        Column("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status'),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)

KIND = Kind(
    types={
        ResourceType("edgeai.io", "v1alpha1", "models", "Model"): _SCHEMA,
        ResourceType("sedna.io", "v1alpha1", "models", "Model"): _SCHEMA,
    },
    singular="model",
    short_names={"edgeai.io": ("mdl",)},
    read=read,
    plan=plan,
)
