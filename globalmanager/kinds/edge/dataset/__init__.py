"""Dataset: data on an edge node. The node's LocalController counts the samples of the Dataset."""

from edgeai.api.dataset import DEFINITION
from edgeai.api.schemas import Column
from globalmanager.contract import Kind
from globalmanager.kinds.edge.dataset.assignments import assignments
from globalmanager.kinds.edge.dataset.fold import DatasetFold
from globalmanager.kinds.edge.dataset.plan import plan, read, references

KIND = Kind(
    definition=DEFINITION,
    columns=(
        Column("Node", "string", ".spec.nodeName"),
        Column("Format", "string", ".spec.format"),
        Column("Samples", "integer", ".status.numberOfSamples"),
        Column("Counted", "string", '.status.conditions[?(@.type=="Counted")].status'),
        Column("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status'),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("URL", "string", ".spec.url", priority=1),
    ),
    read=read,
    references=references,
    plan=plan,
    assignments=assignments,
    fold=DatasetFold,
)
