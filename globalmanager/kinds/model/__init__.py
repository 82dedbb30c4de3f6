"""Model: where a trained model is. Jobs refer to it; nothing runs for it."""

from globalmanager.contract import Column, Kind, ResourceType
from globalmanager.kinds.model.downstream import assignments
from globalmanager.kinds.model.main import plan
from globalmanager.kinds.model.types import ModelSpec, ModelStatus
from globalmanager.kinds.model.upstream import fold

KIND = Kind(
    types=(
        ResourceType("edgeai.io", "v1alpha1", "models", "Model"),
        ResourceType("sedna.io", "v1alpha1", "models", "Model"),
    ),
    singular="model",
    short_names={"edgeai.io": ("mdl",)},
    spec=ModelSpec,
    status=ModelStatus,
    columns=(
        Column("URL", "string", ".spec.url"),
        Column("Format", "string", ".spec.format"),
        Column("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status'),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    plan=plan,
    assignments=assignments,
    fold=fold,
)
