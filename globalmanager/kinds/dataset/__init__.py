"""Dataset: data on an edge node. The node's LocalController counts the samples of the Dataset."""

from edgeai.api.resources import ResourceType
from globalmanager.contract import Column, Kind, Schema
from globalmanager.kinds.dataset.downstream import assignments
from globalmanager.kinds.dataset.main import plan
from globalmanager.kinds.dataset.types import DatasetSpec, DatasetStatus, read, references
from globalmanager.kinds.dataset.upstream import fold

_SCHEMA = Schema(
    spec=DatasetSpec,
    status=DatasetStatus,
    columns=(
        Column("Node", "string", ".spec.nodeName"),
        Column("Format", "string", ".spec.format"),
        Column("Samples", "integer", ".status.numberOfSamples"),
        Column("Counted", "string", '.status.conditions[?(@.type=="Counted")].status'),
        Column("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status'),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("URL", "string", ".spec.url", priority=1),
    ),
)

KIND = Kind(
    types={
        ResourceType("edgeai.io", "v1alpha1", "datasets", "Dataset"): _SCHEMA,
        ResourceType("sedna.io", "v1alpha1", "datasets", "Dataset"): _SCHEMA,
    },
    singular="dataset",
    short_names={"edgeai.io": ("dset",)},  # `ds` means DaemonSet already
    read=read,
    references=references,
    plan=plan,
    assignments=assignments,
    fold=fold,
)
